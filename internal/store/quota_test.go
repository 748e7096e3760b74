package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/quota"
)

// One app's waiting messages are bounded, across restarts, and the places are free again when
// receivers have them.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	clock := newClock()
	o.Clock, o.Quota = clock.now, quota.Limit{Messages: 4, Bytes: 1000}
	s := open(t, o)
	send := func(app string, bytes int) (*Message, error) {
		m := &Message{MessageID: MessageID{Queue: "agent:absent"}, DispatchID: "d", Body: make([]byte, bytes)}
		_, err := s.Commit(&Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange, AppID: app}}, Parts: []Part{m}})
		return m, err
	}
	want := func(app string, messages int, bytes int64) {
		t.Helper()
		waiting, err := s.Waiting(t.Context())
		got := quota.Waiting{App: app}
		for _, w := range waiting {
			if w.App == app {
				got = w
			}
		}
		if err != nil || got != (quota.Waiting{App: app, Messages: messages, Bytes: bytes}) {
			t.Errorf("%+v waits (%v), want %d and %d", got, err, messages, bytes)
		}
	}
	var sent []*Message
	for range 4 {
		m, err := send("@acme/flood", 100)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, m)
	}
	before := s.Head().Seq
	if _, err := send("@acme/flood", 1); !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "app @acme/flood") {
		t.Errorf("a fifth message: %v", err)
	}
	if s.Head().Seq != before {
		t.Error("there is a record of what was refused")
	}
	if _, err := send("@acme/other", 1000); err != nil {
		t.Errorf("another app: %v", err)
	}
	if _, err := send("@acme/other", 1); !errors.Is(err, ErrQuota) {
		t.Errorf("more bytes: %v", err)
	}
	want("@acme/flood", 4, 400)
	want("@acme/other", 1, 1000)
	// A message that a person releases is not refused.
	m := &Message{MessageID: MessageID{Queue: "agent:absent"}, DispatchID: "d", Body: make([]byte, 50)}
	commit(t, s, &Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionApproval, AppID: "@acme/flood"}}, Parts: []Part{m}, Last: true})
	want("@acme/flood", 5, 450)
	// A failed change does not count.
	c := with(&Message{MessageID: MessageID{Queue: "q"}, DispatchID: "d", Body: make([]byte, 9)}, badPart{})
	c.Records[0].AppID = "@acme/third"
	if _, err := s.Commit(c); err == nil {
		t.Error("it was written")
	}
	want("@acme/third", 0, 0)
	shut(t, s)

	s = open(t, o)
	want("@acme/flood", 5, 450)
	commit(t, s, &Change{Records: noted("r").Records, Parts: []Part{Taken{sent[0].MessageID}}, Drains: true})
	want("@acme/flood", 4, 350)
	s.Taken(sent[3].MessageID)
	s.Flush()
	want("@acme/flood", 1, 50)
	// Taken messages do not count any more after the next look-up.
	clock.add(quota.RecountEvery)
	if _, err := send("@acme/flood", 100); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := send("@acme/third", 1000); err != nil {
		t.Errorf("what failed is still counted as under way: %v", err)
	}
	wantSound(t, s)
	shut(t, s)
}
