package store

import (
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

// A message from the database is compared with the records of its decision, however many were made
// with it.
func TestDecisionsOf(t *testing.T) {
	s := open(t, options(t.TempDir()))
	defer func() { shut(t, s) }()
	record := func(dispatch, digest string) *audit.Record {
		return &audit.Record{ID: "r", ActionType: audit.ActionExchange, DispatchID: dispatch, PolicyResult: "allow", DeliveredDigest: digest}
	}
	queued := func(dispatch string, records ...*audit.Record) *Message {
		t.Helper()
		m := &Message{MessageID: MessageID{Queue: "channel:irc"}, DispatchID: dispatch, Body: []byte("body")}
		commit(t, s, &Change{Records: records, Parts: []Part{m}})
		return m
	}
	person := &audit.Record{ID: "p", ActionType: audit.ActionApproval, Event: "approved", DispatchID: "d2"}
	one, two := queued("d1", record("d1", "x1")), queued("d2", person, record("d2", "x2"), record("d2", "x3"))
	many := make([]*audit.Record, 0, 100)
	for range 99 {
		many = append(many, record("other", "x"))
	}
	last := queued("d3", append(many, record("d3", "x4"))...)
	queued("d4", record("d4", "x5"))
	for name, c := range map[string]struct {
		seq      uint64
		dispatch string
		want     []string
	}{
		"decided": {one.RecordSeq, "d1", []string{"x1"}}, "approved": {two.RecordSeq, "d2", []string{"", "x2", "x3"}},
		"among many": {last.RecordSeq, "d3", []string{"x4"}}, "another's record": {one.RecordSeq, "d9", nil}, "no record": {10000, "d1", nil},
	} {
		found, err := s.DecisionsOf(t.Context(), c.seq, c.dispatch)
		var got []string
		for i := range found {
			got = append(got, found[i].DeliveredDigest)
			if _, err := gate.Open(found[i].Receipt, gate.Letter{}, nil); err == nil {
				t.Errorf("%s: no message is let through", name)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
