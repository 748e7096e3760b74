package daemon_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// said are the texts from callers to a daemon, by the beginning of the SHA-256 of each in the
// forms in which a program would hash it. An attacker with the log finds a guessed text so.
type said struct {
	mu     sync.Mutex
	texts  map[string]string
	method map[string]bool
}

// hexDigits is how many digits identify a digest.
const hexDigits = 16

var someDigits = regexp.MustCompile(`[0-9a-f]{16,}`)

func (s *said) text(text string) {
	canonical := jsontext.Value(text)
	forms := []string{text, text + "\n", fmt.Sprintf("%d:%s\n", len(text), text), string(api.String(text))}
	if canonical = canonical.Clone(); canonical.Canonicalize() == nil {
		forms = append(forms, string(canonical))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, form := range forms {
		sum := sha256.Sum256([]byte(form))
		s.texts[hex.EncodeToString(sum[:])[:hexDigits]] = text
	}
}

// call adds the texts of a call: the whole, and each part.
func (s *said) call(method string, params []byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.texts == nil {
		s.texts, s.method = make(map[string]string), make(map[string]bool)
	}
	s.method[method] = true
	s.mu.Unlock()
	s.text(method + "\n" + string(params))
	s.value(params)
}

// calls is call for parameters that are not encoded yet.
func (s *said) calls(method string, params any) {
	if s == nil {
		return
	}
	if encoded, err := json.Marshal(params, json.Deterministic(true)); err == nil {
		s.call(method, encoded)
	}
}

func (s *said) value(v jsontext.Value) {
	if kind := v.Kind(); kind == 'n' || kind == 't' || kind == 'f' || kind == '0' {
		return
	}
	s.text(string(v))
	var text string
	var list []jsontext.Value
	var object map[string]jsontext.Value
	switch v.Kind() {
	case '"':
		if json.Unmarshal(v, &text) == nil && text != "" {
			s.text(text)
		}
	case '[':
		if json.Unmarshal(v, &list) == nil {
			for _, one := range list {
				s.value(one)
			}
		}
	case '{':
		if json.Unmarshal(v, &object) == nil {
			for name, one := range object {
				s.text(name)
				s.value(one)
			}
		}
	}
}

// request adds a request to start an effect without a command, without its salt.
func (s *said) request(t *testing.T, id string, planned m) {
	t.Helper()
	encoded, err := json.Marshal(planned)
	if err != nil {
		t.Fatal(err)
	}
	var p task.Planned
	if err := json.Unmarshal(encoded, &p); err != nil {
		t.Fatal(err)
	}
	digest, err := task.RequestDigest(id, &p, new(task.BoundPair))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[strings.TrimPrefix(digest, "sha256:")[:hexDigits]] = "the request " + p.RequestedAction
}

// in lists the texts that a line reveals.
func (s *said) in(line []byte) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, digits := range someDigits.FindAll(line, -1) {
		if text, known := s.texts[string(digits[:hexDigits])]; known {
			list = append(list, text)
		}
	}
	return list
}

