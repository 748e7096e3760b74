package daemon_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task"
)

// newest are the newest records of each event of a task.
func (h *harness) newest(id string) map[string]audit.Entry {
	h.t.Helper()
	found := make(map[string]audit.Entry)
	for _, r := range h.records(audit.Filter{Like: audit.Record{TaskID: id}}) {
		found[r.ActionType+" "+r.Event] = r
	}
	return found
}

// startedEffect is a task with an approved and started effect. shown is the request that
// the person saw.
func (h *harness) startedEffect() (id string, shown api.Approval) {
	h.t.Helper()
	c, ask, run := h.toTell()
	shown = h.shown(str(ask(), "approval_id"))
	h.operates().must("approval.resolve", decision(api.DecideApprove, &shown), nil)
	c.move(task.ReadyToResume)
	c.lead.must("task.run_effect", run())
	return c.id, shown
}

// The log alone shows who approved an effect: the record of the request has the keyed
// digest of the shown text and the digest of the decision, the decision repeats the latter,
// and the start is of the same request.
func TestApprovedEffectsAreOnRecord(t *testing.T) {
	h := build(t, taskTeam)
	id, shown := h.startedEffect()
	events := h.newest(id)
	asked, decided, started := events["task approval.requested"], events["approval approved"], events["task effect.started"]
	if asked.ContentDigest != h.keyed(audit.LabelContent, shown.Content) || asked.ContentBytes != len(shown.Content) || asked.Content != "" || asked.Details["salt"] != nil {
		t.Errorf("the request is on record as %+v", asked)
	}
	if asked.Details["digest"] != shown.Digest || decided.Details["digest"] != shown.Digest || asked.ApprovalID != decided.ApprovalID {
		t.Errorf("asked about %v, decided about %v", asked.Details["digest"], decided.Details["digest"])
	}
	digest := func(r audit.Entry, name string) any { return r.Details["digests"].(map[string]any)[name] }
	if digest(asked, "request") != digest(started, "request") || digest(asked, "request") == nil || started.ApprovalID != asked.ApprovalID {
		t.Errorf("asked is %v, started %v", digest(asked, "request"), digest(started, "request"))
	}
}

// Texts of tasks are kept sealed, if texts are, in the form of their digests.
func TestTextsOfTasksAreSealed(t *testing.T) {
	h, file := sealingOf(t, taskTeam, "full")
	id, shown := h.startedEffect()
	events := h.newest(id)
	unsealed := func(sealed string) string {
		t.Helper()
		text, err := sealedtext.Unseal(file, sealed)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	asked := events["task approval.requested"]
	if got := unsealed(asked.Content); got != shown.Content {
		t.Errorf("kept is %q, want what was shown: %q", got, shown.Content)
	}
	if salt, _ := asked.Details["salt"].(string); unsealed(salt) != shown.Salt {
		t.Error("the salt is not kept with it")
	}
	digests := 0
	for name, r := range events {
		on, _ := r.Details["digests"].(map[string]any)
		texts, _ := r.Details["texts"].(map[string]any)
		if name == "task approval.requested" || len(on)+len(texts) == 0 || r.ActionType != audit.ActionTask {
			continue
		}
		var kept struct {
			Texts   map[string]string
			Digests map[string]jsontext.Value
		}
		if err := json.Unmarshal([]byte(unsealed(r.Content)), &kept, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for what, digest := range texts {
			if h.keyed(audit.LabelContent, kept.Texts[what]) != digest {
				t.Errorf("%s: the digest of %s is of another text", name, what)
			}
		}
		for what, digest := range on {
			digests++
			value := kept.Digests[what]
			text := string(value)
			if value.Kind() == '"' {
				if err := json.Unmarshal(value, &text); err != nil {
					t.Fatal(err)
				}
			} else if err := value.Canonicalize(); err == nil {
				text = string(value)
			}
			if h.keyed(audit.LabelTask(what), text) != digest {
				t.Errorf("%s: the digest of %s is of something else than %s", name, what, text)
			}
		}
	}
	if digests < 6 || !strings.Contains(unsealed(events["task task.created"].Content), "Invoices as CSV.") {
		t.Errorf("%d digests are kept with what they are of", digests)
	}
}

// With held, only texts that wait for a person are kept.
func TestHeldTextsAloneAreSealed(t *testing.T) {
	h, file := sealingOf(t, taskTeam, "held")
	id, shown := h.startedEffect()
	alice := h.agent("@acme/alice")
	waits := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID
	held := h.shown(waits)
	alice.dispatch("agent:bob:main", "How far is it?", fresh(nil))
	alice.refuse(api.Forbidden, "message.dispatch", m{"sessionKey": "telegram:eve", "content": "How far is it?"})
	h.decides(api.DecideApprove, waits)
	want := map[string]string{"task approval.requested": shown.Content, "agent_exchange ": promise}
	for _, r := range h.records(audit.Filter{}) {
		name := r.ActionType + " " + r.Event
		if r.Content == "" {
			if r.ApprovalID == waits && r.PolicyResult == audit.ResultApproval {
				t.Errorf("record %d, %s, does not keep what waits", r.Seq, name)
			}
			continue
		}
		text, err := sealedtext.Unseal(file, r.Content)
		if err != nil || r.ApprovalID != waits && r.TaskID != id || !strings.HasPrefix(text, want[name]) || want[name] == "" {
			t.Errorf("record %d, %s, keeps %q, %v", r.Seq, name, text, err)
		}
		if salt, err := sealedtext.Unseal(file, r.Details["salt"].(string)); err != nil || salt != held.Salt && salt != shown.Salt {
			t.Errorf("record %d, %s: its salt is kept as %q, %v", r.Seq, name, salt, err)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not kept are %v", want)
	}
}
