package exchangestate

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

func agentOf(id, tenant string) directory.Agent {
	return directory.Agent{Agent: ocip.Agent{ID: id, Identity: ocip.Identity{InstanceID: "agent-" + id + "-1", TenantID: tenant}}}
}

func directoryOf(t *testing.T, agents ...directory.Agent) *directory.Directory {
	t.Helper()
	d, err := directory.New(&directory.Config{Agents: agents})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// used has a change use a session for an agent.
func used(t *testing.T, known *Sessions, d *directory.Directory, agent, key string) (*store.Change, *bool) {
	t.Helper()
	c := &store.Change{Records: []*audit.Record{{ID: "of " + agent, ActionType: audit.ActionDelivery}}}
	fresh, err := known.Use(t.Context(), d, key, d.Agent(agent), "", time.Now(), c)
	if err != nil || *fresh {
		t.Fatalf("for %s the session is new before it is durable: %t, %v", agent, *fresh, err)
	}
	return c, fresh
}

func commitAll(t *testing.T, s *store.Store, changes ...*store.Change) {
	t.Helper()
	for _, c := range changes {
		if _, err := s.Commit(c); err != nil {
			t.Fatal(err)
		}
	}
}

// isOf expects a session to be an agent's, or nobody's, in memory and in the store.
func isOf(t *testing.T, known *Sessions, d *directory.Directory, key, want string) {
	t.Helper()
	for where, sessions := range map[string]*Sessions{"in memory": known, "in the store": newSessions(known.store)} {
		agent, err := sessions.Agent(t.Context(), d, key)
		got := ""
		if agent != nil {
			got = agent.ID
		}
		if got != want || err != nil {
			t.Errorf("%s it is of %q, %v, want %q", where, got, err, want)
		}
	}
}

// Two first messages of one session are decided at once, for different agents. The session belongs
// to the agent whose message was committed first, in memory and in the store.
func TestFirstMessagesOfASessionAtOnce(t *testing.T) {
	s := openStore(t)
	d, known := directoryOf(t, agentOf("alice", "acme"), agentOf("bob", "acme")), newSessions(s)
	alice, begunByAlice := used(t, known, d, "alice", "chat:new")
	bob, begunByBob := used(t, known, d, "bob", "chat:new")
	commitAll(t, s, bob, alice)
	if *begunByAlice || !*begunByBob {
		t.Errorf("the session is begun by alice's message %t, by bob's %t, want bob's alone, which was committed first", *begunByAlice, *begunByBob)
	}
	isOf(t, known, d, "chat:new", "bob")
}

// A new agent under an old id has none of its predecessor's sessions. The next agent to use one
// begins it, and of two at once the first.
func TestSessionsAreNotInherited(t *testing.T) {
	s := openStore(t)
	before, after := directoryOf(t, agentOf("alice", "acme")), directoryOf(t, agentOf("alice", "globex"), agentOf("bob", "globex"))
	known := newSessions(s)
	c, _ := used(t, known, before, "alice", "chat:old")
	commitAll(t, s, c)
	isOf(t, known, before, "chat:old", "alice")
	isOf(t, known, after, "chat:old", "")
	alice, begunByAlice := used(t, known, after, "alice", "chat:old")
	bob, begunByBob := used(t, known, after, "bob", "chat:old")
	commitAll(t, s, bob, alice)
	if *begunByAlice || !*begunByBob {
		t.Errorf("begun by alice's message %t, by bob's %t, want bob's alone", *begunByAlice, *begunByBob)
	}
	isOf(t, known, after, "chat:old", "bob")
	isOf(t, known, before, "chat:old", "")
	if row, err := s.FreshSession(t.Context(), "chat:old"); err != nil || row.MessageCount != 1 {
		t.Errorf("%+v, %v", row, err)
	}
}

// Sessions of a version that did not store owners go to the agent that the configuration has under
// the id at the first start, and never to another one.
func TestSessionsAreSettledOnce(t *testing.T) {
	s := openStore(t)
	row := func(key, agent string) store.Session {
		return store.Session{Key: key, SessionOwner: store.SessionOwner{AgentID: agent}, ChannelID: "chat", CreatedAt: time.Now(), LastActiveAt: time.Now()}
	}
	commitAll(t, s, &store.Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionDelivery}}, Parts: []store.Part{row("chat:a", "alice"), row("chat:b", "bob")}})
	alice, bob := agentOf("alice", "acme"), agentOf("bob", "acme")
	d, known := directoryOf(t, alice, bob), newSessions(s)
	for _, agents := range [][]directory.Agent{{alice}, {alice, bob}} {
		if err := known.Settle(t.Context(), agents, s.Commit); err != nil {
			t.Fatal(err)
		}
		isOf(t, known, d, "chat:a", "alice")
		isOf(t, known, d, "chat:b", "")
	}
	if some, err := s.UnsettledSessions(t.Context()); some || err != nil {
		t.Errorf("left are some: %t, %v", some, err)
	}
}
