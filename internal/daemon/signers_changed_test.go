package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/checkpoints"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Who was allowed to sign at a decision is told by a record before it, with the digest
// of the file: at the start, and whenever the file is another one.
func TestChangesOfSignersAreOnRecord(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	alice, person := h.agent("@acme/alice"), h.operates()
	seen := func() (digests []string, last uint64) {
		for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionConfigChange, Event: "signers_changed"}}) {
			digests, last = append(digests, r.Details["digest"].(string)), r.Seq
		}
		return digests, last
	}
	digest := func() string {
		text, err := os.ReadFile(h.path("signers"))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	if got, _ := seen(); len(got) != 1 || got[0] != digest() {
		t.Fatalf("at the start: %q", got)
	}
	decide := func(who string) uint64 {
		saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
		var got api.ApprovalResolveResult
		person.must("approval.resolve", signed(t, who, api.DecideDeny, &saw), &got)
		return got.AuditSeq
	}
	decide("carol")
	if got, _ := seen(); len(got) != 1 {
		t.Errorf("the same file is on record %d times", len(got))
	}
	h.allow(listed(t, "carol", ""), listed(t, "dora", ""))
	at := decide("dora")
	if got, seq := seen(); len(got) != 2 || got[1] != digest() || seq >= at {
		t.Errorf("before the decision in record %d: %q, the last in %d", at, got, seq)
	}
	h.stop()
	h.start()
	if got, _ := seen(); len(got) != 2 {
		t.Errorf("after a restart: %q", got)
	}
}

// Whoever holds the checkpoints outside the log alone can follow to a new key.
func TestHandOversAreOutsideTheLog(t *testing.T) {
	h := build(t, acme)
	old := h.publicKey()
	h.operates().must("audit.rotate_key", map[string]any{}, nil)
	h.stop()
	handedOver := func() (n int) {
		notes, err := checkpoints.Read(h.path("state/audit-checkpoints.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, signed := range notes {
			if c, err := audit.OpenCheckpoint(signed, old); err == nil && c.HandsOver() {
				n++
			}
		}
		return n
	}
	if n := handedOver(); n != 1 {
		t.Fatalf("%d hand over", n)
	}
	h.verified()
	// One that a crash kept from being written is there after the next start.
	notes, err := checkpoints.Read(h.path("state/audit-checkpoints.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.path("state/audit-checkpoints.jsonl")); err != nil {
		t.Fatal(err)
	}
	file, err := checkpoints.Open(checkpoints.Options{Path: h.path("state/audit-checkpoints.jsonl"), Clock: time.Now})
	if err == nil {
		err = file.Keep(notes[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	h.stop()
	if n := handedOver(); n != 1 {
		t.Errorf("after the next start %d hand over", n)
	}
}
