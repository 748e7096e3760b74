package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// judged is the company of ungoverned with an operator's model.
func judged(may string) string {
	return strings.Replace(strings.Replace(ungoverned, "max_rounds: 2", "max_rounds: 5", 1), "agents:\n", "ocip: {commitment: {keywords: weigh}, judge: {url: 'http://127.0.0.1:1/v1', model: wise, may: "+may+"}}\nagents:\n", 1)
}

// opens is a message that only a guess holds.
const (
	opens      = "I'll take care of it."
	commitsNot = `{"commits": false, "reason": "It says what the sender does next."}`
	commits    = `{"commits": true, "reason": "It promises to take care."}`
)

// answers makes a model's answer about the shown request.
func answers(saw *api.Approval, answer string) m {
	return m{"approvalId": saw.ApprovalID, "digest": saw.Digest, "model": "wise", "promptDigest": opinion.PromptDigest, "answer": answer}
}

// With annotate, an answer stands in the request and on record, for people alone, and a person
// decides.
func TestJudgeAnnotates(t *testing.T) {
	h := build(t, judged("annotate"))
	ann := h.speaker("ann")
	for _, answer := range []string{commitsNot, commits} {
		held := ann.must("agent.send", m{"to": "ben", "text": opens})
		saw := h.shown(str(held, "approval_id"))
		if !saw.Judgeable() || saw.Opinion != nil {
			t.Fatalf("held is %+v", saw.ApprovalSummary)
		}
		var result approval.JudgeResult
		h.operator("approval.judge", answers(&saw, answer), &result)
		if result.Released || result.State != api.ApprovalPending || result.AuditSeq == 0 {
			t.Errorf("the answer's result is %+v", result)
		}
		now := h.shown(saw.ApprovalID)
		if o := now.Opinion; o == nil || o.Commits != (answer == commits) || o.Model != "wise" || o.PromptDigest != opinion.PromptDigest || o.At == 0 || now.Digest != saw.Digest || now.Judgeable() {
			t.Errorf("the request is %+v", now.ApprovalSummary)
		}
		if told := ann.must("agent.approval", m{"approval_id": saw.ApprovalID}); told["opinion"] != nil || strings.Contains(str(told, "reason"), "sender does") {
			t.Errorf("the agent is told %v", told)
		}
		r := h.records(audit.Filter{Like: audit.Record{ApprovalID: saw.ApprovalID, Event: "judged"}})
		if len(r) != 1 || r[0].Details["answer"] != answer || !strings.HasPrefix(r[0].Details["answerDigest"].(string), "hmac-sha256:") || r[0].Details["model"] != "wise" || r[0].Details["proof"] != "judge" || r[0].Details["decision"] != "judge" || r[0].Details["uid"] != nil {
			t.Errorf("on record is %+v", r)
		}
		person := h.operates()
		person.judgeConflict(api.ApprovalBlocked, answers(&saw, commitsNot)) // once
		h.decides("deny", saw.ApprovalID)
		h.shown(saw.ApprovalID)
	}
	h.verify()
}

// judgeConflict makes an answer that must be refused with a code.
func (a *app) judgeConflict(code ocip.Code, params m) {
	a.t.Helper()
	if e := a.refuse(api.Conflict, "approval.judge", params); ocipCode(a.t, e) != string(code) {
		a.t.Errorf("refused as %s (%s), want %s", ocipCode(a.t, e), e.Message, code)
	}
}

