package daemon_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// Whoever can write the database cannot have the daemon deliver what it did not
// decide: rows without a record, of another record, with another text or for
// somebody else are taken out on record, and what was decided is delivered
// (attack.md 14).
func TestRowsThatNobodyDecided(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to write the database with")
	}
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	first := alice.dispatch("telegram:stranger", "decided", nil)
	alice.dispatch("agent:bob:main", "for bob", nil)
	h.stop()
	script := `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
rows = {name: row for name, *row in db.execute("SELECT name, outbox.id, record_seq, dispatch_id, message FROM queues JOIN outbox ON outbox.id > no << 40 AND outbox.id < (no + 1) << 40")}
id, seq, dispatch, message = rows["channel:telegram"]
def put(offset, seq, dispatch, message, base=id):
    db.execute("INSERT INTO outbox (id, record_seq, dispatch_id, expires_at, message, app) VALUES (?, ?, ?, 0, ?, 0)", (base + offset, seq, dispatch, message))
put(1, seq, dispatch, message.replace("decided", "forged 1"))
put(2, 0, dispatch, message.replace("decided", "forged 2"))
put(3, seq, "made-up", message.replace("decided", "forged 3"))
put(4, seq, dispatch, message.replace('"target":"stranger"', '"target":"ceo"'))
put(5, seq, dispatch, "not a message at all")
bob, seq, dispatch, message = rows["agent:bob"]
put(6, seq, dispatch, message)
db.execute("INSERT INTO queues VALUES (?, 'agent:alice')", (99,))
put(0, seq, dispatch, message, base=(99 << 40) + 7)
put(7, seq, dispatch, message.replace("for bob", "forged 4"), base=bob)
db.commit()
`
	if out, err := exec.CommandContext(t.Context(), python, "-c", script, h.path("state/ocipd.db")).CombinedOutput(); err != nil {
		t.Fatalf("%s (%v)", out, err)
	}
	h.start()
	telegram, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/bob")
	alice = h.again(alice)
	alice.must("app.heartbeat", nil, nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != first.DispatchID || !strings.HasPrefix(m.Content, "decided") || m.Target != "stranger" {
		t.Errorf("delivered is %+v", m)
	}
	contains(t, bob.message("hook:message_received").Content, "for bob")
	alice.dispatch("telegram:stranger", "the end", nil)
	if m := telegram.message("hook:message_sending"); !strings.HasPrefix(m.Content, "the end") {
		t.Errorf("delivered is %+v", m)
	}
	for _, a := range []*app{telegram, bob, alice} {
		a.must("app.heartbeat", nil, nil)
		a.silent("hook:message_sending")
		a.silent("hook:message_received")
	}
	rejected := 0
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		if r.Event == "undecided_message" {
			rejected++
			if r.PolicyReason == "" || r.Details["queue"] == nil {
				t.Errorf("on record is %+v", r)
			}
		}
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}) {
		if r.Event == "withdrawn" { // it says itself that it is for somebody else
			rejected++
		}
	}
	if rejected != 8 {
		t.Errorf("%d rows are on record: %v", rejected, h.waits(nil).Messages)
	}
	h.verify()
}

// What the operator keeps out of the log is no reason to doubt what waits.
func TestWaitingMessageOfARedactedRecord(t *testing.T) {
	h := build(t, "audit: {redact: {members: [sessionKey, appId, counterparty.instanceId]}}\n"+acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:stranger", "decided", nil)
	alice.dispatch("agent:bob:main", "for bob", nil)
	h.stop()
	h.start()
	telegram, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/bob")
	contains(t, telegram.message("hook:message_sending").Content, "decided")
	contains(t, bob.message("hook:message_received").Content, "for bob")
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		if r.Event == "undecided_message" {
			t.Errorf("on record is %+v", r)
		}
	}
}
