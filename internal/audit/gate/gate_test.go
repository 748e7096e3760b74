package gate

import (
	"errors"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
)

// note is a message of two members.
type note struct{ id, text string }

func (n note) Room() int { return 64 }

func (n note) Write(b []byte) ([]byte, Delivered) {
	return append(b, `{"text":"`+n.text+`"}`...), Delivered{DispatchID: n.id, Target: "bob", Content: NewText(n.text)}
}

// readable makes a readable digest, under a tenant's key.
func readable(tenant, label string, form func([]byte) ([]byte, error)) (string, error) {
	b, err := form(nil)
	return tenant + " " + label + ":" + string(b), err
}

func closed(t *testing.T, n note) Letter {
	t.Helper()
	_, l, err := Keys(readable).Close([]byte("head\n"), "acme", n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A message leaves only with the receipt of a record that allows exactly it.
func TestOpen(t *testing.T) {
	l := closed(t, note{"d1", "hello"})
	let := func(change func(*audit.Record)) Receipt {
		r := &audit.Record{ActionType: audit.ActionExchange, DispatchID: "d1", PolicyResult: "allow", DeliveredDigest: l.Digest()}
		if change != nil {
			change(r)
		}
		return Committed(7, time.Unix(1, 0), []*audit.Record{{DispatchID: "other"}, r})
	}
	refusal := &Withdrawn{Code: "PAUSED", Reason: "not now"}
	for name, tc := range map[string]struct {
		receipt Receipt
		letter  Letter
		still   func() error
		want    error
	}{
		"let through":             {let(nil), l, nil, nil},
		"still":                   {let(nil), l, func() error { return nil }, nil},
		"no more":                 {let(nil), l, func() error { return refusal }, refusal},
		"no receipt":              {Receipt{Seq: 7}, l, nil, ErrUndecided},
		"another text":            {let(nil), closed(t, note{"d1", "hullo"}), nil, ErrUndecided},
		"another dispatch":        {let(nil), closed(t, note{"d2", "hello"}), nil, ErrUndecided},
		"nothing":                 {let(nil), Letter{}, nil, ErrUndecided},
		"a denial":                {let(func(r *audit.Record) { r.PolicyResult = "deny" }), l, nil, ErrUndecided},
		"held":                    {let(func(r *audit.Record) { r.PolicyResult = "require_approval" }), l, nil, ErrUndecided},
		"no digest":               {let(func(r *audit.Record) { r.DeliveredDigest = "" }), l, nil, ErrUndecided},
		"the digest of its words": {let(func(r *audit.Record) { r.ContentDigest, r.DeliveredDigest = r.DeliveredDigest, "" }), l, nil, ErrUndecided},
		"what a person decided":   {let(func(r *audit.Record) { r.ActionType, r.PolicyResult = audit.ActionApproval, "deny" }), l, nil, nil},
	} {
		s, err := Open(tc.receipt, tc.letter, tc.still)
		if !errors.Is(err, tc.want) || s.IsZero() != (tc.want != nil) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
		if tc.want == nil {
			if text, err := json.Marshal(s); err != nil || string(text) != `{"text":"hello"}` {
				t.Errorf("%s: %s, %v", name, text, err)
			}
		}
	}
	e := &audit.Entry{Seq: 9, Record: audit.Record{DispatchID: "d1", PolicyResult: "allow", DeliveredDigest: l.Digest()}}
	if s, err := Open(ReadBack(e), l, nil); err != nil || s.IsZero() {
		t.Errorf("read back: %v", err)
	}
}

// A row is recognized only unchanged, and under the rules that allowed it.
func TestMemory(t *testing.T) {
	m := NewMemory()
	s, err := Open(Committed(1, time.Time{}, []*audit.Record{{DispatchID: "d1", DeliveredDigest: "acme " + audit.LabelDelivered + ":" + `{"content":"hello","metadata":{},"target":"bob"}`}}), closed(t, note{"d1", "hello"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("head\n" + `{"text":"hello"}`)
	m.Keep(s, 5, 1, body, "queue", "d1")
	m.Keep(Sealed{}, 6, 1, body, "queue", "d1")
	for name, tc := range map[string]struct {
		id         int64
		generation uint64
		body       string
		queue      string
		want       bool
	}{
		"as it was": {5, 1, string(body), "queue", true}, "other rules": {5, 2, string(body), "queue", false}, "another text": {5, 1, "head\n" + `{"text":"hullo"}`, "queue", false},
		"another head": {5, 1, "hear\n" + `{"text":"hello"}`, "queue", false}, "another queue": {5, 1, string(body), "other", false}, "closed": {6, 1, string(body), "queue", false}, "unknown": {7, 1, string(body), "queue", false},
	} {
		s, known := m.Recall(tc.id, tc.generation, []byte(tc.body), len("head\n"), tc.queue, "d1")
		if known != tc.want || known && string(s.data) != `{"text":"hello"}` {
			t.Errorf("%s: %v, %s", name, known, s.data)
		}
	}
	for id := range int64(2 * rememberedMessages) {
		m.Keep(s, 100+id, 1, body, "queue", "d1")
	}
	if len(m.known) > rememberedMessages {
		t.Errorf("it remembers %d", len(m.known))
	}
}
