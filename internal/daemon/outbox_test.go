package daemon_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
)

// An attacker who can write the database, even with the key of its rows, cannot make the daemon
// deliver undecided messages: rows without a record, of another record, with another text or
// for another receiver are taken out with a record, and decided messages are delivered.
func TestRowsThatNobodyDecided(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	first := alice.dispatch("telegram:stranger", "decided", nil)
	alice.dispatch("agent:bob:main", "for bob", nil)
	h.stop()
	h.rewriteRows(func(w *db.Writer) error {
		rows := make(map[string][]db.Value)
		for _, queue := range []string{"channel:telegram", "agent:bob"} {
			if _, err := w.Amend("a message", "outbox", func(v []db.Value) { rows[queue] = slices.Clone(v) }, "queue = ?", db.Text(queue)); err != nil {
				return err
			}
		}
		put := func(of string, offset int64, change func(v []db.Value)) error {
			v := slices.Clone(rows[of])
			v[0] = v[0].Plus(offset)
			change(v)
			return w.Insert("a message", "outbox", v...)
		}
		says := func(old, is string) func(v []db.Value) {
			return func(v []db.Value) { v[5] = db.Text(strings.Replace(v[5].String(), old, is, 1)) }
		}
		const telegram, bob = "channel:telegram", "agent:bob"
		return errors.Join(
			put(telegram, 11, says("decided", "forged 1")),
			put(telegram, 12, func(v []db.Value) { v[1] = db.Int(0); says("decided", "forged 2")(v) }),
			put(telegram, 13, func(v []db.Value) { v[2] = db.Text("made-up"); says("decided", "forged 3")(v) }),
			put(telegram, 14, says(`"target":"stranger"`, `"target":"ceo"`)),
			put(telegram, 15, func(v []db.Value) { v[5] = db.Text("not a message at all") }),
			put(telegram, 16, func(v []db.Value) { copy(v[1:6], rows[bob][1:6]) }),
			w.Insert("a queue", "queues", db.Int(99), db.Text("agent:alice")),
			put(bob, 0, func(v []db.Value) { v[0], v[6] = db.Int(99<<40+7), db.Text("agent:alice") }),
			put(bob, 17, says("for bob", "forged 4")),
		)
	})
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

// Redaction in the log is no reason to doubt a waiting message.
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
