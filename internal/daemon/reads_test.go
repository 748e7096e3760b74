package daemon_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Reading the text of a request is recorded, once for each reader and text; so are exports
// of the log and copies of the state.
func TestReadingIsOnRecord(t *testing.T) {
	h := build(t, acme)
	alice, person := h.agent("@acme/alice"), h.operates()
	ids := []string{
		alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID,
		alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+" again", fresh(nil)).ApprovalID,
	}
	read := func(event string) []audit.Entry {
		t.Helper()
		return h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, Event: event}})
	}
	by := fmt.Sprintf("uid:%d", os.Geteuid())
	for i, id := range ids {
		for range 3 {
			saw := h.shown(id)
			list := read("held_text_read")
			if len(list) != i+1 || list[i].ApprovalID != id || list[i].Details["digest"] != saw.Digest || list[i].Details["by"] != by {
				t.Fatalf("on record are %+v", list)
			}
		}
	}
	// An agent may read its own request, and a decided one has no text.
	alice.must("approval.get", map[string]any{"approvalId": ids[0]}, nil)
	h.decides(api.DecideDeny, ids[0])
	h.shown(ids[0])
	if n := len(read("held_text_read")); n != 2 {
		t.Errorf("%d are on record", n)
	}

	lines := func(params m) (n int) {
		t.Helper()
		if err := person.Each(t.Context(), "audit.tail", params, func(jsontext.Value) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	lines(m{"after": 0})
	if n := len(read("log_exported")); n != 0 {
		t.Errorf("reading is on record as one of %d", n)
	}
	// The record precedes the export, so a complete export contains it.
	if n := lines(m{"after": 0, "export": true}); uint64(n) != h.logEnd() {
		t.Errorf("%d records are read, and there are %d", n, h.logEnd())
	}
	lines(m{"after": 2, "export": true, "filter": m{"agent": "agent-alice-1"}})
	list := read("log_exported")
	if len(list) != 2 || list[0].Details["after"] != 0.0 || list[1].Details["after"] != 2.0 || list[1].Details["filter"] == nil || list[1].Details["by"] != by {
		t.Errorf("on record are %+v", list)
	}

	person.must("backup.note", m{"directory": "/mnt/backup"}, nil)
	if list := read("backup_begun"); len(list) != 1 || list[0].Details["directory"] != "/mnt/backup" || list[0].Details["by"] != by {
		t.Errorf("on record are %+v", list)
	}
	h.stop()
	h.start()
	h.shown(ids[1])
	if n := len(read("held_text_read")); n != 3 {
		t.Errorf("after a start %d are on record", n)
	}
}
