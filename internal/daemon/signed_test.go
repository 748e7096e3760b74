package daemon_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// challenge asks how to sign a call of a method.
func (a *app) challenge(method string) (c api.Challenge) {
	a.t.Helper()
	a.must("operator.challenge", m{"method": method}, &c)
	return c
}

// signature is a person's signature for a call.
func (a *app) signature(name, method, nonce string, params any) string {
	a.t.Helper()
	encoded, err := json.Marshal(params, json.Deterministic(true))
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := api.SignedCall(method, nonce, encoded)
	if err != nil {
		a.t.Fatal(err)
	}
	return signs(a.t, name, text, api.ApprovalNamespace)
}

// callSigned makes a call with a signature.
func (a *app) callSigned(method string, params any, signature string, result any) error {
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.CallSigned(ctx, method, params, signature, result)
}

// mustSigned makes a call that a person has signed.
func (a *app) mustSigned(name, method string, params, result any) {
	a.t.Helper()
	if err := a.callSigned(method, params, a.signature(name, method, a.challenge(method).Nonce, params), result); err != nil {
		a.t.Fatalf("%s, signed by %s: %v", method, name, err)
	}
}

// signing says for each operators' method whether it needs a signature. The author of a new
// one decides here.
var signing = map[api.Signing][]string{
	api.Reads: {
		"approval.get", "approval.list", "approval.watch", "audit.inspect", "audit.query", "audit.stats", "audit.tail", "audit.verify", "config.diff", "contact.list",
		"debug.profile", "exchange.get", "exchange.list", "fleet.status", "grant.list", "kernel.describe", "kernel.methods", "kernel.status", "operator.challenge", "peer.check", "queue.list",
		"store.snapshot", "task.get", "task.grants", "task.list", "task.list_ready", "task.watch",
	},
	api.Unsigned: {
		"approval.judge",              // no judge releases anything if approvals are signed
		"fleet.attach", "fleet.bring", // frames are sealed, and signed by their host
		"backup.note", "console.report", "grant.revoke", "policy.reload", "runner.attach", "runner.report", "sending.check", "sending.pause", "stream.cancel",
		"task.cancel_effect", "task.claim", "task.create", "task.finish_attempt", "task.finish_effect", "task.kill_effect", "task.open_circuit", "task.plan_effect",
		"task.request_approval", "task.revoke_grant", "task.run_effect", "task.start_attempt", "task.transition", "task.update",
	},
	api.Signed: {
		"audit.forget", "audit.retire", "audit.rotate_key", "contact.forget", "queue.drop", "sending.message", "sending.resume",
		"task.close_circuit", "task.grant", "task.import", "task.settle_effect",
	},
	api.SignedParams: {"approval.resolve", "exchange.resolve", "grant.add", "task.resolve_approval"},
}

func TestEachMethodOfOperatorsIsOnOneSide(t *testing.T) {
	h := build(t, acme)
	var list api.MethodList
	h.operator("kernel.methods", nil, &list)
	found := make(map[api.Signing][]string)
	for _, method := range list.Methods {
		switch {
		case method.Access == "task" && !taskservice.Matrix()[method.Name].Has(task.Operator):
		case method.Access == "operator" || method.Access == "task" || method.Access == "any":
			found[method.Signing] = append(found[method.Signing], method.Name)
			if method.Signing == api.Signed && method.Pace == "streaming" {
				t.Errorf("%s streams: no signature of it is checked", method.Name)
			}
		case method.Signing != "":
			t.Errorf("%s is not served to operators, and is %s", method.Name, method.Signing)
		}
	}
	for side := range found {
		slices.Sort(found[side])
		if want := slices.Sorted(slices.Values(signing[side])); !slices.Equal(found[side], want) {
			t.Errorf("%s are %q, want %q", side, found[side], want)
		}
	}
	if len(found) != len(signing) {
		t.Errorf("the sides are %v", slices.Collect(maps.Keys(found)))
	}
}

