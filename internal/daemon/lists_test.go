package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// An old row of a decided request, put back with its own seal, is not shown: the newest record says how
// the request ended. The lists name it, and show all others.
func TestOldEndOfARequestIsNotShown(t *testing.T) {
	h := build(t, acme)
	alice := h.redeems()
	taken, stands := h.approved(alice), h.approved(alice)
	h.stop()
	putBack := h.copyRows()
	h.start()
	h.decides(api.DecideDeny, taken)
	h.stop()
	putBack("approvals")
	h.start()
	if e := h.operates().refuse(api.InternalError, "approval.get", map[string]any{"approvalId": taken}); !strings.Contains(e.Message, "changed by somebody else") {
		t.Errorf("approval.get: %v", e)
	}
	if got := h.shown(stands); got.State != api.ApprovalApproved {
		t.Errorf("the other one is %s", got.State)
	}
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{"state": "all"}, &list)
	if len(list.Approvals) != 1 || !strings.Contains(string(list.Approvals[0]), stands) || len(list.Altered) != 1 || !strings.HasPrefix(list.Altered[0], "approvals ") {
		t.Errorf("approval.list: %s", list.Append(nil))
	}
	waitFor(t, "the record of the row", func() bool { return slices.Equal(h.altered(), []string{"approvals"}) })
	if r := h.records(audit.Filter{Like: audit.Record{Event: "altered_row"}})[0]; list.Altered[0] != "approvals "+r.Details["row"].(string) {
		t.Errorf("listed is %s, on record %v", list.Altered, r.Details)
	}
}

// One altered row hides no other one from an operator: the list leaves it out, and names it.
func TestListsGoOnAfterAnAlteredRow(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "Hello", fresh(nil))
	alice.dispatch("agent:bob:main", "Hello", fresh(nil))
	h.stop()
	h.editRows(`UPDATE exchanges SET state = replace(state, '"round":1', '"round": 1') WHERE counterparty = 'agent-dave-1'; UPDATE sessions SET account_id = 'forged' WHERE key = 'telegram:dave'`)
	h.start()
	for method, table := range map[string]string{"exchange.list": "exchanges", "contact.list": "sessions"} {
		var list struct {
			Exchanges []jsontext.Value `json:"exchanges"`
			Contacts  []jsontext.Value `json:"contacts"`
			Altered   []string         `json:"altered"`
		}
		h.operator(method, nil, &list)
		if len(list.Exchanges)+len(list.Contacts) == 0 || len(list.Altered) != 1 || !strings.HasPrefix(list.Altered[0], table+" ") {
			t.Errorf("%s: %+v", method, list)
		}
		waitFor(t, "the record of the row", func() bool { return slices.Contains(h.altered(), table) })
	}
}
