package exchange

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Two first messages of one session are decided at once, each for another agent. The
// session is that agent's whose message was committed first, in memory as in the store.
func TestFirstMessagesOfASessionAtOnce(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	known := newSessions(s)
	first := func(agent string) (*store.Change, *bool) {
		t.Helper()
		c := &store.Change{Records: []*audit.Record{{ID: "of " + agent, ActionType: audit.ActionDelivery}}}
		fresh, err := known.Use(t.Context(), "chat:new", agent, "", time.Now(), c)
		if err != nil || *fresh {
			t.Fatalf("for %s the session is new before it is durable: %t, %v", agent, *fresh, err)
		}
		return c, fresh
	}
	alice, begunByAlice := first("alice")
	bob, begunByBob := first("bob")
	for _, c := range []*store.Change{bob, alice} {
		if _, err := s.Commit(c); err != nil {
			t.Fatal(err)
		}
	}
	if *begunByAlice || !*begunByBob {
		t.Errorf("the session is begun by alice's message %t, by bob's %t, want bob's alone, which was committed first", *begunByAlice, *begunByBob)
	}
	fromStore := newSessions(s)
	for where, sessions := range map[string]*Sessions{"in memory": known, "in the store": fromStore} {
		if agent, err := sessions.Agent(t.Context(), "chat:new"); agent != "bob" || err != nil {
			t.Errorf("%s it is of %q, %v", where, agent, err)
		}
	}
}
