package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"regexp"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// ownProgram is the program of this test, as in records.
func ownProgram(t *testing.T) (path, digest string) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return path, "sha256:" + hex.EncodeToString(sum[:])
}

// The record of a process that acts by a grant has the digest of its program, and the reference
// names each member of the record.
func TestGrantsNameTheProgram(t *testing.T) {
	h := build(t, taskTeam)
	h.actor("builder", "")
	list := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, Event: "grant.attached"}})
	if len(list) != 1 {
		t.Fatalf("on record are %+v", list)
	}
	path, digest := ownProgram(t)
	if d := list[0].Details; d["exe"] != path || d["program"] != digest {
		t.Errorf("on record are program %v of %v, not %s of %s", d["program"], d["exe"], digest, path)
	}
	page, err := os.ReadFile("../../docs/reference/records.md")
	if err != nil {
		t.Fatal(err)
	}
	// Its row refers to the members of the row above.
	rows := regexp.MustCompile("(?m)^\\| \\| `grant.issued`, `grant.revoked` \\| grants of agents.*\n.*`grant.attached`.*$").FindString(string(page))
	for member := range list[0].Details {
		if !regexp.MustCompile("\\b" + member + "\\b").MatchString(rows) {
			t.Errorf("the record has %s, and its row of docs/reference/records.md has not: %s", member, rows)
		}
	}
}

// The record of a registration has the digest of the program that registered, and the model
// that it claims to use.
func TestRegistrationsNameTheProgram(t *testing.T) {
	h := build(t, acme)
	says := manifest("@acme/alice", api.Capabilities{})
	says.Model = "some-model-2026-11"
	if _, err := h.connect().Register(t.Context(), says); err != nil {
		t.Fatal(err)
	}
	h.register("@acme/bob", api.Capabilities{})
	path, want := ownProgram(t)
	records := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionAppLifecycle, Event: "registered"}})
	if len(records) != 2 {
		t.Fatalf("%d registrations are on record", len(records))
	}
	for i, model := range []any{says.Model, nil} {
		if d := records[i].Details; d["program"] != want || d["exe"] != path || d["model"] != model {
			t.Errorf("%s is on record with program %v of %v, model %v", records[i].AppID, d["program"], d["exe"], d["model"])
		}
	}
}
