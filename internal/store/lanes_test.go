package store

import (
	"errors"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// sendTo commits a message to a host in its lane.
func sendTo(s *Store, id string, most int) (*LaneSent, error) {
	m := &Message{MessageID: MessageID{Queue: "host:h"}, DispatchID: id, ExpiresAt: someTime, Body: []byte("{}\n{}")}
	l := &LaneSent{Lane: "to/h/1/1", Host: "h", Message: m, Most: most}
	_, err := s.Commit(&Change{Records: []*audit.Record{{ID: "x", ActionType: audit.ActionExchange, DispatchID: id}}, Parts: []Part{m, l}})
	return l, err
}

// The messages of a lane get numbers without a gap, in the order of their commits, as many as may wait
// for a receipt. A number whose message has its receipt is not given again.
func TestLaneNumbers(t *testing.T) {
	o := foldOptions(t)
	s := open(t, o)
	for n, id := range []string{"a", "b", "c"} {
		l, err := sendTo(s, id, 3)
		if err != nil || l.Seq != uint64(n+1) {
			t.Fatalf("%s has the number %d: %v", id, l.Seq, err)
		}
	}
	if _, err := sendTo(s, "d", 3); !errors.Is(err, ErrLaneFull) {
		t.Fatalf("a fourth message: %v", err)
	}
	if page, err := s.Messages(t.Context(), "host:h", 0, 9); err != nil || len(page) != 3 {
		t.Fatalf("the queue has %d messages: %v", len(page), err)
	}
	rows, err := LanesOf(s).Messages(t.Context(), "to/h/1/1", 9)
	if err != nil || len(rows) != 3 || rows[0].Message.DispatchID != "a" || !rows[0].Message.ExpiresAt.Equal(someTime) {
		t.Fatalf("waiting are %+v: %v", rows, err)
	}
	ended := &Change{Records: []*audit.Record{{ID: "x", ActionType: audit.ActionDelivery}}, Parts: []Part{LaneEnded{"to/h/1/1", 1}}}
	commit(t, s, ended)
	shut(t, s)
	s = open(t, o)
	l, err := sendTo(s, "d", 3)
	if err != nil || l.Seq != 4 {
		t.Fatalf("the next number is %d: %v", l.Seq, err)
	}
	if last, err := LanesOf(s).Last(t.Context(), "to/h/1/1"); err != nil || last != 4 {
		t.Errorf("the last number is %d: %v", last, err)
	}
	if n, err := LanesOf(s).Waiting(t.Context(), "h"); err != nil || n != 3 {
		t.Errorf("%d messages wait: %v", n, err)
	}
}

// A message whose record is not known to be kept yet is in no lane, as it is in no queue: in its lane alone
// it would be taken for one that was withdrawn.
func TestLaneHasNoMessageBeforeItsRecord(t *testing.T) {
	s := open(t, foldOptions(t))
	m := &Message{MessageID: MessageID{ID: 1}, DispatchID: "a", RecordSeq: 2}
	commit(t, s, with(&LaneSent{Lane: "to/h/1/1", Host: "h", Message: m, Most: AnyNumber}))
	for kept := range 2 {
		rows, err := LanesOf(s).Messages(t.Context(), "to/h/1/1", 9)
		stale, failed := LanesOf(s).Stale(t.Context(), "h", "to/h/2/1", 9)
		if err != nil || failed != nil || len(rows) != kept || len(stale) != kept {
			t.Errorf("after %d records: %d and %d messages, %v, %v", s.Head().Seq, len(rows), len(stale), err, failed)
		}
		commit(t, s, noted("b"))
	}
}

// A host's message takes the next number of its lane or nothing, and its receipt is found by number and
// by id, until nobody needs it.
func TestLaneTaken(t *testing.T) {
	s := open(t, foldOptions(t))
	commit(t, s, with(laneTaken(1)))
	for _, seq := range []uint64{1, 3} {
		change := with(laneTaken(seq))
		if _, err := s.Commit(change); !errors.Is(err, ErrLaneMoved) {
			t.Errorf("number %d is taken: %v", seq, err)
		}
	}
	commit(t, s, with(laneTaken(2)))
	head := s.Head().Seq
	got, err := LanesOf(s).Receipt(t.Context(), "from/h/1/1", "h", 2, "d2")
	if err != nil || got.RecordSeq != head || got.Result != "allow" || got.DispatchID != "d2" {
		t.Fatalf("the receipt is %+v: %v", got, err)
	}
	if got, err = LanesOf(s).Receipt(t.Context(), "from/h/2/1", "h", 7, "d1"); err != nil || got.Seq != 1 {
		t.Errorf("in another lane the receipt is %+v: %v", got, err)
	}
	if _, err = LanesOf(s).Receipt(t.Context(), "from/h/2/1", "other", 7, "d1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another host has the receipt: %v", err)
	}
	if err := LanesOf(s).Forget(t.Context(), someTime.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err = LanesOf(s).Receipt(t.Context(), "from/h/1/1", "h", 2, "d2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the receipt is kept: %v", err)
	}
	if last, err := LanesOf(s).Last(t.Context(), "from/h/1/1"); err != nil || last != 2 {
		t.Errorf("the last number is %d: %v", last, err)
	}
}
