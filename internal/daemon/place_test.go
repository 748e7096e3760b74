package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/test/buildtest"
)

// strangerSocket makes a copy of the test binary a separate program, which connects to that
// socket for each line of its input: see [TestStranger].
const strangerSocket = "DAEMON_TEST_STRANGER_SOCKET"

// nobody is a user who owns nothing.
const nobody = 65534

// TestStranger is the other program: each line of its input is an app id that it registers,
// over a separate connection, or "operator" for an operators' question. It answers with a line.
func TestStranger(t *testing.T) {
	socket := os.Getenv(strangerSocket)
	if socket == "" {
		t.Skip("this is the program that other tests start")
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(":", strings.ReplaceAll(strange(t.Context(), socket, lines.Text()), "\n", " "))
	}
}

func strange(ctx context.Context, socket, what string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if what == "operator" {
		socket = filepath.Join(filepath.Dir(socket), "operator.sock")
	}
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	if what == "operator" {
		err = c.Call(ctx, "kernel.status", map[string]any{}, nil)
	} else {
		_, err = c.Register(ctx, manifest(what, api.Capabilities{}))
	}
	if err != nil {
		return err.Error()
	}
	return "welcome"
}

// copyProgram copies the test binary to a place where every user may run it.
func copyProgram(t *testing.T, path string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	buildtest.Executable(t, path, text)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// stranger is a running copy of the other program.
type stranger struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Scanner
	says  bytes.Buffer
}

func (h *harness) stranger(t *testing.T, program string, as *syscall.Credential) *stranger {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-test.run=^TestStranger$", "-test.count=1")
	cmd.Dir = "/"
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0", strangerSocket + "=" + h.path("run/kernel.sock")}
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	s := &stranger{t: t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &s.says
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other program: %v: %s", err, s.says.Bytes())
		}
	})
	s.in, s.lines = in, bufio.NewScanner(out)
	return s
}

// tries has the other program do something and compares the answer.
func (s *stranger) tries(what, want string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, what); err != nil {
		s.t.Fatal(err)
	}
	for s.lines.Scan() {
		got, found := strings.CutPrefix(s.lines.Text(), ": ")
		if !found {
			continue
		}
		if !strings.Contains(got, want) {
			s.t.Errorf("%s: got %q, want %q", what, got, want)
		}
		return
	}
	s.t.Fatalf("the other program says no more: %v, %s", s.lines.Err(), s.says.Bytes())
}

// Another user is refused unless the configuration lists that user, and then admitted only
// as an app, and not under an app id that is bound to another user.
func TestAnotherUserConnects(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	// The operating system's refusal, in the client's words.
	const keptOut = "the socket belongs to another user"
	for _, tc := range []struct {
		name, allow                  string
		open                         bool
		app, bound, theirs, operator string
	}{
		{"the directory keeps him out", "", false, keptOut, keptOut, keptOut, keptOut},
		{"the socket keeps him out", "", true, keptOut, keptOut, keptOut, keptOut},
		{"somebody else is listed", "ipc: {allow_uids: [65533]}", true, "user 65534 may not connect", "user 65534 may not connect", "user 65534 may not connect", keptOut},
		{"he is listed", "ipc: {allow_uids: [65534]}", true, "welcome", "app @acme/alice is not this process's to use", "welcome", keptOut},
		{"he is listed, and the directory keeps him out", "ipc: {allow_uids: [65534]}", false, keptOut, keptOut, keptOut, keptOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bound := strings.Replace(acme, `app: "@acme/alice"`, `app: "@acme/alice", uid: 0`, 1)
			bound = strings.Replace(bound, `app: "@acme/bob"`, `app: "@acme/bob", uid: 65534`, 1)
			h := build(t, bound+"access: {apps: {'@openclawos/telegram': {channels: [telegram]}, '@acme/else': {}}}\n"+tc.allow+"\n")
			if tc.open {
				if err := errors.Join(os.Chmod(h.dir, 0o711), os.Chmod(h.path("run"), 0o711)); err != nil {
					t.Fatal(err)
				}
			}
			bin, err := os.MkdirTemp("", "ocipd")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(bin) })
			if err := os.Chmod(bin, 0o711); err != nil {
				t.Fatal(err)
			}
			s := h.stranger(t, copyProgram(t, filepath.Join(bin, "stranger")), &syscall.Credential{Uid: nobody, Gid: nobody})
			s.tries("@acme/else", tc.app)
			s.tries("@acme/alice", tc.bound)
			s.tries("@acme/bob", tc.theirs)
			s.tries("operator", tc.operator)
		})
	}
}

