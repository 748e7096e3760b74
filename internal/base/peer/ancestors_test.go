//go:build linux

package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A child of a child lists all its ancestors, including this process.
func TestAncestors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if socat, err := exec.LookPath("socat"); err == nil {
		cmd := exec.Command("sh", "-c", socat+" - UNIX-CONNECT:"+path+"; true")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer in.Close()
		c, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p, err := FromConn(c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		line, err := p.Ancestors()
		if err != nil || line[0] != name(t, p.PID) || !slices.Contains(line, name(t, int32(cmd.Process.Pid))) || !slices.Contains(line, name(t, int32(os.Getpid()))) || line[len(line)-1] != name(t, 1) {
			t.Errorf("a grandchild comes from %v, %v", line, err)
		}
	}

	dial, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer dial.Close()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := FromConn(c)
	if err != nil {
		t.Fatal(err)
	}
	line, err := p.Ancestors()
	if err != nil || line[0] != name(t, int32(os.Getpid())) || line[1] != name(t, int32(os.Getppid())) {
		t.Errorf("this process comes from %v, %v", line, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Ancestors(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// name returns a process in the form of the list.
func name(t *testing.T, pid int32) string {
	t.Helper()
	start, err := startTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d@%s", pid, start)
}

func TestParseParent(t *testing.T) {
	for stat, want := range map[string]int32{
		"7 (sh) S 5 7 7 0": 5, "7 (a) b) ((x) R 12 1": 12, "1 (init) S 0 1": 0,
		"": -1, "7 (sh": -1, "7 (sh) S": -1, "7 (sh) S x": -1, "7 (sh) S -3": -1, "7 (sh) S 99999999999": -1,
	} {
		got, err := parseParent(stat)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v", stat, got, err)
		}
	}
}
