package config

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/config/running"
)

// left is the place file of a test's daemon.
func left(file, at string) *running.Daemon {
	return &running.Daemon{Config: file, Places: map[string]string{
		"ipc.socket": at + "/k.sock", "store.url": at + "/x.db", "audit.mirror": at + "/a.jsonl", "audit.keys": at + "/k", "audit.checkpoints": at + "/c",
	}}
}

// A command finds a daemon by flags and the environment, by a valid file, and beside a
// broken file by the daemon's place file; never by a broken file.
func TestLocate(t *testing.T) {
	const good = "ipc:\n  socket: /r/k.sock\nstore:\n  url: /s/x.db\naudit:\n  mirror: /m/a.jsonl\n  keys: /k\n  checkpoints: /c\n"
	const said, live, none = "/r/k.sock /s/x.db /m/a.jsonl /k /c", "/live/k.sock /live/x.db /live/a.jsonl /live/k /live/c", "? ? ? ? ?"
	for _, tt := range []struct {
		name, text string
		// running are the daemons that run with the file.
		running []string
		env     []string
		flag    string
		broken  bool
		// want are the places; a question mark is an uncertain one.
		want string
	}{
		{"good", good, nil, nil, "", false, said},
		{"good, and its daemon is elsewhere until a restart", good, []string{"/live"}, nil, "", false, said},
		{"unknown key", "polcy: 1\n" + good, []string{"/live"}, nil, "", true, live},
		{"unknown key, and no daemon", "polcy: 1\n" + good, nil, nil, "", true, none},
		{"nothing of it, and no daemon", "polcy: 1\n", nil, nil, "", true, none},
		{"two daemons", "polcy: 1\n" + good, []string{"/live", "/other"}, nil, "", true, none},
		{"a variable", "polcy: 1\n" + good, []string{"/live"}, []string{"OCIPD_IPC_SOCKET=/v/k", "OCIPD_AUDIT_KEYS=/v"}, "", true, "/v/k /live/x.db /live/a.jsonl /v /live/c"},
		{"a variable in place of what is in doubt", "agents: [\n", nil, []string{"OCIPD_IPC_SOCKET=/v/k", "OCIPD_AUDIT_KEYS="}, "", true, "/v/k ? ?  ?"},
		{"the apps' variable", "polcy: 1\n" + good, []string{"/live"}, []string{"OCIPD_IPC_SOCKET=/v/k", "OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "", true, "/o/k /live/x.db /live/a.jsonl /live/k /live/c"},
		{"a flag", "polcy: 1\n" + good, []string{"/live"}, []string{"OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "/f/k", true, "/f/k /live/x.db /live/a.jsonl /live/k /live/c"},
		{"a flag in place of what is in doubt", "ipc: [", nil, nil, "/f/k", true, "/f/k ? ? ? ?"},
		{"a broken variable", good, nil, []string{"OCIPD_LOG_LEVEL=loud"}, "", true, said},
		{"a broken variable, and a daemon", good, []string{"/live"}, []string{"OCIPD_LOG_LEVEL=loud"}, "", true, said},
		{"cut in the value", "polcy: 1\nipc:\n  socket: /r/k.so", nil, nil, "", true, none},
		{"cut in quotes", "ipc:\n  socket: \"/r/k.so", nil, nil, "", true, none},
		{"no YAML", "agents: {\n" + good, nil, nil, "", true, none},
		{"two documents", "ipc:\n  socket: /r/k.sock\n---\nipc:\n  socket: /r/l.sock\n", nil, nil, "", true, none},
		{"twice", "ipc:\n  socket: /r/k.sock\nipc:\n  socket: /r/l.sock\n", nil, nil, "", true, none},
		{"no UTF-8", "ipc:\n  socket: /r/k.sock\n# \xff\n", nil, nil, "", true, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run := t.TempDir()
			opts := Options{File: write(t, t.TempDir(), "ocipd.yaml", tt.text), Env: append(tt.env, "XDG_RUNTIME_DIR="+run)}
			for i, at := range append(tt.running, "/of-another-file") {
				file := opts.File
				if i == len(tt.running) {
					file += ".other"
				}
				leave(t, run, left(file, at))
			}
			if tt.flag != "" {
				opts.Flags = map[string]any{"ipc.socket": tt.flag}
			}
			c, err := Locate(opts)
			if c == nil || (err != nil) != tt.broken {
				t.Fatalf("got %v, %v", c, err)
			}
			if got := located(t, c); got != tt.want || c.File != opts.File {
				t.Errorf("%s: got %q, want %q", c.File, got, tt.want)
			}
		})
	}
	if c, err := Locate(Options{File: t.TempDir() + "/none"}); c != nil || err == nil {
		t.Errorf("a file that was named and is not there: %v, %v", c, err)
	}
	if c, err := Locate(Options{Env: []string{"HOME=" + t.TempDir()}}); c == nil || err != nil {
		t.Errorf("no file: %v, %v", c, err)
	}
	keys := slices.Collect(maps.Keys(Default().places()))
	if c, err := Locate(Options{Env: []string{"HOME=" + t.TempDir(), "OCIPD_LOG_LEVEL=loud"}}); c == nil || err == nil || c.Certain(keys...) != nil {
		t.Errorf("no file and a broken variable: %v, %v", c, err)
	}
	if c, err := Locate(Options{File: t.TempDir(), Env: []string{"XDG_RUNTIME_DIR=" + t.TempDir()}}); c == nil || err == nil || c.Certain(socketKey) == nil {
		t.Errorf("a directory for a file: %v, %v", c, err)
	}
}

func leave(t *testing.T, run string, r *running.Daemon) (file string, remove func() error) {
	t.Helper()
	remove, err := r.Leave(filepath.Join(run, "openclawos/running"))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := filepath.Glob(run + "/openclawos/running/*")
	if err != nil || len(newest) == 0 {
		t.Fatal(newest, err)
	}
	t.Cleanup(func() { _ = remove() })
	return newest[0], remove
}

// located formats the places of a configuration, with a question mark for an uncertain one.
func located(t *testing.T, c *Config) string {
	t.Helper()
	var got []string
	for _, key := range []string{"ipc.socket", "store.url", "audit.mirror", "audit.keys", "audit.checkpoints"} {
		value := *c.places()[key]
		if err := c.Certain(key); err != nil {
			if value != "" || !strings.HasPrefix(err.Error(), "cannot tell what "+key+" is in "+c.File+": ") {
				t.Errorf("%q and %v", value, err)
			}
			value = "?"
		}
		got = append(got, value)
	}
	return strings.Join(got, " ")
}

// A place file counts only if a living daemon of this user left it.
func TestLeft(t *testing.T) {
	const none, live = "? ? ? ? ?", "/live/k.sock /live/x.db /live/a.jsonl /live/k /live/c"
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, file string, remove func() error)
		want string
	}{
		{"as it is", func(*testing.T, string, func() error) {}, live},
		{"removed", func(t *testing.T, file string, remove func() error) {
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(file); err == nil {
				t.Error("it is still there")
			}
		}, none},
		{"a copy", func(t *testing.T, file string, remove func() error) {
			data, err := os.ReadFile(file)
			if err != nil || remove() != nil || os.WriteFile(file, data, 0o600) != nil {
				t.Fatal(err)
			}
		}, none},
		{"others can read it", func(t *testing.T, file string, _ func() error) {
			if err := os.Chmod(file, 0o640); err != nil {
				t.Fatal(err)
			}
		}, none},
		{"a link", func(t *testing.T, file string, _ func() error) {
			elsewhere := filepath.Join(t.TempDir(), "x")
			if os.Rename(file, elsewhere) != nil || os.Symlink(elsewhere, file) != nil {
				t.Fatal("cannot make a link")
			}
		}, none},
		{"a pipe", func(t *testing.T, file string, remove func() error) {
			if remove() != nil || syscall.Mkfifo(file, 0o600) != nil {
				t.Fatal("cannot make a pipe")
			}
		}, none},
		{"no JSON", func(t *testing.T, file string, _ func() error) {
			if err := os.Truncate(file, 20); err != nil {
				t.Fatal(err)
			}
		}, none},
		{"a place is missing", func(t *testing.T, file string, _ func() error) {
			f, err := os.OpenFile(file, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte(strings.Replace(string(data), "ipc.socket", "ipc.sockxx", 1)), 0); err != nil {
				t.Fatal(err)
			}
		}, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run := t.TempDir()
			opts := Options{File: write(t, t.TempDir(), "ocipd.yaml", "polcy: 1\n"), Env: []string{"XDG_RUNTIME_DIR=" + run}}
			file, remove := leave(t, run, left(opts.File, "/live"))
			if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
				t.Fatal(info.Mode(), err)
			}
			tt.do(t, file, remove)
			c, err := Locate(opts)
			if c == nil || err == nil {
				t.Fatal(c, err)
			}
			if got := located(t, c); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

const leavesIn = "OCIPD_TEST_LEAVES_IN"

// TestLeftByTheDead has another process publish its places and be killed.
func TestLeftByTheDead(t *testing.T) {
	if run := os.Getenv(leavesIn); run != "" {
		leave(t, run, left(os.Getenv("CONFIG"), "/live"))
		if _, err := os.Stdout.WriteString("left"); err != nil {
			t.Fatal(err)
		}
		// Until it is killed. The runtime ends a process in which nothing can ever happen.
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	run, file := t.TempDir(), write(t, t.TempDir(), "ocipd.yaml", "polcy: 1\n")
	cmd := exec.Command(os.Args[0], "-test.run=^TestLeftByTheDead$")
	cmd.Env = append(os.Environ(), leavesIn+"="+run, "CONFIG="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 4)); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	opts := Options{File: file, Env: []string{"XDG_RUNTIME_DIR=" + run}}
	c, _ := Locate(opts)
	if err := c.Certain(socketKey); err != nil {
		t.Errorf("while it lives: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if c, _ = Locate(opts); c.Certain(socketKey) == nil {
		t.Errorf("when it is dead: %s", c.IPC.Socket)
	}
	// The next daemon replaces it.
	leave(t, run, left(file, "/live"))
	if c, _ = Locate(opts); c.IPC.Socket != "/live/k.sock" {
		t.Errorf("the next one: %v", c.Certain(socketKey))
	}
}

// A relative and an absolute name of a configuration file mean the same file.
func TestLeftWithARelativeName(t *testing.T) {
	run, dir := t.TempDir(), t.TempDir()
	write(t, dir, "ocipd.yaml", "polcy: 1\n")
	t.Chdir(dir)
	leave(t, run, left("ocipd.yaml", "."))
	c, _ := Locate(Options{File: dir + "/ocipd.yaml", Env: []string{"XDG_RUNTIME_DIR=" + run}})
	if c.IPC.Socket != dir+"/k.sock" {
		t.Errorf("%q, %v", c.IPC.Socket, c.Certain(socketKey))
	}
}

// A variable wins over the file, the apps' own over ocipd's, and a flag over all.
func TestSocketPrecedence(t *testing.T) {
	file := write(t, t.TempDir(), "ocipd.yaml", "ipc: {socket: /file/k}\n")
	for _, tt := range []struct {
		env          []string
		flag         any
		want, source string
	}{
		{nil, nil, "/file/k", file + ":1"},
		{[]string{"OCIPD_IPC_SOCKET=/own/k"}, nil, "/own/k", "OCIPD_IPC_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k"}, nil, "/apps/k", "OPENCLAWOS_KERNEL_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k", "OCIPD_IPC_SOCKET=/own/k"}, nil, "/apps/k", "OPENCLAWOS_KERNEL_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET="}, nil, "/file/k", file + ":1"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k"}, "/flag/k", "/flag/k", "flag ipc.socket"},
	} {
		c, err := Load(Options{File: file, Env: tt.env, Flags: map[string]any{"ipc.socket": tt.flag}})
		if err != nil {
			t.Fatal(err)
		}
		env := environ(tt.env)
		if got := SocketPath(c, func(name string) string { return env[name] }); got != tt.want || c.Source("ipc.socket") != tt.source {
			t.Errorf("%q and flag %v: %s from %s, want %s from %s", tt.env, tt.flag, got, c.Source("ipc.socket"), tt.want, tt.source)
		}
	}
	_, err := Load(Options{File: file, Env: []string{"OPENCLAWOS_KERNEL_SOCKET=/x/operator.sock"}})
	if err == nil || !strings.HasPrefix(err.Error(), "OPENCLAWOS_KERNEL_SOCKET: ipc.socket: operator.sock is the name") {
		t.Errorf("the operators' socket as the apps': %v", err)
	}
}
