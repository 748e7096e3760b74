package main

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/frame"
	"github.com/openclawos/ocipd/internal/fleet/lane"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/test/brokertest"
)

// carried is the test as the line of a host.
type carried struct {
	t      *testing.T
	calls  *client.Client
	frames *client.Stream
}

func (h *branchHost) carried() *carried {
	h.t.Helper()
	c := &carried{t: h.t, calls: h.operator(h.t.Context())}
	attached := h.operator(h.t.Context())
	h.t.Cleanup(func() { _ = errors.Join(c.calls.Close(), attached.Close()) })
	var err error
	if c.frames, err = attached.Stream(h.t.Context(), "fleet.attach", &fleetapi.FleetAttachParams{}); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// next is the next frame of a message.
func (c *carried) next() (f fleetapi.FleetFrame) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for f.Kind != string(frame.Message) {
		raw, err := c.frames.Next(ctx)
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return f
}

func (c *carried) bring(text string) (result fleetapi.FleetBringResult) {
	c.t.Helper()
	if err := c.calls.Call(c.t.Context(), "fleet.bring", &fleetapi.FleetBringParams{Frame: text}, &result); err != nil {
		c.t.Fatal(err)
	}
	return result
}

// A carrier brings every frame three times: each message takes effect once. This is also the control of the
// judge for a host that does not remember what it has taken: `make mutants ARGS=fleet-inbox` runs it.
func TestFleetFramesComeAgain(t *testing.T) {
	t.Parallel()
	f := openBranch(t, 2)
	f.a.up()
	f.b.up()
	from, to := f.a.carried(), f.b.carried()
	for n := range 3 {
		f.a.send(f.b, fmt.Sprint("message ", n))
		sent := from.next()
		for range 3 {
			if r := to.bring(sent.Frame).Receipt; r == nil {
				t.Error("noticed: a frame that comes again gets no receipt")
			} else {
				from.bring(r.Frame)
			}
		}
	}
	f.judge()
}

// The control of the judge for an outbox that trusts the broker: a line has the daemon forget each message as
// soon as the broker has acknowledged it, and the broker loses its store.
func TestFleetJudgeNoticesTrustInTheBroker(t *testing.T) {
	t.Parallel()
	f := openBranch(t, 2)
	a, b := f.a, f.b
	a.up()
	b.up()
	line := a.carried()
	for n := range 3 {
		a.send(b, fmt.Sprint("message ", n))
		sent := line.next()
		whole, err := base64.StdEncoding.DecodeString(sent.Frame)
		if err != nil {
			t.Fatal(err)
		}
		subject := strings.Join([]string{"m", f.member(b).Mailbox(), f.member(a).Mailbox(), fmt.Sprint(sent.Seq % lane.Window)}, ".")
		if ack := brokertest.Publish(t, f.address, subject, whole); !strings.Contains(ack, `"stream":"MSG"`) {
			t.Fatalf("the broker does not store message %d: %s", n, ack)
		}
		line.bring(f.forged(whole))
	}
	a.emptied(t.Context())
	f.broker.Kill()
	if err := os.RemoveAll(f.path("broker", "store")); err != nil {
		t.Fatal(err)
	}
	f.broker.Again()
	b.attach()
	f.stop()
	faults := strings.Join(f.faults(), "\n")
	for _, id := range a.sent[b] {
		if !strings.Contains(faults, "message "+id+" of a has the receipts [\"allow\"] and 0 decisions at b") {
			t.Errorf("the judge does not notice that %s is lost:\n%s", id, faults)
		}
	}
}

// forged is the receipt of host b for a frame of host a, made with b's key though b has never seen the frame.
func (f *branch) forged(whole []byte) string {
	f.t.Helper()
	read, err := frame.Parse(whole)
	if err != nil {
		f.t.Fatal(err)
	}
	keys, err := keyring.ReadFleet(f.path("state-b", "openclawos", "keys"))
	if err != nil {
		f.t.Fatal(err)
	}
	said := frame.Outcome{Result: frame.Allow, Record: 1}
	body, err := said.Write()
	if err != nil {
		f.t.Fatal(err)
	}
	to, err := ecdh.X25519().NewPublicKey(f.member(f.a).Seal)
	if err != nil {
		f.t.Fatal(err)
	}
	sealed, err := frame.Seal(&frame.Header{
		Kind: frame.Receipt, Tenant: read.Tenant, From: read.To, FromEpoch: read.ToEpoch, To: read.From, ToEpoch: read.FromEpoch, Seq: read.Seq, ID: read.ID,
	}, body, to, keys[0].Sign)
	if err != nil {
		f.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sealed)
}

// member is the line of a host in the roster.
func (f *branch) member(h *branchHost) *roster.Host {
	f.t.Helper()
	text, err := os.ReadFile(f.path("fleet.jsonl"))
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := roster.Parse(text)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Host("host-" + h.name)
}
