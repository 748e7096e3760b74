package store

import (
	"errors"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// A message that comes out of the database is held against its record (attack 14).
func TestDecisionOf(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	s := open(t, o)
	defer func() { shut(t, s) }()
	record := func(dispatch, result, digest string) *audit.Record {
		return &audit.Record{ID: "r", ActionType: audit.ActionExchange, DispatchID: dispatch, PolicyResult: result, DeliveredDigest: digest}
	}
	queued := func(dispatch string, records ...*audit.Record) *Message {
		t.Helper()
		m := &Message{MessageID: MessageID{Queue: "channel:irc"}, DispatchID: dispatch, Body: []byte("body")}
		commit(t, s, &Change{Records: records, Parts: []Part{m}})
		page, err := s.Messages(t.Context(), "channel:irc", m.ID-1, 1)
		if err != nil || len(page) != 1 {
			t.Fatal(page, err)
		}
		return page[0]
	}
	person := &audit.Record{ID: "p", ActionType: audit.ActionApproval, Event: "approved", DispatchID: "d2"}
	one, two := queued("d1", record("d1", "allow", "x1")), queued("d2", person, record("d2", "allow", "x2"), record("d2", "allow", "x3"))
	held := queued("d3", record("d3", "require_approval", "x4"), record("other", "allow", "x5"))
	denied, event := queued("d4", record("d4", "deny", "x6")), queued("d5", record("d5", "", ""))
	injected := *one
	injected.DispatchID = "d9"
	beyond := *one
	beyond.RecordSeq = 10000

	for name, c := range map[string]struct {
		m      *Message
		said   bool
		digest string
		seq    uint64
	}{
		"decided": {one, true, "x1", 1}, "approved": {two, true, "x2", 3}, "held": {held, true, "", 0}, "denied": {denied, true, "", 0},
		"an event": {event, false, "", event.RecordSeq}, "an event as a message": {event, true, "", 0},
		"another's record": {&injected, false, "", 0}, "no record": {&beyond, true, "", 0},
	} {
		e, err := s.DecisionOf(t.Context(), c.m, c.said)
		if c.seq == 0 && !errors.Is(err, ErrUndecided) || c.seq != 0 && (err != nil || e.Seq != c.seq || e.DeliveredDigest != c.digest) {
			t.Errorf("%s: record %d with %q, %v", name, e.Seq, e.DeliveredDigest, err)
		}
	}

	// A row beside the running daemon: nothing of it was decided.
	change(t, o.Path, `INSERT INTO outbox (id, record_seq, dispatch_id, expires_at, app, message) SELECT id + 100, record_seq, 'forged', 0, '', 'forged' FROM outbox LIMIT 1`)
	page, err := s.Messages(t.Context(), "channel:irc", event.ID, 9)
	if err != nil || len(page) != 1 || string(page[0].Body) != "forged" {
		t.Fatal(page, err)
	}
	if e, err := s.DecisionOf(t.Context(), page[0], true); !errors.Is(err, ErrUndecided) {
		t.Errorf("a forged row: %+v, %v", e, err)
	}
}

// What waits since before records had digests goes out by its dispatchId.
func TestDecisionOfOlderVersion(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	s := open(t, o)
	m := &Message{MessageID: MessageID{Queue: "q"}, DispatchID: "old", Body: []byte("body")}
	commit(t, s, &Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange, DispatchID: "old", PolicyResult: "allow"}}, Parts: []Part{m}})
	shut(t, s)
	change(t, o.Path, olderThanParts)
	s = open(t, o)
	defer shut(t, s)
	if e, err := s.DecisionOf(t.Context(), m, true); err != nil || e.Seq != 1 {
		t.Errorf("waiting since: %+v, %v", e, err)
	}
	fresh := &Message{MessageID: MessageID{Queue: "q"}, DispatchID: "new", Body: []byte("body")}
	commit(t, s, &Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange, DispatchID: "new", PolicyResult: "allow"}}, Parts: []Part{fresh}})
	if e, err := s.DecisionOf(t.Context(), fresh, true); !errors.Is(err, ErrUndecided) {
		t.Errorf("of this version: %+v, %v", e, err)
	}
}
