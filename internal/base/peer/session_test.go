//go:build linux

package peer

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A session is as old as its oldest process up to the leader. One whose leader is not in the line is
// as old as all of it.
func TestOlderThan(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read go; sleep 60 & echo $!; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	line, err := LineOf(int32(pid))
	if err != nil {
		t.Fatal(err)
	}
	_, leads, _ := parseName(line[1])
	_, above, _ := parseName(line[2])
	after := "1@" + leads + "0"
	for name, tc := range map[string]struct {
		line       []string
		than, want string
	}{
		"the leader is not older":      {line, "1@" + leads, ""},
		"what is above does not count": {[]string{line[0], line[1], line[2]}, "1@" + leads, ""},
		"all are older":                {line, after, line[0]},
		"the leader is hidden":         {[]string{line[0], line[2]}, "1@" + above + "0", line[0]},
	} {
		if got, err := OlderThan(tc.line, tc.than); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
	if _, err := OlderThan(line, "nothing"); err == nil {
		t.Error("no name is no error")
	}
}
