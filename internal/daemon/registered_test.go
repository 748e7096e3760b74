package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// The record of a registration says which program registered, by the digest of what runs, and by
// which model it says that it speaks.
func TestRegistrationsNameTheProgram(t *testing.T) {
	h := build(t, acme)
	says := manifest("@acme/alice", api.Capabilities{})
	says.Model = "some-model-2026-11"
	if _, err := h.connect().Register(t.Context(), says); err != nil {
		t.Fatal(err)
	}
	h.register("@acme/bob", api.Capabilities{})
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	want := "sha256:" + hex.EncodeToString(sum[:])
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
