package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// found lists the files below a directory, without their content.
func found(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A start without the database that was there says so, begins no other log, and says so
// again; after the file is back it continues.
func TestLostDatabaseIsNotBegunAnew(t *testing.T) {
	lost := map[string][]string{
		"checkpoints are there":         {"ocipd.db", "ocipd.db-wal"},
		"the write-ahead log was left":  {"ocipd.db", "audit-checkpoints.jsonl"},
		"the signing key alone is left": {"ocipd.db", "ocipd.db-wal", "audit-checkpoints.jsonl"},
	}
	// An empty file is left by somebody who emptied the database, or by a start that was
	// killed before its checks.
	for i := range 2 * len(lost) {
		name, empty := slices.Sorted(maps.Keys(lost))[i/2], i%2 == 1
		without := lost[name]
		t.Run(fmt.Sprint(name, ", empty file ", empty), func(t *testing.T) {
			h := build(t, acme)
			h.agent("@acme/alice").dispatch("telegram:dave", "Hello", fresh(nil))
			waitFor(t, "a checkpoint is outside the log", func() bool {
				notes, err := checkpoints.Read(h.path("state/audit-checkpoints.jsonl"))
				return err == nil && len(notes) > 0
			})
			copied := h.path("copy")
			copyState(t, h, copied)
			h.stop()
			// As a killed daemon leaves it.
			if err := errors.Join(os.RemoveAll(h.path("state")), os.Rename(copied, h.path("state"))); err != nil {
				t.Fatal(err)
			}
			aside := t.TempDir()
			for _, file := range without {
				if err := os.Rename(h.path("state/"+file), filepath.Join(aside, file)); err != nil {
					t.Fatal(err)
				}
			}
			if empty {
				if err := os.WriteFile(h.path("state/ocipd.db"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := found(t, h.path("state"))
			var said string
			for range 2 {
				err := h.tryStart()
				if err == nil {
					t.Fatal("it begins a new log")
				}
				if said != "" && name != "the signing key alone is left" && err.Error() != said {
					t.Errorf("at the second start it says %v, and said %s", err, said)
				}
				said = err.Error()
				if after := found(t, h.path("state")); !slices.Equal(after, before) {
					t.Errorf("it leaves behind %q, and there were %q", after, before)
				}
			}
			if name != "the signing key alone is left" {
				contains(t, said, "cannot find the database "+h.path("state/ocipd.db"), "put it back", "ocipd restore --new-log")
			}
			for _, file := range without {
				if err := os.Rename(filepath.Join(aside, file), h.path("state/"+file)); err != nil {
					t.Fatal(err)
				}
			}
			h.start()
			if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}); len(r) != 1 {
				t.Errorf("%d messages are on record, want 1", len(r))
			}
		})
	}
}

// waitFor waits until a condition is true.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// copyState copies the state of a running daemon, as after its death, without the files that come
// and go meanwhile: the index, which the daemon makes from the log, and what is half-written.
func copyState(t testing.TB, h *harness, to string) {
	t.Helper()
	state := os.DirFS(h.path("state"))
	err := fs.WalkDir(state, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case strings.HasPrefix(e.Name(), "ocipd.index"), strings.HasSuffix(e.Name(), ".part"):
			return nil
		}
		data, err := fs.ReadFile(state, path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if strings.HasSuffix(path, ".pub") {
			mode = 0o644
		}
		return os.WriteFile(filepath.Join(to, path), data, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A daemon that cannot get another's database leaves nothing beside it, and no key.
func TestSecondDaemonLeavesNothing(t *testing.T) {
	first := build(t, acme)
	second := plot(t, acme)
	if err := errors.Join(os.Mkdir(second.path("state"), 0o700), os.Symlink(first.path("state/ocipd.db"), second.path("state/ocipd.db"))); err != nil {
		t.Fatal(err)
	}
	// The index is made in the background, as the first checkpoint is kept.
	beside := func() []string {
		return slices.DeleteFunc(found(t, first.path("state")), func(name string) bool { return strings.HasPrefix(name, "ocipd.index.db") })
	}
	var before []string
	waitFor(t, "the first checkpoint is kept", func() bool {
		before = beside()
		return slices.Contains(before, "keys/checkpoint.newest") && !slices.Contains(before, "keys/checkpoint.newest.part")
	})
	err := second.tryStart()
	if err == nil {
		t.Fatal("two daemons have one database")
	}
	contains(t, err.Error(), "another daemon is using the database", second.path("state/ocipd.db"))
	if left := found(t, second.path("state")); !slices.Equal(left, []string{".", "ocipd.db"}) {
		t.Errorf("it leaves %q", left)
	}
	if after := beside(); !slices.Equal(after, before) {
		t.Errorf("beside the first one are %q, and were %q", after, before)
	}
	first.agent("@acme/alice").dispatch("telegram:dave", "Hello", fresh(nil))
}

// Sockets from a service manager that another setting leaves unused are logged as a
// warning, with advice, and shown: connections to them wait.
func TestUnusedSocketsAreSaid(t *testing.T) {
	h := plot(t, acme)
	if err := os.Mkdir(h.path("passed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kernel", "operator"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.path("passed/" + name + ".sock"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		h.passed = append(h.passed, f)
	}
	logged := h.observe()
	h.start()
	t.Cleanup(h.stop)
	said := logged.FilterLevelExact(zap.ErrorLevel).All()
	if len(said) != 1 {
		t.Fatalf("it says %v", said)
	}
	contains(t, said[0].Message, "passed are not used", "never answered")
	fields := said[0].ContextMap()
	if fields["passed"] != h.path("passed/kernel.sock") || fields["configured"] != h.path("run/kernel.sock") {
		t.Errorf("it names %v", fields)
	}
	contains(t, fields["by"].(string), "ipc.socket")
	contains(t, fields["toDo"].(string), "take that setting away", "ocipd.socket")
	if s := h.status(); s.UnusedSocket != h.path("passed/kernel.sock") || s.Socket != h.path("run/kernel.sock") {
		t.Errorf("status shows %q, unused %q", s.Socket, s.UnusedSocket)
	}
}

// TestStopSaysWhatIsLeft stops with the time running out, with an abort, or with an abort
// and nothing to wait for.
func TestStopSaysWhatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name    string
		waiting int
		aborted bool
	}{
		{"nothing is under way", 0, false}, {"aborted, and nothing is under way", 0, true},
		{"the time runs out", 2, false}, {"aborted", 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			limit := "50ms"
			if tc.aborted {
				limit = "1h"
			}
			h := plot(t, acme+"drain_timeout: "+limit+"\nhooks: {answer: 1h, apps: {\"@acme/guard\": {required: true}}}\n")
			logged := h.observe()
			d, err := h.make()
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx, nil) }()
			waitFor(t, "it answers", func() bool { return logged.FilterMessage("ready").Len() > 0 })
			if tc.waiting > 0 {
				guard := h.interceptor("@acme/guard", true)
				alice := h.agent("@acme/alice")
				for _, session := range []string{"telegram:dave", "telegram:carol"} {
					go func() {
						_ = alice.Call(context.WithoutCancel(t.Context()), "message.dispatch", map[string]any{"sessionKey": session, "content": "Hello"}, nil)
					}()
				}
				for range tc.waiting {
					guard.next("hook:message_sending")
				}
			}
			stop()
			if tc.aborted {
				d.Abort()
			}
			err = <-ended
			if want := tc.aborted && tc.waiting > 0; errors.Is(err, daemon.ErrAborted) != want || !want && err != nil {
				t.Errorf("it ends with %v", err)
			} else if want {
				contains(t, err.Error(), "were not answered: 2")
			}
			all := logged.All()
			last := all[len(all)-1]
			if last.Message != "stopped" || last.ContextMap()["unanswered"] != int64(tc.waiting) {
				t.Errorf("its last line is %s %v", last.Message, last.ContextMap())
			}
			left := logged.FilterMessageSnippet("left unanswered").All()
			if (len(left) > 0) != (tc.waiting > 0) || len(left) > 0 && left[0].ContextMap()["requests"] != int64(tc.waiting) {
				t.Errorf("of what is left it says %v", left)
			}
		})
	}
}

// onDisk is a folder whose state is on a small disk.
func onDisk(t *testing.T, yaml, size string) *harness {
	t.Helper()
	h := plot(t, yaml)
	h.mounts(size)
	return h
}

// mounts gives the state a small disk.
func (h *harness) mounts(size string) {
	h.t.Helper()
	if err := os.Mkdir(h.path("state"), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", h.path("state"), "tmpfs", 0, "mode=0700,size="+size); err != nil {
		h.t.Skip("cannot mount a small disk:", err)
	}
	h.t.Cleanup(func() {
		if err := syscall.Unmount(h.path("state"), syscall.MNT_DETACH); err != nil {
			h.t.Error("cannot unmount the small disk:", err)
		}
	})
}

// A daemon starts on a full disk with the space that it has reserved, and people can decide
// about pending requests. Without such space it names the full disk.
func TestStartOnAFullDisk(t *testing.T) {
	withDisk(t, func(t *testing.T) {
		h := onDisk(t, acme+"store: {warn_free_bytes: 20971520, min_free_bytes: 8388608, reserve_bytes: 4194304}\n", "40m")
		h.start()
		alice := h.agent("@acme/alice")
		held := alice.held("COMMITMENT_REQUIRES_HUMAN", "telegram:dave", promise, fresh(nil))
		h.stop()
		if _, err := os.Stat(h.path("state/ocipd.db.reserve")); err != nil {
			t.Fatal(err)
		}
		h.leaveFree(0)
		logged := h.observe()
		h.start()
		if n := logged.FilterMessageSnippet("space kept for the last records is in use").Len(); n != 1 {
			t.Errorf("that the reserve is in use is said %d times", n)
		}
		h.disk("refuse")
		h.decides("deny", held.ApprovalID)
		h.stop()
		if err := os.Remove(h.path("state/ocipd.db.reserve")); err == nil {
			t.Error("the reserve is back on a full disk")
		}
		h.leaveFree(0)
		err := h.tryStart()
		if err == nil {
			h.stop()
			t.Fatal("it starts on a disk without any space")
		}
		contains(t, err.Error(), h.path("state"), "is full", "free some space and start again")
		h.freeDisk()
		h.start()
		if s := h.shown(held.ApprovalID); s.State != "denied" {
			t.Errorf("the held message is %s", s.State)
		}
		h.stop()
	})
}

// An unwritable state directory is named, with advice, and nothing is tried in it.
func TestStartOnAReadOnlyDisk(t *testing.T) {
	withDisk(t, func(t *testing.T) {
		h := onDisk(t, acme, "200m")
		h.start()
		h.stop()
		remount := func(flags uintptr) {
			t.Helper()
			if err := syscall.Mount("", h.path("state"), "", syscall.MS_REMOUNT|flags, ""); err != nil {
				t.Fatal(err)
			}
		}
		remount(syscall.MS_RDONLY)
		err := h.tryStart()
		if err == nil {
			t.Fatal("it starts")
		}
		contains(t, err.Error(), "cannot write to the directory "+h.path("state")+": ", "mounted read-only", "mount it read-write", "store.url")
		remount(0)
		// Another directory of the daemon's has its own key.
		if err := os.Mkdir(h.path("elsewhere"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", h.path("elsewhere"), "tmpfs", syscall.MS_RDONLY, "mode=0700"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Unmount(h.path("elsewhere"), syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		h.configure(acme + "audit: {keys: " + h.path("elsewhere/not/there") + "}\n")
		if err := h.tryStart(); err == nil {
			t.Error("it starts")
		} else {
			contains(t, err.Error(), "cannot write to the directory "+h.path("elsewhere")+": ", "audit.keys")
		}
		h.configure(acme)
		h.start()
		h.stop()
	})
}

// TestStartWarnsOfWriters lets others write files that determine decisions.
func TestStartWarnsOfWriters(t *testing.T) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	h.configure(acme + "policy: {path: " + h.path("policy") + ", data: {cross_org: true}}\napprovals: {allowed_signers: " + h.path("signers") + "}\n")
	if err := os.WriteFile(h.path("signers"), []byte("# nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(os.Chmod(h.path("ocipd.yaml"), 0o666), os.Chmod(h.path("policy"), 0o777), os.Chmod(h.path("policy/cross_org.rego"), 0o606), os.Chmod(h.path("signers"), 0o602)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ocipd.yaml can be written by everybody (mode 0666)", "signers can be written by everybody (mode 0602)", "policy can be written by everybody (mode 0777)",
		"policy/cross_org.rego can be written by everybody (mode 0606)",
	}
	if said := warnings(); !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}

// A daemon gives back the memory of its start if the process is its own: among others it would
// have them wait for its collections.
func TestMemoryOfTheStartIsGivenBack(t *testing.T) {
	forced := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	for _, process := range []*daemon.Process{{}, nil} {
		h := plot(t, acme)
		h.process = process
		before := forced()
		h.start()
		h.stop() // it waits until memory is given back
		if gave := forced() > before; gave != (process != nil) {
			t.Errorf("with a process of its own: %t; memory was given back: %t", process != nil, gave)
		}
	}
}
