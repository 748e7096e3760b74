package daemon_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestExposed(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(dir string) error
		// want are paths below the directory, each with what is said of it.
		want []string
	}{
		{"as it should be", func(string) error { return nil }, nil},
		{"file of everybody's", func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o646) }, []string{"a/b/file can be written by everybody (mode 0646)"}},
		{"file of the group's", func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o664) }, []string{"a/b/file can be written by its group (mode 0664)"}},
		{"directories above it", func(dir string) error {
			return errors.Join(os.Chmod(dir+"/a/b", 0o777), os.Chmod(dir+"/a", 0o757))
		}, []string{"a can be written by everybody (mode 0757)", "a/b can be written by everybody (mode 0777)"}},
		{"directory with the sticky bit", func(dir string) error { return os.Chmod(dir+"/a", fs.ModeSticky|0o777) }, nil},
		{"directory beside it", func(dir string) error { return os.Chmod(dir+"/c", 0o777) }, nil},
		{"where a link leads", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b/file", dir+"/c/file"), os.Symlink("../../c/file", dir+"/a/b/file"), os.Chmod(dir+"/c", 0o777))
		}, []string{"c can be written by everybody (mode 0777)"}},
		{"where a link was made", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b", dir+"/c/b"), os.Symlink(dir+"/c/b", dir+"/a/b"), os.Chmod(dir+"/a", 0o777))
		}, []string{"a can be written by everybody (mode 0777)"}},
		{"somebody else's", func(dir string) error { return os.Lchown(dir+"/a/b", nobody, -1) }, []string{"a/b belongs to user 65534"}},
		{"somebody else's link", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b/file", dir+"/c/file"), os.Symlink(dir+"/c/file", dir+"/a/b/file"), os.Lchown(dir+"/a/b/file", nobody, -1))
		}, []string{"a/b/file belongs to user 65534"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.HasPrefix(test.name, "somebody else's") && os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(os.MkdirAll(dir+"/a/b", 0o700), os.Mkdir(dir+"/c", 0o700), os.WriteFile(dir+"/a/b/file", nil, 0o600), test.do(dir))
			if err != nil {
				t.Fatal(err)
			}
			list, err := daemon.Exposed(dir + "/a/b/file")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list {
				// What is above is the machine's.
				if below, ours := strings.CutPrefix(list[i].Path, dir+"/"); ours {
					got = append(got, below+" "+list[i].String())
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	dir := t.TempDir()
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/loop", dir + "/none"} {
		if list, err := daemon.Exposed(path); err == nil {
			t.Errorf("%s: got %v and no error", path, list)
		}
	}
}

// TestStartWarnsOfWriters has others able to write what the daemon decides by.
func TestStartWarnsOfWriters(t *testing.T) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &house{t: t, dir: dir}
	h.configure(acme + "policy: {path: " + h.path("policy") + ", data: {cross_org: true}}\n")
	if err := os.CopyFS(h.path("policy"), os.DirFS("../../configs/policies")); err != nil {
		t.Fatal(err)
	}
	warnings := func() (said []string) {
		t.Helper()
		core, logged := observer.New(zapcore.WarnLevel)
		cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml"), Flags: map[string]any{
			"ipc.socket": h.path("run/kernel.sock"), "store.url": h.path("state/ocipd.db"), "approvals.notify.desktop": false,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if h.daemon, err = daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: zap.New(core)}); err != nil {
			t.Fatal(err)
		}
		if err := h.daemon.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.stop()
		for _, entry := range logged.All() {
			if strings.HasPrefix(entry.Message, "others can change") && strings.Contains(entry.Message, dir) {
				said = append(said, strings.TrimPrefix(entry.Message, "others can change what is let through: "+dir+"/"))
			}
		}
		return said
	}
	files, err := filepath.Glob(h.path("policy/*.rego"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	err = os.Chmod(h.path("policy"), 0o700)
	for _, file := range files {
		err = errors.Join(err, os.Chmod(file, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if said := warnings(); len(said) > 0 {
		t.Errorf("with nothing wrong it says %q", said)
	}
	if err := errors.Join(os.Chmod(h.path("ocipd.yaml"), 0o666), os.Chmod(h.path("policy"), 0o777), os.Chmod(h.path("policy/cross_org.rego"), 0o606)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ocipd.yaml can be written by everybody (mode 0666)", "policy can be written by everybody (mode 0777)",
		"policy/cross_org.rego can be written by everybody (mode 0606)",
	}
	if said := warnings(); !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}