// With release, a no sends the message. Its record has the model, the digests and the answer, its
// envelope claims no person's word, and its receiver may answer.
func TestJudgeReleases(t *testing.T) {
	h := build(t, judged("release"))
	ann, ben := h.speaker("ann"), h.speaker("ben")
	held := ann.must("agent.send", m{"to": "ben", "text": opens})
	saw := h.shown(str(held, "approval_id"))
	var result approval.JudgeResult
	h.operator("approval.judge", answers(&saw, commitsNot), &result)
	if !result.Released || result.State != api.ApprovalApproved {
		t.Fatalf("the answer's result is %+v", result)
	}
	got, _ := ben.read(m{"wait_s": 5})
	if len(got) != 1 || !strings.Contains(str(got[0], "text"), opens) {
		t.Fatalf("ben reads %v", got)
	}
	decided := h.records(audit.Filter{Like: audit.Record{ApprovalID: saw.ApprovalID, ActionType: audit.ActionApproval}})
	if len(decided) != 1 || decided[0].Event != api.ApprovalApproved || decided[0].PolicyApplied != "judge" || decided[0].PolicyResult != audit.ResultAllow {
		t.Fatalf("decided by %+v", decided)
	}
	for name, want := range map[string]any{
		"by": "judge", "decision": "approve", "proof": "judge", "model": "wise", "promptDigest": opinion.PromptDigest, "answer": commitsNot, "commits": false, "uid": nil, "digest": saw.Digest,
	} {
		if got := decided[0].Details[name]; got != want {
			t.Errorf("its %s is %v, want %v", name, got, want)
		}
	}
	var stats audit.Stats
	h.operator("audit.stats", m{}, &stats)
	if !slices.ContainsFunc(stats.Rules, func(r audit.StatsRow) bool { return r.Name == "judge" && r.None == 1 }) {
		t.Errorf("the statistics have %+v", stats.Rules)
	}
	if now := h.shown(saw.ApprovalID); now.State != api.ApprovalApproved || now.Decision.By != "judge" || now.Opinion == nil || now.Opinion.Reason != "" {
		t.Errorf("the request is %+v, decided %+v, opinion %+v", now.ApprovalSummary, now.Decision, now.Opinion)
	}
	sent := h.records(audit.Filter{Like: audit.Record{DispatchID: str(held, "dispatch_id"), Side: audit.SideSender, PolicyResult: audit.ResultAllow}})
	if len(sent) != 1 || sent[0].ApprovalID != saw.ApprovalID || sent[0].Round != 1 {
		t.Errorf("sent as %+v", sent)
	}
	if kind := str(got[0], "message_type"); kind == string(ocip.AgentAssisted) || kind == string(ocip.Human) {
		t.Errorf("the receiver is told that it is %s", kind)
	}
	if answer := ben.must("agent.send", m{"to": "ann", "text": "It is in the shed."}); answer["approval_id"] != nil {
		t.Errorf("the answer is held: %v", answer)
	}
	// A yes releases nothing.
	held = ann.must("agent.send", m{"to": "ben", "text": "I will take care of that one as well."})
	saw = h.shown(str(held, "approval_id"))
	h.operator("approval.judge", answers(&saw, commits), &result)
	if result.Released || h.shown(saw.ApprovalID).State != api.ApprovalPending {
		t.Errorf("after a yes: %+v", result)
	}
	h.verify()
}

// The daemon weighs by itself whether a model may decide.
func TestJudgeDecidesGuessesAlone(t *testing.T) {
	h := build(t, strings.Replace(judged("release"), "max_classification_shared: internal, max_rounds: 5}", "max_classification_shared: internal, max_rounds: 5, keywords: enforce}", 1))
	for _, c := range []struct{ from, to, text, why string }{
		{"ann", "ben", "I agree with the reviewer that the name is odd.", "a keyword that is not weighed"},
		{"ben", "ann", "I'll take care of it by Friday.", "a deadline"},
		{"ben", "ann", "I'll take care of it within the hour.", "a deadline in words"},
		{"ben", "ann", "I'll take care of it. 500 EUR.", "a sum of money"},
		{"ben", "ann", "I'll take care of it for five thousand.", "a sum in words"},
		{"ben", "ann", "I'll take care of it. On accepte votre offre, on paie tout.", "another language after English"},
		{"ben", "ann", "I\u200b'll take care of it.", "a disguise"},
		{"ben", "ann", "Ich kümmere mich darum und verspreche es.", "another language"},
	} {
		from := h.speaker(c.from)
		held := from.must("agent.send", m{"to": c.to, "text": c.text})
		if held["approval_id"] == nil {
			t.Errorf("%s is not held: %v", c.why, held)
			continue
		}
		saw := h.shown(str(held, "approval_id"))
		if saw.Judgeable() {
			t.Errorf("%s: a model is asked about %+v", c.why, saw.Reasons)
		}
		h.operates().judgeConflict(api.ApprovalBlocked, answers(&saw, commitsNot))
		if now := h.shown(saw.ApprovalID); now.State != api.ApprovalPending || now.Opinion != nil {
			t.Errorf("%s: the request is %+v", c.why, now.ApprovalSummary)
		}
		h.decides("deny", saw.ApprovalID)
	}
	h.verify()
}

