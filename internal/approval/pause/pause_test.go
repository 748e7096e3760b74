package pause

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// The widest scope that stops a message is named, a change holds from its commit on, and a change
// that cannot be recorded has no effect.
func TestPauses(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	change := func(scope string, pause bool, want bool) {
		t.Helper()
		c := &store.Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionSecurity}}}
		r, err := p.Change(store.Paused{Scope: scope, At: time.Unix(1, 0).UTC(), By: "uid:1"}, pause, c, s.Commit)
		if err != nil || r.Changed != want {
			t.Errorf("%s, paused %v: %+v, %v", scope, pause, r, err)
		}
	}
	expect := func(channel, from, to, want string) {
		t.Helper()
		if got := p.Of(channel, from, to); got != want {
			t.Errorf("from %q to %q through %q: %q, want %q", from, to, channel, got, want)
		}
	}
	expect("irc", "alice", "bob", "")
	change(api.PausedChannel("irc"), true, true)
	expect("irc", "alice", "bob", api.PausedChannel("irc"))
	expect("mail", "alice", "bob", "")
	change(api.PausedAgent("bob"), true, true)
	change(api.PausedAgent("bob"), true, false)
	expect("irc", "alice", "bob", api.PausedAgent("bob"))
	expect("", "", "", "")
	change(api.PausedAll, true, true)
	expect("", "", "", api.PausedAll)
	lost := errors.New("lost")
	if _, err := p.Change(store.Paused{Scope: api.PausedAll}, false, new(store.Change), func(*store.Change) (store.Receipt, error) { return store.Receipt{}, lost }); !errors.Is(err, lost) {
		t.Error(err)
	}
	expect("", "", "", api.PausedAll)
	if again, err := Load(t.Context(), s); err != nil || len(again.List()) != 3 {
		t.Errorf("%+v, %v", again, err)
	}
	change(api.PausedAll, false, true)
	if reason, paused := p.Reason("", "bob"); !paused || reason != "sending is paused for agent bob" {
		t.Error(reason, paused)
	}
}
