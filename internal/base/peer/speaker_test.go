//go:build linux

package peer

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/test/buildtest"
	"golang.org/x/sys/unix"
)

// becomes starts a helper that connects. It returns a function that makes the helper execute
// another program and waits for that.
func becomes(t *testing.T, program string, extra ...string) (s *net.UnixConn, become func()) {
	t.Helper()
	l := listen(t)
	told, tells, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer tells.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.ExtraFiles = []*os.File{tells}
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperSocket+"="+l.Addr().String(), helperBecomes+"="+program), extra...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		told.Close()
	})
	s = accept(t, l)
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	tells.Close()
	return s, func() {
		in.Close()
		// Its end of the pipe closes when it executes.
		if _, err := io.Copy(io.Discard, told); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that executes another program after it connected is no longer trusted, even if the new
// program is the same.
func TestReplacedProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	for name, program := range map[string]string{"another": sleep, "the same": self} {
		t.Run(name, func(t *testing.T) {
			s, become := becomes(t, program)
			p, err := FromConn(s)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			asked, err := FromConn(s)
			if err != nil {
				t.Fatal(err)
			}
			defer asked.Close()
			if exe, err := asked.Exe(); err != nil || exe != self {
				t.Fatalf("before: Exe() = %q, %v", exe, err)
			}
			before, err := p.Process()
			if err != nil || before == "" {
				t.Fatalf("Process() = %q, %v", before, err)
			}
			become()
			for _, p := range []*Peer{p, asked} {
				if exe, err := p.Exe(); !errors.Is(err, ErrReplaced) {
					t.Errorf("Exe() = %q, %v, want ErrReplaced", exe, err)
				}
				if err := p.Present(); !errors.Is(err, ErrReplaced) {
					t.Errorf("Present() = %v, want ErrReplaced", err)
				}
			}
			// It is the same process, with any program.
			if after, err := p.Process(); err != nil || after != before || !Runs(after) {
				t.Errorf("Process() = %q, %v, was %q", after, err, before)
			}
		})
	}
}

// The program at the connect must have been visible: a process that hides itself then and later
// executes a visible program has not shown that it ran that program before.
func TestUnseenProcess(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root sees everything")
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	s, become := becomes(t, sleep, helperHides+"=1")
	p, err := FromConn(s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if exe, err := p.Exe(); !errors.Is(err, unix.EACCES) {
		t.Errorf("hidden: Exe() = %q, %v", exe, err)
	}
	if err := p.Present(); err != nil {
		t.Errorf("hidden: %v", err)
	}
	become()
	if exe, err := p.Exe(); !errors.Is(err, ErrUnseen) {
		t.Errorf("Exe() = %q, %v, want ErrUnseen", exe, err)
	}
}

// Another process that writes to a connection is noticed, even if it wrote before the connection
// was accepted.
func TestAnotherProcessSpeaks(t *testing.T) {
	for _, attended := range []bool{true, false} {
		for name, extra := range map[string]string{"alone": "", "handed on": helperHands + "=1"} {
			l := listen(t)
			if attended {
				if err := Attend(l); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(program(t))
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperSocket+"="+l.Addr().String())
			if extra != "" {
				cmd.Env = append(cmd.Env, extra)
			}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s := accept(t, l)
			p, err := FromConn(s)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if extra != "" {
				want = 2
			}
			if text, err := readAll(p.Reader(s), want); err != nil || len(text) != want {
				t.Fatalf("read %q, %v", text, err)
			}
			err = p.Present()
			// Without Attend nothing shows it. Data that came before the accept always carries
			// credentials.
			if extra == "" && err != nil || extra != "" && attended && !errors.Is(err, ErrHandedOn) {
				t.Errorf("%s, attended %t: Present() = %v", name, attended, err)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			// The end of the data is reported as by any reader.
			if n, err := p.Reader(s).Read(make([]byte, 8)); n != 0 || err != io.EOF {
				t.Errorf("at the end: %d, %v", n, err)
			}
			p.Close()
		}
	}
}

func readAll(r io.Reader, n int) ([]byte, error) {
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return text, err
}

// Descriptors that a process sends with its data are not accepted.
func TestDescriptorsAreNotTaken(t *testing.T) {
	l := listen(t)
	if err := Attend(l); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := accept(t, l)
	p, err := FromConn(s)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := buildtest.Open(t)
	for range 100 {
		if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(0, 1, 2), nil); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := readAll(p.Reader(s), 100); err != nil || strings.Count(string(text), "x") != 100 {
		t.Fatalf("read %q, %v", text, err)
	}
	if more := buildtest.Open(t).Since(before); more > 0 {
		t.Errorf("%d descriptors more", more)
	}
	if err := p.Present(); err != nil {
		t.Error(err)
	}
}

func TestRuns(t *testing.T) {
	start, err := startTime(int32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		processName(int32(os.Getpid()), start): true, processName(int32(os.Getpid()), "1"): false, "": false, "x@1": false, "0@1": false, "-1@1": false, "7": false, "4194304@1": false,
	} {
		if got := Runs(name); got != want {
			t.Errorf("Runs(%q) = %t", name, got)
		}
	}
	if boot, err := Boot(); err != nil || len(boot) != 36 {
		t.Errorf("Boot() = %q, %v", boot, err)
	}
}

func FuzzStat(f *testing.F) {
	f.Add("7 (sh) S 5 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 1 2 3 140")
	f.Add("7 (a) b) ((x) R 12 1")
	f.Fuzz(func(t *testing.T, stat string) {
		parseStack(stat)
		if _, err := parseStartTime(stat); err == nil && !strings.Contains(stat, ")") {
			t.Errorf("%q has a start", stat)
		}
		if parent, err := parseParent(stat); err == nil && parent < 0 {
			t.Errorf("%q has parent %d", stat, parent)
		}
		if p, ok := parseListed(stat); ok && !strings.HasPrefix(strings.TrimLeft(stat, "+0"), strconv.Itoa(p.PID)) && p.PID != 0 {
			t.Errorf("%q is %+v", stat, p)
		}
	})
}
