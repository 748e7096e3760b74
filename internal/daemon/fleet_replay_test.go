package daemon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/fleet/beat"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// A carrier that repeats old frames slanders nobody: neither a beat from before a restart nor a message
// whose receipt is forgotten says that a host was put back from a copy, and none is a sign of life.
func TestFleetReplaysSayNothing(t *testing.T) {
	c := foundFleet(t, "")
	line := carry(t, c.b)
	hostA := func() fleetapi.FleetHost {
		t.Helper()
		var s fleetapi.FleetStatus
		c.b.operator("fleet.status", m{}, &s)
		return s.Hosts[0]
	}
	at := uint64(time.Now().UnixMilli())
	says := func(size uint64) []byte {
		t.Helper()
		at++
		body, err := beat.Write(&fleetapi.Beat{Version: "1", Checkpoint: checkpoint(t, "ocipd/log-of-a", size)})
		if err != nil {
			t.Fatal(err)
		}
		return c.sealed(0, 1, frame.Header{Kind: frame.Beat, Seq: at, ID: "beat"}, body)
	}
	void := func(seq uint64) []byte {
		return c.sealed(0, 1, frame.Header{Kind: frame.Void, Seq: seq, ID: fmt.Sprint("old", seq), Expires: time.Now().Add(-25 * time.Hour)}, nil)
	}
	early, late, first := says(9), says(10), void(1)
	for _, f := range [][]byte{early, late, first} {
		line.bring(f)
	}
	c.b.stop()
	s, err := store.Open(t.Context(), store.Options{Path: c.b.path("state/ocipd.db"), RowKey: c.b.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.LanesOf(s).Forget(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.b.start()
	line = carry(t, c.b)

	line.bring(early)
	line.bring(late)
	if o := c.outcome(line.bring(first)); o.Code != frame.RolledBack {
		t.Errorf("a message whose receipt is forgotten: %+v", o)
	}
	if h := hostA(); h.Shrunk != nil || h.Beat != nil || !h.Heard.IsZero() {
		t.Errorf("after old frames host-a is %+v", h)
	}
	for event, want := range map[string]int{"peer_log_shrunk": 0, "lane_rolled_back": 0, "frame_refused": 1} {
		if got := c.b.records(audit.Filter{Like: audit.Record{Event: event}}); len(got) != want {
			t.Errorf("%s is on record %d times, want %d: %+v", event, len(got), want, got)
		}
	}
	if o := c.outcome(line.bring(void(2))); o.Result != frame.Voided || hostA().Heard.IsZero() {
		t.Errorf("the next message is %+v, and host-a was heard %s", o, hostA().Heard)
	}
	c.b.verify()
}