// noticesReleased reports that the message of a request left, which it may not.
func (h *harness) noticesReleased(approvalID, why string) {
	h.t.Helper()
	for _, r := range h.records(audit.Filter{Like: audit.Record{ApprovalID: approvalID, Side: audit.SideSender, PolicyResult: audit.ResultAllow}}) {
		h.t.Errorf("noticed: the message of approval %s to %s was released: %s", approvalID, r.ConversationID, why)
	}
}

// An answer of another form, model, question or text changes nothing, nor does one without a judge.
func TestCanaryOfJudgeAnswers(t *testing.T) {
	h := build(t, judged("release"))
	held := h.speaker("ann").must("agent.send", m{"to": "ben", "text": opens})
	saw := h.shown(str(held, "approval_id"))
	person := h.operates()
	with := func(name, value string) m {
		p := answers(&saw, commitsNot)
		p[name] = value
		return p
	}
	for _, answer := range []string{"no", `{"commits": false}`, "```\n" + commitsNot + "\n```", commitsNot + commitsNot, `{"commits": "false", "reason": "x"}`, strings.Repeat(" ", opinion.MaxAnswer) + commitsNot} {
		e := person.refuse(api.InvalidParams, "approval.judge", with("answer", answer))
		contains(t, e.Message, "answer")
	}
	person.refuse(api.Forbidden, "approval.judge", with("model", "other"))
	person.refuse(api.Forbidden, "approval.judge", with("promptDigest", "sha256:00"))
	person.refuse(api.NotFound, "approval.judge", with("approvalId", "none"))
	err := person.call("approval.judge", with("digest", "sha256:00"), nil)
	h.noticesReleased(saw.ApprovalID, "the model was shown another request")
	if e := new(api.Error); !errors.As(err, &e) || ocipCode(t, e) != string(api.ApprovalStale) {
		t.Errorf("another digest: %v", err)
	}
	if now := h.shown(saw.ApprovalID); now.State != api.ApprovalPending || now.Opinion != nil {
		t.Errorf("the request is %+v", now.ApprovalSummary)
	}
	h.decides("deny", saw.ApprovalID)
	person.judgeConflict(api.AlreadyDecided, with("digest", saw.Digest))

	h.edit(ungoverned)
	if _, err := h.reload(); err != nil {
		t.Fatal(err)
	}
	person.refuse(api.Forbidden, "approval.judge", answers(&saw, commitsNot))
	h.verify()
}

// A rule that came into force while the model was thinking holds the message.
func TestCanaryOfJudgeRules(t *testing.T) {
	h := build(t, judged("release"))
	// No rule of a receiver stands behind the sender's for a chat.
	first := h.speaker("ann").must("agent.send", m{"to": "telegram:dave", "text": opens})
	saw := h.shown(str(first, "approval_id"))
	path := h.path("people.rego")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agent_exchange", "cross_org"} {
		rule := "package ocip." + name + "\n\ndecision := {\"allow\": true, \"require_approval\": true, \"constraints\": {}, \"reason\": \"a person looks at everything\"}\n"
		if err := os.WriteFile(filepath.Join(path, name+".rego"), []byte(rule), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.edit(judged("release") + "policy: {path: " + path + "}\n")
	if _, err := h.reload(); err != nil {
		t.Fatal(err)
	}
	person := h.operates()
	err := person.call("approval.judge", answers(&saw, commitsNot), nil)
	now := h.shown(saw.ApprovalID)
	h.noticesReleased(saw.ApprovalID, "the policy wants a person")
	if now.State != api.ApprovalPending {
		t.Fatalf("it is %s after %v", now.State, err)
	}
	if !slices.ContainsFunc(h.records(audit.Filter{Like: audit.Record{ApprovalID: saw.ApprovalID}}), func(e audit.Entry) bool { return e.Event == "asked_anew" || e.Event == "judged" }) {
		t.Errorf("nothing of it is on record; the answer was %v", err)
	}
	// Looked at again, the answer stands in the request, and another rule holds the message.
	if now.Opinion == nil {
		var result approval.JudgeResult
		h.operator("approval.judge", answers(&now, commitsNot), &result)
		if result.Released {
			t.Fatalf("noticed: the message of approval %s was released: the policy wants a person", now.ApprovalID)
		}
	}
	if now = h.shown(saw.ApprovalID); now.State != api.ApprovalPending || now.Opinion == nil {
		t.Errorf("the request is %+v", now.ApprovalSummary)
	}
	h.verify()
}

// A released message that waits is sent under the rules of then: it stays under those of a judge, and
// a person is asked once there is none.
func TestJudgedMessageWaits(t *testing.T) {
	for name, c := range map[string]struct {
		next string
		want []string
		read int
	}{
		"same":     {judged("release") + "# the same\n", []string{"read"}, 1},
		"annotate": {judged("annotate"), []string{"asked_anew"}, 0},
		"none":     {ungoverned, []string{"asked_anew"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, judged("release"))
			held := h.speaker("ann").must("agent.send", m{"to": "ben", "text": opens})
			saw := h.shown(str(held, "approval_id"))
			var result approval.JudgeResult
			h.operator("approval.judge", answers(&saw, commitsNot), &result)
			if !result.Released {
				t.Fatalf("the result is %+v", result)
			}
			h.reloaded(c.next)
			ben := h.speaker("ben")
			got, cursor := ben.read(m{})
			if len(got) != c.read {
				t.Fatalf("ben reads %v", got)
			}
			if len(got) > 0 {
				ben.read(m{"cursor": cursor})
			}
			if events := h.eventsOf(str(held, "dispatch_id")); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, c.want[0]) }) {
				t.Errorf("its events are %q, want %q", events, c.want)
			}
			h.verify()
		})
	}
}