// Attack: a process of the same user without a key calls methods that loosen, destroy,
// settle, forget or speak for an agent; also with a copied signature.
func TestCallsThatLoosenAreSigned(t *testing.T) {
	h := guarded(t, taskTeam, rego(true, "ok"), listed(t, "carol", ""))
	alice, person := h.agent("@acme/alice"), h.operates()
	alice.dispatch("agent:bob:main", "How far is it?", nil)
	const nobody = "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	calls := map[string]m{
		"audit.forget":       {"tenant": "acme-corp"},
		"audit.retire":       {"before": "2020-01-01T00:00:00Z"},
		"audit.rotate_key":   {},
		"contact.forget":     {"sessionKey": "telegram:zed", "note": "not him"},
		"queue.drop":         {"dispatchIds": []string{"none"}},
		"sending.message":    {"agent": "alice", "sessionKey": "agent:bob:main", "content": "And how deep?"},
		"sending.resume":     {"agent": "alice"},
		"task.close_circuit": {"task_id": nobody, "to_phase": "spec_draft", "reason": "so"},
		"task.grant":         {"actor": "lead"},
		"task.import":        {"origin": "old/1", "title": "Export", "phase": "spec_draft", "workspace": t.TempDir(), "tenant_id": "acme-corp"},
		"task.settle_effect": {"task_id": nobody, "effect_id": "eff_" + nobody[4:], "outcome": "done", "note": "I looked"},
	}
	if missing := slices.DeleteFunc(slices.Clone(signing[api.Signed]), func(name string) bool { return calls[name] != nil }); len(missing) > 0 {
		t.Fatalf("%q are not tried", missing)
	}
	// A call without a valid signature is refused with a record, and has no effect.
	refused := func(method, why string, err error) {
		t.Helper()
		failure, ok := errors.AsType[*api.Error](err)
		if !ok || failure.Code != api.Forbidden {
			t.Fatalf("%s %s: got %v", method, why, err)
		}
		r := h.records(audit.Filter{})
		if last := r[len(r)-1]; last.Event != "decision_refused" || last.Details["decision"] != method || last.PolicyReason != failure.Message {
			t.Errorf("%s %s, on record: %+v", method, why, last.Record)
		}
	}
	type sent struct{ method, signature string }
	var replays []sent
	for method, params := range calls {
		refused(method, "without a signature", person.call(method, params, nil))
		refused(method, "without a challenge", person.callSigned(method, params, person.signature("carol", method, "", params), nil))
		nonce := person.challenge(method).Nonce
		refused(method, "signed by nobody's key", person.callSigned(method, params, person.signature("mallory", method, nonce, params), nil))
		refused(method, "with a nonce that is used up", person.callSigned(method, params, person.signature("carol", method, nonce, params), nil))
		nonce = person.challenge(method).Nonce
		refused(method, "signed for another method", person.callSigned(method, params, person.signature("carol", "sending.pause", nonce, params), nil))
		nonce = person.challenge(method).Nonce
		refused(method, "signed for other parameters", person.callSigned(method, params, person.signature("carol", method, nonce, m{"note": "else"}), nil))
		other := h.operates()
		refused(method, "with another connection's nonce", other.callSigned(method, params, person.signature("carol", method, person.challenge(method).Nonce, params), nil))

		signature := person.signature("carol", method, person.challenge(method).Nonce, params)
		err := person.callSigned(method, params, signature, nil)
		if failure, ok := errors.AsType[*api.Error](err); err != nil && (!ok || failure.Code != api.NotFound || params["task_id"] != nobody) {
			t.Fatalf("%s, signed: %v", method, err)
		}
		refused(method, "once more", person.callSigned(method, params, signature, nil))
		person.challenge(method)
		refused(method, "once more with another challenge", person.callSigned(method, params, signature, nil))
		replays = append(replays, sent{method, signature})
	}
	made := h.records(audit.Filter{Like: audit.Record{Event: "call_signed"}})
	if len(made) != len(calls) {
		t.Errorf("%d signatures are on record, want %d", len(made), len(calls))
	}
	for _, r := range made {
		if r.Details["by"] != "carol@acme-corp" || r.Details["signature"] == "" || r.Details["signedText"] == "" || r.Details["fingerprint"] == "" {
			t.Errorf("on record: %+v", r.Details)
		}
	}
	h.stop()
	h.start()
	person = h.operates()
	for _, one := range replays {
		person.challenge(one.method)
		refused(one.method, "after a restart", person.callSigned(one.method, calls[one.method], one.signature, nil))
	}

	// Methods that stop or revoke need none.
	person.must("sending.pause", m{"agent": "alice"}, nil)
	person.refuse(api.NotFound, "grant.revoke", m{"grantId": "none"})
}

// The record of a signed call names the signer, and the place of the signature.
func TestSignedCallIsOnRecord(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	person := h.operates()
	person.must("sending.pause", m{"agent": "alice"}, nil)
	params := m{"agent": "alice", "note": "it was asleep"}
	person.mustSigned("carol", "sending.resume", params, nil)
	r := h.records(audit.Filter{})
	signed, resumed := r[len(r)-2], r[len(r)-1]
	if signed.Event != "call_signed" || resumed.Event != "sending_resumed" || resumed.Details["by"] != "carol@acme-corp" || resumed.Details["signed"] != signed.ID {
		t.Errorf("on record: %+v and %+v", signed.Record, resumed.Record)
	}
	list, err := sshsig.ParseAllowedSigners(strings.NewReader(listed(t, "carol", "")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list.Verify([]byte(signed.Details["signature"].(string)), []byte(signed.Details["signedText"].(string)), api.ApprovalNamespace, signed.Time); err != nil {
		t.Errorf("the record shows nothing: %v", err)
	}
	if c := person.challenge("sending.pause"); c != (api.Challenge{}) {
		t.Errorf("a pause wants %+v", c)
	}
	if c := person.challenge("exchange.resolve"); !c.SignatureRequired || c.Nonce != "" {
		t.Errorf("a settlement wants %+v", c)
	}
	person.refuse(api.NotFound, "operator.challenge", m{"method": "message.dispatch"})
	contains(t, api.AsError(person.callSigned("sending.pause", params, "a signature", nil)).Message, "takes no signature")
	contains(t, api.AsError(person.callSigned("exchange.resolve", m{"exchangeId": "x", "outcome": "resolved"}, "a signature", nil)).Message, "belongs into its params")
}

// Without signers nobody signs.
func TestCallsWithoutSigners(t *testing.T) {
	h := build(t, acme)
	person := h.operates()
	if c := person.challenge("sending.resume"); c != (api.Challenge{}) {
		t.Errorf("a person is asked to sign: %+v", c)
	}
	person.must("sending.resume", m{"agent": "alice"}, nil)
}
