package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// A record before a decision tells who was allowed to sign, with the digest of the file: at
// the start, and whenever the file has changed.
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
	alice, person = h.agent("@acme/alice"), h.operates()
	// Each line is recorded, so the owner of a key does not depend on a file that may be lost.
	h.allow(listed(t, "carol", `valid-after="20260101Z",valid-before="20360101Z",namespaces="approval@ocipd"`), listed(t, "dora", ""))
	decide("dora")
	r := h.records(audit.Filter{Like: audit.Record{Event: "signers_changed"}})[2]
	list, _ := r.Details["signers"].([]any)
	if len(list) != 2 || r.Details["signerCount"] != 2.0 {
		t.Fatalf("on record are %v of %v", list, r.Details["signerCount"])
	}
	carol, _ := list[0].(map[string]any)
	decision := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, Event: api.ApprovalDenied}})[0]
	if carol["principals"] != "carol@acme-corp" || carol["fingerprint"] != decision.Details["fingerprint"] || carol["validAfter"] != "2026-01-01T00:00:00Z" || carol["validBefore"] != "2036-01-01T00:00:00Z" ||
		carol["namespaces"] != "approval@ocipd" || carol["line"] != 1.0 {
		t.Errorf("carol's line is on record as %v, and signed with %v", carol, decision.Details["fingerprint"])
	}
}

// A file that an earlier version has seen is recorded with its lines once.
func TestSignersOfAnEarlierVersionAreListed(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	h.stop()
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	value, err := s.Meta(t.Context(), "allowed-signers")
	if err != nil {
		t.Fatal(err)
	}
	digest, _, _ := strings.Cut(string(value), " ")
	if _, err := s.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: "allowed-signers", Value: []byte(digest)}}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 {
		h.start()
		if n := len(h.records(audit.Filter{Like: audit.Record{Event: "signers_changed"}})); n != 2 {
			t.Errorf("the file is on record %d times", n)
		}
		h.stop()
	}
}

// A verifier with only the checkpoints outside the log can follow to a new key.
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
	// A checkpoint that a crash kept from being written is there after the next start.
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

// A verifier with the log and its listed keys can check each signature without knowing how the
// signed text is built: those of one of several people, with a note, and of a standing grant.
func TestSignaturesVerifyFromTheRecord(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "dora", ""))
	h.reloaded(acme + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {required: 2, allowed_signers: %q}\n", h.path("signers")))
	alice, person := h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID
	for _, name := range []string{"carol", "dora"} {
		saw := h.shown(held)
		params := decision(api.DecideApprove, &saw)
		params["note"] = name + " agrees"
		params["signature"] = signs(t, name, api.SignedNote(saw.ToSign[api.DecideApprove], name+" agrees"), api.ApprovalNamespace)
		person.must("approval.resolve", params, nil)
	}
	h.reloaded(acme + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {allowed_signers: %q}\n", h.path("signers")))
	grant := standingGrant(t, "g-1", 3, nil)
	grant.Note = "until the spring"
	grant.Signature = signs(t, "carol", api.SignedNote(api.SignedGrant(grant), grant.Note), api.ApprovalNamespace)
	person.must("grant.add", grant, nil)
	file := sshsig.File{Path: h.path("signers"), Key: "signers", Namespace: api.ApprovalNamespace}
	events := make(map[string]int)
	for _, r := range h.records(audit.Filter{}) {
		signature, _ := r.Details["signature"].(string)
		if signature == "" {
			continue
		}
		events[r.Event]++
		text, _ := r.Details["signedText"].(string)
		if who, fingerprint, err := file.Verify([]byte(signature), []byte(text), r.Time); err != nil || who != r.Details["by"] || fingerprint != r.Details["fingerprint"] {
			t.Errorf("%s: signed by %s, %s: %v", r.Event, who, fingerprint, err)
		}
	}
	if events["approved_in_part"] != 1 || events["approved"] != 1 || events["grant_made"] != 1 {
		t.Errorf("signed are %v", events)
	}
}