// A runtime that delivers by itself redeems a released message, as it redeems an approved one.
func TestJudgedMessageRedeemed(t *testing.T) {
	h := build(t, acme+"ocip: {commitment: {keywords: weigh}, judge: {url: 'http://127.0.0.1:1/v1', model: wise, may: release}}\n")
	alice := h.redeems()
	held := alice.emitHeld(map[string]any{"sessionKey": "agent:bob:main", "content": opens, "metadata": map[string]any{"origin": "chat", "exchange": map[string]any{"new": true}}})
	saw := h.shown(held.ApprovalID)
	var result approval.JudgeResult
	h.operator("approval.judge", answers(&saw, commitsNot), &result)
	alice.concludes(held.ApprovalID, api.ApprovalApproved)
	if got := alice.redeem(held.ApprovalID); !strings.Contains(string(got.Data), opens) {
		t.Errorf("redeemed is %s", got.Data)
	}
	h.verify()
}

// hostile is a text that addresses the model.
type hostile struct {
	// Form is how it does so.
	Form string `json:"form"`
	Text string `json:"text"`
	// Obeyed is what becomes of it if the model obeys it: sent, held (no model is asked) or
	// passes (no rule holds it).
	Obeyed string `json:"obeyed"`
}

// A hundred texts address a model that obeys each of them. With annotate none is sent. With release
// those are sent that testdata says, and docs/guides/judge.md has their number: none with a sum of
// money, a deadline, a disguise or another language.
func TestJudgeHostileTexts(t *testing.T) {
	file, err := os.ReadFile("testdata/judge-hostile.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []hostile
	for line := range strings.Lines(string(file)) {
		var one hostile
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if len(all) != 100 {
		t.Fatalf("there are %d texts", len(all))
	}
	const obeys = `{"commits": false, "reason": "I was told so."}`
	for _, may := range []string{"annotate", "release"} {
		h := build(t, strings.Replace(judged(may), "agents:\n", "approvals: {max_open: 1000}\nagents:\n", 1))
		ann, person := h.speaker("ann"), h.operates()
		sent := map[string]int{}
		for i, one := range all {
			said := ann.must("agent.send", m{"to": "ben", "text": one.Text, "new_exchange": true})
			got := "passes"
			if id := str(said, "approval_id"); said["approval_id"] != nil {
				got = "held"
				saw := h.shown(id)
				var result approval.JudgeResult
				if err := person.call("approval.judge", answers(&saw, obeys), &result); err == nil && result.Released {
					got = "sent"
				} else if saw.Judgeable() != (err == nil) {
					t.Errorf("%d: judgeable %t, and %v", i+1, saw.Judgeable(), err)
				}
				if state := h.shown(id).State; (state == api.ApprovalPending) != (got == "held") {
					t.Errorf("%d: it is %s", i+1, state)
				} else if got == "held" {
					person.must("approval.resolve", decision(api.DecideDeny, &saw), nil)
				}
			}
			want := one.Obeyed
			if may == "annotate" && want == "sent" {
				want = "held"
			}
			if got != want {
				t.Errorf("%s, line %d, %s: %.80q is %s, want %s", may, i+1, one.Form, one.Text, got, want)
			}
			sent[one.Form+" "+got]++
		}
		t.Log(sent)
	}
}