// plain reports texts that the log reveals, by the kind of record and the text.
func (h *harness) plain(s *said) {
	h.t.Helper()
	faults := make(map[string]string)
	lines := 0
	for before := uint64(0); ; {
		var page api.AuditQueryResult
		h.operator("audit.query", map[string]any{"limit": 1000, "before": before}, &page)
		for _, line := range page.Records {
			lines++
			r, err := audit.Parse(line)
			if err != nil {
				h.t.Fatal(err)
			}
			for _, text := range s.in(line) {
				faults[fmt.Sprintf("%s %s: %.120q", r.ActionType, r.Event, text)] = string(line)
			}
		}
		if before = page.NextBefore; before == 0 {
			break
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(faults))[:min(len(faults), 20)] {
		h.t.Errorf("found by guessing: %s: %.600s", fault, faults[fault])
	}
	// The guesses work.
	if known := sha256.Sum256([]byte("a text that was said")); lines < 20 || len(s.in(fmt.Appendf(nil, `{"digest":"sha256:%x"}`, known))) != 1 {
		h.t.Errorf("%d records are looked at, and what was said is not found in a line that gives it away", lines)
	}
}

// No recorded digest reveals a text of an actor of tasks, or of a person about them, to an
// attacker who tries likely texts.
func TestTasksCannotBeGuessed(t *testing.T) {
	h := plot(t, taskTeam)
	h.said = new(said)
	h.said.call("", []byte(`"a text that was said"`))
	h.start()
	t.Cleanup(h.stop)
	lead := h.actor("lead", "")
	work := filepath.Join(h.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	writes := func(name, text string) {
		t.Helper()
		h.said.text(text)
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writes("spec.md", "# Pay the miller\n"+goodTaskSpec)
	writes("pay.sh", "#!/bin/sh\necho 4200\n")
	writes("out.txt", "42")
	command := m{"argv": []any{"./pay.sh", "4200 EUR"}, "cwd": ".", "env": m{"TO": "Miller"}, "env_from": []any{"HOME"}, "inputs": []any{"out.txt"}, "stdin": "to the miller", "timeout_s": 7}
	pay := m{"idempotency_key": "pay", "side_effect_kind": "payment", "requested_action": "Pay 4200 EUR to Miller", "command": command, "compensation": m{"argv": []any{"./pay.sh", "back"}}}
	tell := m{"idempotency_key": "tell", "side_effect_kind": "mail", "requested_action": "Tell Miller", "params": m{"to": "miller@acme.example", "amount": 4200}}
	drop := m{"idempotency_key": "drop", "side_effect_kind": "mail", "requested_action": "Tell nobody", "params": m{"to": "nobody"}}
	c := &crew{h: h, lead: lead}
	c.id = str(lead.must("task.create", m{
		"title": "Pay the miller", "workspace": work, "initial_phase": "spec_draft", "spec_ref": m{"uri": "spec.md"}, "labels": []any{"salaries"}, "effects": []any{pay, tell},
		"request_key": "create once",
	}), "task_id")
	of := func(more m) m {
		p := m{"task_id": c.id}
		maps.Copy(p, more)
		return p
	}
	lead.must("task.update", of(m{"expected_revision": lead.must("task.get", of(nil))["revision"], "title": "Pay the miller now", "labels": []any{"wages"}, "spec_markdown": goodTaskSpec, "request_key": "update once"}))
	c.move(task.SpecReview)
	findings := []any{m{"severity": "minor", "message": "the miller wants more", "file": "spec.md", "line": 3, "artifact_uri": "out.txt"}}
	reviews := func(name, kind string) {
		t.Helper()
		h.actor(name, c.id).must("task.append_review", of(m{"review_type": kind, "reviewer_ref": name, "verdict": "approved", "summary": "paid enough", "findings": findings, "attempt_id": c.attempt}))
	}
	c.review("spec", "approved")
	lead.must("task.claim", of(m{"lease_s": 60}))
	c.move(task.ExecutionReady)
	c.attempt = str(lead.must("task.start_attempt", of(m{
		"phase": "executing", "actor": "lead", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder", "external_session_ref": "the miller's session",
	})), "attempt_id")
	builder := h.actor("builder", c.id)
	c.move(task.Executing)
	builder.must("task.record_checkpoint", of(m{"attempt_id": c.attempt, "checkpoint_type": "progress", "payload": m{"paid": "2100 EUR"}}))
	permitted := make(chan error, 1)
	go func() {
		_, err := builder.call("task.ask_permission", of(m{
			"attempt_id": c.attempt, "options": []any{}, "tool_call": m{"id": "call 1", "kind": "execute", "title": "pay half", "mcp_server": "bank", "input": m{"amount": "2100 EUR"}},
		}))
		permitted <- err
	}()
	person := h.operates()
	says := func(what string, a api.Approval) {
		t.Helper()
		params := decision(what, &a)
		params["note"] = "the miller has waited"
		person.must("approval.resolve", params, nil)
	}
	h.statusUntil("what was asked", func(api.Status) bool {
		return len(h.records(audit.Filter{Like: audit.Record{Event: "task_permission"}})) == 1
	})
	var page api.ApprovalListResult
	h.operator("approval.list", m{}, &page)
	var waits api.ApprovalSummary
	if err := json.Unmarshal(page.Approvals[0], &waits, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	says(api.DecideApprove, h.shown(waits.ApprovalID))
	if err := <-permitted; err != nil {
		t.Fatal(err)
	}
	builder.must("task.record_artifact", of(m{"attempt_id": c.attempt, "kind": "primary_output", "uri": "out.txt", "produced_by": "builder", "summary": "how much"}))
	builder.must("task.plan_effect", of(drop))
	builder.must("task.finish_attempt", of(m{"attempt_id": c.attempt, "outcome": "succeeded", "error_summary": "none at all"}))
	c.move(task.SpecGate)
	reviews("checker", "spec")
	c.move(task.QualityGate)
	reviews("critic", "quality")
	c.move(task.AwaitingApproval)
	effects := make(map[string]m)
	for _, what := range []m{pay, tell} {
		p := of(m{"requested_by": "the lead"})
		for _, name := range []string{"idempotency_key", "side_effect_kind", "requested_action"} {
			p[name] = what[name]
		}
		asked := lead.must("task.request_approval", p)
		h.said.request(t, c.id, what)
		effects[str(what, "idempotency_key")] = asked
		shown := h.shown(str(asked, "approval_id"))
		if str(what, "idempotency_key") == "pay" {
			says(api.DecideApprove, shown)
			continue
		}
		h.taskOperator().must("task.resolve_approval", of(m{"approval_id": asked["approval_id"], "resolution": "approved", "resolved_by": "the boss", "note": "tell them", "digest": shown.Digest}))
	}
	cancelled := str(lead.must("task.get", of(nil))["effects"].([]any)[2].(m), "effect_id")
	lead.must("task.cancel_effect", of(m{"effect_id": cancelled}))
	c.move(task.ReadyToResume)
	operator := h.taskOperator()
	operator.attaches()
	run := func(key string) m {
		t.Helper()
		return lead.must("task.run_effect", of(m{"idempotency_key": key, "request_digest": effects[key]["request_digest"]}))
	}
	digest := func(text string) string {
		h.said.text(text)
		sum := sha256.Sum256([]byte(text))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	paid := run("pay")
	reported := of(m{"effect_id": paid["effect_id"], "run": paid["run"]})
	report := func(more m) {
		t.Helper()
		p := maps.Clone(reported)
		maps.Copy(p, more)
		operator.must("runner.report", p)
	}
	process, end := endingProcess(t)
	report(m{"event": "waits", "process": process})
	report(m{"event": "spawned", "pid": 4242})
	operator.must("task.kill_effect", of(m{"effect_id": paid["effect_id"], "reason": "too much"}))
	out := func(text string) m { return m{"text": text, "bytes": len(text), "digest": digest(text)} }
	report(m{"event": "finished", "state": "outcome_unknown", "evidence": "nobody has seen the end", "receipt": m{
		"exit_code": 3, "stdout": out("4200\n"), "stderr": out("late\n"), "started_at": "2026-11-23T10:00:00Z", "ended_at": "2026-11-23T10:00:01Z",
	}})
	end()
	operator.must("task.settle_effect", of(m{"effect_id": paid["effect_id"], "outcome": "done", "note": "the bank says so"}))
	told := run("tell")
	lead.must("task.finish_effect", of(m{"effect_id": told["effect_id"], "run": told["run"], "run_token": told["run_token"], "outcome": "done", "receipt": m{"id": "mail 7"}}))
	lead.must("task.open_circuit", of(m{"actor": "lead", "reason": "the miller moved", "latest_attempt_id": c.attempt}))
	operator.must("task.close_circuit", of(m{"to_phase": "spec_draft", "reason": "the miller is back"}))
	operator.must("task.import", m{
		"origin": "v1:mill", "tenant_id": "acme-corp", "title": "Mend the mill", "phase": "spec_draft", "workspace": work, "spec_markdown": goodTaskSpec, "labels": []any{"mill"},
		"artifacts": []any{m{"uri": "out.txt"}, m{"uri": "gone.txt", "digest": digest("ground to dust")}}, "status": "broken", "last_error": "no wind",
	})
	granted := operator.must("task.grant", of(m{"actor": "second", "tools": []any{"task_get"}, "bind": "program"}))
	operator.must("task.grants", of(m{}))
	operator.must("task.revoke_grant", of(m{"grant_id": granted["grant_id"]}))
	lead.must("task.list_ready", m{"labels": []any{"wages"}})
	operator.must("task.list", m{})

	for method := range taskservice.Matrix() {
		if method != "task.watch" && !h.said.method[method] {
			t.Errorf("%s was not called", method)
		}
	}
	h.plain(h.said)
	h.verify()
	// A holder of the tenant's key who knows a text finds it.
	recorded := h.records(audit.Filter{Like: audit.Record{Event: "artifact.recorded"}})[0]
	mac := h.keyed(audit.LabelTask("artifact"), digest("42"))
	if got := recorded.Details["digests"].(map[string]any)["artifact"]; got != mac {
		t.Errorf("the artifact's digest is %s, want %s", got, mac)
	}
}

// keyed is the digest of a text with the tenant's key of a label, as documented.
func (h *harness) keyed(label, text string) string {
	h.t.Helper()
	digest, err := h.digests().DigestForm("acme-corp", label, func(b []byte) ([]byte, error) { return append(b, text...), nil })
	if err != nil {
		h.t.Fatal(err)
	}
	return digest
}

// A text is found in each form in which it can be hashed.
func TestPlainDigestsAreFound(t *testing.T) {
	s := new(said)
	s.call("some.method", []byte(`{ "b" : "two\u0020words", "a" : [ {"deep":"x"} ] }`))
	for _, text := range []string{"two words", "two words\n", "9:two words\n", `"two words"`, `[{"deep":"x"}]`, `{"a":[{"deep":"x"}],"b":"two words"}`, `{"deep":"x"}`} {
		sum := sha256.Sum256([]byte(text))
		for _, line := range []string{hex.EncodeToString(sum[:]), "x:" + hex.EncodeToString(sum[:8])} {
			if len(s.in([]byte(line))) == 0 {
				t.Errorf("%q is not found by %s", text, line)
			}
		}
	}
	if found := s.in(bytes.Repeat([]byte("0123456789abcdef"), 4)); len(found) > 0 {
		t.Errorf("found is %q", strings.Join(found, " "))
	}
}
