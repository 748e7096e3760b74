package configfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/config"
)

// made is a configuration in a file.
func made(t *testing.T, text string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ocipd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return load(t, file)
}

func load(t *testing.T, file string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func again(file string, flags map[string]any) (*config.Config, error) {
	return config.Load(config.Options{File: file, Flags: flags})
}

func person(user string, sessions ...string) *config.Contact {
	return &config.Contact{Kind: "person", UserID: user, Accepts: []string{"public"}, Sessions: sessions}
}

func text(t *testing.T, file string) string {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestDirectory(t *testing.T) {
	cfg := made(t, "# mine\nocip: {max_rounds: 3}\n")
	f, err := OpenDirectory(cfg)
	if err != nil || !f.Unnamed {
		t.Fatalf("%+v, %v", f, err)
	}
	f.Add(person("dave", "irc:dave"))
	f.Add(person("erin", "irc:erin", "sms:erin"))
	if err := f.Write(again); err != nil {
		t.Fatal(err)
	}
	f.Close()
	cfg = load(t, cfg.File)
	if cfg.Listed.Len() != 2 || cfg.DirectoryFile != DirectoryName || !strings.HasPrefix(text(t, cfg.File), "# mine\n") || !strings.HasPrefix(text(t, f.Path), DirectoryHead) {
		t.Errorf("%d entries in\n%s%s", cfg.Listed.Len(), text(t, cfg.File), text(t, f.Path))
	}
	if info, err := os.Stat(cfg.File); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the configuration has mode %v, %v", info.Mode(), err)
	}

	f, err = OpenDirectory(cfg)
	if err != nil || f.Unnamed {
		t.Fatalf("%+v, %v", f, err)
	}
	defer f.Close()
	if c := f.Attach("sms:dave", func(c *config.Contact) bool { return c.UserID == "dave" }); c == nil || len(c.Sessions) != 2 {
		t.Errorf("attached to %+v", c)
	}
	if f.Attach("sms:x", func(*config.Contact) bool { return false }) != nil || f.Detach("irc:nobody") || !f.Detach("irc:erin") || !f.Detach("sms:erin") {
		t.Error("it attaches to nobody, or detaches nothing")
	}
	if err := f.Write(again); err != nil {
		t.Fatal(err)
	}
	if listed := load(t, cfg.File).Listed; listed.Len() != 1 || strings.Join(listed.At(0).Sessions, " ") != "irc:dave sms:dave" {
		t.Errorf("there stays %+v", listed)
	}
}

// An invalid result is not written, and the error names the file.
func TestDirectoryIsTried(t *testing.T) {
	cfg := made(t, "")
	f, err := OpenDirectory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Add(person("carol", "irc:carol"))
	if err := f.Write(again); err != nil {
		t.Fatal(err)
	}
	f.Close()
	before := text(t, f.Path)
	if f, err = OpenDirectory(load(t, cfg.File)); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Add(person("dave", "irc:dave"))
	f.Add(person("erin", "irc:dave"))
	err = f.Write(again)
	if problems, ok := errors.AsType[config.Errors](err); !ok || problems[0].File != f.Path {
		t.Errorf("it ends with %v", err)
	}
	if got := text(t, f.Path); got != before {
		t.Errorf("the file is\n%s", got)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(f.Path), ".ocipd-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestDeclare(t *testing.T) {
	cfg := made(t, `agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme}
access:
  apps:
    "@acme/telegram": {channels: [telegram]} # ours
`)
	for _, p := range []Proposal{
		{App: "@acme/telegram", Name: "channels", Values: []string{"telegram", "sms"}},
		{App: "@acme/filter", Name: "intercepts", Values: []string{"*"}},
		{Agent: "alice", Name: "uid", Values: []string{"1000"}},
	} {
		if err := Declare(cfg, &p); err != nil {
			t.Fatal(err)
		}
	}
	now := load(t, cfg.File)
	if got := now.Access.Apps["@acme/telegram"].Channels; len(got) != 2 || now.Access.Apps["@acme/filter"].Intercepts[0] != "*" || now.Agents[0].UID == nil || !strings.Contains(text(t, cfg.File), "# ours") {
		t.Errorf("it is\n%s", text(t, cfg.File))
	}
	before := text(t, cfg.File)
	if err := Edit(cfg, func(text []byte) ([]byte, error) { return append(text, "\nnonsense: [\n"...), nil }); err == nil || text(t, cfg.File) != before {
		t.Errorf("nonsense is written: %v", err)
	}
}

// If an administrator writes somebody else's files, their owners keep them and can read them.
func TestOwnerStays(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root writes into files of others")
	}
	listed := filepath.Join(t.TempDir(), "who.jsonl")
	if err := os.WriteFile(listed, []byte(DirectoryHead), 0o640); err != nil {
		t.Fatal(err)
	}
	cfg := made(t, "directory_file: "+listed+"\n")
	for _, file := range []string{cfg.File, listed} {
		if err := os.Chown(file, 64001, 64002); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenDirectory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Add(person("dave", "irc:dave"))
	err = errors.Join(f.Write(again), Edit(cfg, func(text []byte) ([]byte, error) { return append(text, "# more\n"...), nil }))
	if err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{cfg.File: "# more", listed: "irc:dave"} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if is := info.Sys().(*syscall.Stat_t); is.Uid != 64001 || is.Gid != 64002 || info.Mode().Perm() != 0o640 || !strings.Contains(text(t, file), says) {
			t.Errorf("%s is of %d:%d, with mode %s, and says %q", file, is.Uid, is.Gid, info.Mode(), text(t, file))
		}
	}
}

// Two commands that write at once do not undo each other's changes, and a pipe does not block them.
func TestEditsComeOneByOne(t *testing.T) {
	t.Parallel()
	cfg := made(t, "# mine\n")
	var both sync.WaitGroup
	for i := range 8 {
		both.Go(func() {
			if err := Edit(cfg, func(text []byte) ([]byte, error) { return fmt.Appendf(text, "# line %d\n", i), nil }); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if got := text(t, cfg.File); strings.Count(got, "# line") != 8 {
		t.Errorf("it says %q", got)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(&config.Config{File: cfg.File, DirectoryFile: pipe}); !errors.Is(err, durable.ErrNoFile) {
		t.Errorf("a pipe: %v", err)
	}
}
