package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
)

// An agent of another tenant that gets an id in the configuration gets nothing of the
// former agent's: it sees no session key, as an app or through a grant, and a message in
// one of the former's sessions is not brought to it.
func TestSessionsOfAFormerAgent(t *testing.T) {
	h := build(t, ungoverned)
	alice := h.agent("@acme/alice")
	alice.dispatch("agent:ben:merger-secret", "Hello", nil)
	alice.dispatch("telegram:dave", "Hello", nil)
	ann := h.speaker("ann")
	ann.must("agent.send", m{"to": "telegram:4711", "text": "Hello"})
	sessionsOf := func(a *app) (keys []string) {
		var page api.SessionListResult
		a.must("session.list", m{}, &page)
		for _, s := range page.Sessions {
			keys = append(keys, s.Key)
		}
		return keys
	}
	contactsOf := func(a *taskCaller) (keys []string) {
		for _, one := range a.must("agent.contacts", m{})["contacts"].([]any) {
			keys = append(keys, str(one.(m), "session"))
		}
		return keys
	}
	if got := sessionsOf(alice); !slices.Contains(got, "telegram:dave") {
		t.Fatalf("alice has %v", got)
	}
	if got := contactsOf(ann); !slices.Contains(got, "telegram:4711") {
		t.Fatalf("ann has %v", got)
	}
	next := ungoverned
	for _, id := range []string{"ann", "alice"} {
		next = strings.NewReplacer("instance_id: agent-"+id+"-1, user_id: "+id+", org_unit: engineering, tenant_id: acme-corp",
			"instance_id: agent-"+id+"-2, user_id: new-"+id+", org_unit: sales, tenant_id: globex-inc").Replace(next)
	}
	h.reloaded(next)
	for range 2 {
		h.leaves(alice)
		alice = h.agent("@acme/alice")
		if got := sessionsOf(alice); len(got) != 0 {
			t.Errorf("the next of alice's id is shown %v", got)
		}
		var one api.SessionResult
		if alice.must("session.get", m{"key": "telegram:dave"}, &one); one.Session != nil {
			t.Errorf("the next of alice's id is shown %+v", one.Session)
		}
		if got := contactsOf(h.speaker("ann")); slices.Contains(got, "telegram:4711") {
			t.Errorf("the next of ann's id is shown %v", got)
		}
		// The same is true from the store.
		h.stop()
		h.start()
	}
	// The operator sees the former agent's sessions, and none of the new one's.
	var page api.ContactListResult
	h.operator("contact.list", m{"agent": "ann"}, &page)
	if len(page.Contacts) != 1 || page.Contacts[0].SessionKey != "telegram:4711" || page.Contacts[0].Kind != "unknown" {
		t.Errorf("an operator is shown %+v", page.Contacts)
	}
}