// Only the file at its path may speak for an agent that is bound to a program: not a copy, not
// the same file under another name, and not a process of the former file after a replacement.
func TestBoundProgramIsReplaced(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := copyProgram(t, filepath.Join(dir, "bob"))
	h := build(t, strings.Replace(acme, `app: "@acme/bob"`, fmt.Sprintf(`app: "@acme/bob", exe: %q`, path), 1))
	const refused = "bound to a program, and the kernel cannot tell which program this is"
	elsewhere := "bound to " + path + "; this process runs "

	// Under other names.
	h.stranger(t, copyProgram(t, filepath.Join(dir, "copy")), nil).tries("@acme/bob", elsewhere)
	linked := filepath.Join(dir, "linked")
	if err := os.Link(path, linked); err != nil {
		t.Fatal(err)
	}
	h.stranger(t, linked, nil).tries("@acme/bob", elsewhere)
	// A symbolic link is another way to the program itself.
	short := filepath.Join(dir, "short")
	if err := os.Symlink(path, short); err != nil {
		t.Fatal(err)
	}
	h.stranger(t, short, nil).tries("@acme/bob", "welcome")

	// Another binary takes the path while the program runs: the former program is refused,
	// also while its file has another name.
	running := h.stranger(t, path, nil)
	running.tries("@acme/bob", "welcome")
	if err := os.Rename(copyProgram(t, filepath.Join(dir, "next")), path); err != nil {
		t.Fatal(err)
	}
	running.tries("@acme/bob", refused)
	if err := os.Remove(linked); err != nil {
		t.Fatal(err)
	}
	running.tries("@acme/bob", refused)
	// The file at the path now is the program: anybody who may write there decides.
	h.stranger(t, path, nil).tries("@acme/bob", "welcome")

	// After the new file is moved away, its process is no longer the agent's either.
	moved := h.stranger(t, path, nil)
	moved.tries("@acme/bob", "welcome")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	moved.tries("@acme/bob", elsewhere)
}

// Files of others in the places of the daemon's files, before its first start, stay as they
// are, under another name. If the daemon would write to one, it does not start, and names it.
func TestPlantedFiles(t *testing.T) {
	for file, refused := range map[string]bool{
		"run/kernel.sock": true, "run/operator.sock": true, "run/kernel.sock.lock": true,
		"state/ocipd.db-wal": true, "state/ocipd.db-shm": true, "state/ocipd.db-journal": true, "state/ocipd.db.latched": true,
		"state/ocipd.index.db": true, "state/ocipd.index.db-wal": true, "state/ocipd.index.db-shm": true, "state/ocipd.index.db-journal": true,
		"state/audit.jsonl": true, "state/audit-checkpoints.jsonl": true,
		"state/keys/checkpoint.key": true, "state/keys/digest.json": true,
		// These are replaced whole.
		"state/ocipd.db.reserve": false, "state/audit-manifest.jsonl": false, "state/audit-tombstone.note": false, "state/keys/checkpoint.pub": false,
	} {
		for name, plant := range map[string]func(old, path string) error{"symlink": os.Symlink, "hard link": os.Link} {
			for _, precious := range []string{"", "{", "precious\nwords\nof somebody", "one precious line without an end"} {
				t.Run(fmt.Sprintf("%s %s of %d bytes", file, name, len(precious)), func(t *testing.T) {
					h := plot(t, acme)
					target := h.path("precious")
					if err := errors.Join(os.WriteFile(target, []byte(precious), 0o600), os.MkdirAll(filepath.Dir(h.path(file)), 0o700), plant(target, h.path(file))); err != nil {
						t.Fatal(err)
					}
					before, err := os.Lstat(target)
					if err != nil {
						t.Fatal(err)
					}
					failure := h.tryStart()
					h.stop()
					if text, err := os.ReadFile(target); err != nil || string(text) != precious {
						t.Errorf("the file holds %q, %v", text, err)
					}
					after, err := os.Lstat(target)
					if err != nil {
						t.Fatal(err)
					}
					if after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
						t.Errorf("it was %s of %s, and is %s of %s", before.Mode(), before.ModTime(), after.Mode(), after.ModTime())
					}
					switch {
					case refused && failure == nil:
						t.Error("it starts")
					case refused:
						contains(t, failure.Error(), h.path(file))
					}
				})
			}
		}
	}
}

// The database itself may be a symbolic link, for example to another disk. It must not have
// a second name, because SQLite's files beside it are named after it.
func TestPlantedDatabase(t *testing.T) {
	for name, plant := range map[string]func(old, path string) error{"symlink": os.Symlink, "hard link": os.Link} {
		h := plot(t, acme)
		target := h.path("precious")
		if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Mkdir(h.path("state"), 0o700), plant(target, h.path("state/ocipd.db"))); err != nil {
			t.Fatal(err)
		}
		if err := h.tryStart(); err == nil {
			t.Errorf("%s: another program's file is taken", name)
		}
		if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
			t.Errorf("%s: the file holds %q, %v", name, text, err)
		}
	}
	h := build(t, acme)
	h.stop()
	if err := os.Link(h.path("state/ocipd.db"), h.path("another name")); err != nil {
		t.Fatal(err)
	}
	if err := h.tryStart(); err == nil {
		t.Error("a database with two names is taken")
	} else {
		contains(t, err.Error(), h.path("state/ocipd.db"), "2 names")
	}
	if err := errors.Join(os.Remove(h.path("another name")), os.Rename(h.path("state/ocipd.db"), h.path("real.db")), os.Symlink(h.path("real.db"), h.path("state/ocipd.db"))); err != nil {
		t.Fatal(err)
	}
	h.start()
}
