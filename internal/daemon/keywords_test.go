package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A message that only keywords hold, and that commits nobody, is sent with the keywords, the
// setting and the reasons on record; so is a promise to an agent of the same person.
func TestKeywordsWeighedOnRecord(t *testing.T) {
	h := build(t, strings.Replace(ungoverned, "agents:\n",
		"ocip: {commitment: {keywords: weigh}, same_owner: record}\nagents:\n  - {id: bea, instance_id: agent-bea-1, user_id: ann, org_unit: engineering, tenant_id: acme-corp}\n", 1))
	ann := h.speaker("ann")
	of := func(sent m) map[string]any {
		r := h.records(audit.Filter{Like: audit.Record{DispatchID: str(sent, "dispatch_id"), Side: audit.SideSender}})
		if len(r) == 0 {
			t.Fatalf("%v is not on record", sent)
		}
		return r[0].Details
	}
	held := ann.must("agent.send", m{"to": "ben", "text": "I agree to the terms."})
	var shown api.Approval
	h.operator("approval.get", m{"approvalId": held["approval_id"]}, &shown)
	if !strings.Contains(shown.LikelyBecause, `"agree" in the first person`) {
		t.Errorf("held, likely because of %q", shown.LikelyBecause)
	}
	h.operator("approval.resolve", m{"approvalId": held["approval_id"], "decision": api.DecideDeny, "digest": shown.Digest}, nil)

	sent := ann.must("agent.send", m{"to": "ben", "text": "The meeting room has a lamp."})
	if sent["approval_id"] != nil {
		t.Fatalf("held: %v", sent)
	}
	weighed, _ := of(sent)["weighed"].(map[string]any)
	if weighed["by"] != "ocip.commitment.keywords" || !slices.Equal(weighed["reasons"].([]any), []any{`"meeting" is the name of a thing`}) || !slices.Equal(of(sent)["keywords"].([]any), []any{"meeting"}) {
		t.Errorf("on record is %v", of(sent))
	}
	ben := h.speaker("ben")
	if answer := ben.must("agent.send", m{"to": "ann", "text": "It is a good one."}); answer["approval_id"] != nil {
		t.Errorf("its answer is held: %v", answer)
	}

	own := ann.must("agent.send", m{"to": "bea", "text": "I promise to send it by Friday."})
	if own["approval_id"] != nil || of(own)["sameOwner"] != "record" {
		t.Errorf("to an agent of the same person: %v, on record %v", own, of(own))
	}
	if answer := h.speaker("bea").must("agent.send", m{"to": "ann", "text": "Fine by me, I'll book it."}); answer["approval_id"] != nil {
		t.Errorf("its answer is held: %v", answer)
	}
}
