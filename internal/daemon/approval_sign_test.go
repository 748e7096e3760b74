package daemon_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/test/passkeytest"
	"golang.org/x/crypto/ssh"
)

// key is a person's key, always the same for a name.
func key(t testing.TB, name string) ssh.Signer {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	signer, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// signs makes a person's signature over a text.
func signs(t testing.TB, name, text, namespace string) string {
	t.Helper()
	armored, err := sshsig.Sign(key(t, name), []byte(text), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return string(armored)
}

// signed is a decision with a person's signature.
func signed(t testing.TB, name, what string, saw *api.Approval) map[string]any {
	t.Helper()
	params := decision(what, saw)
	params["signature"] = signs(t, name, saw.ToSign[what], api.ApprovalNamespace)
	return params
}

// A passkey on the list signs what an SSH key signs, from the pages of approvals.origins alone.
func TestPasskeyDecides(t *testing.T) {
	const page = "http://0a1b2c.localhost:7443"
	carol := passkeytest.New("0a1b2c.localhost", page)
	stranger := passkeytest.New("0a1b2c.localhost", page)
	h := guarded(t, acme, rego(true, "ok"), "carol@acme-corp "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(carol.PublicKey()))))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	other := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise something else", fresh(nil)).ApprovalID)
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	by := func(p *passkeytest.Passkey, text string) map[string]any {
		armored, err := sshsig.Sign(p, []byte(text), api.ApprovalNamespace)
		if err != nil {
			t.Fatal(err)
		}
		params := decision(api.DecideApprove, &saw)
		params["signature"] = string(armored)
		return params
	}
	text := saw.ToSign[api.DecideApprove]
	refused := func(words string, params map[string]any) {
		t.Helper()
		before := len(h.records(audit.Filter{Like: audit.Record{Event: "decision_refused"}}))
		contains(t, person.refuse(api.Forbidden, "approval.resolve", params).Message, words)
		if n := len(h.records(audit.Filter{Like: audit.Record{Event: "decision_refused"}})); n != before+1 {
			t.Errorf("%s: %d records more", words, n-before)
		}
	}
	refused("origin not accepted", by(carol, text))

	h.reloaded(acme + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {allowed_signers: %q, origins: [%q]}\n", h.path("signers"), page))
	refused("origin not accepted", by(carol.But(func(p *passkeytest.Passkey) { p.Origin = "http://0a1b2c.localhost:7444" }), text))
	refused("user not verified", by(carol.But(func(p *passkeytest.Passkey) { p.Flags = passkeytest.Present }), text))
	refused("unknown signer", by(stranger, text))
	refused("bad signature", by(carol, other.ToSign[api.DecideApprove]))
	refused("bad signature", by(carol, saw.ToSign[api.DecideDeny]))
	telegram.silence(t, alice, "telegram:dave")

	person.must("approval.resolve", by(carol, text), nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != saw.DispatchID {
		t.Errorf("delivered is %s", m.DispatchID)
	}
	if d := h.shown(saw.ApprovalID).Decision; d == nil || d.By != "carol@acme-corp" || d.Fingerprint != ssh.FingerprintSHA256(carol.PublicKey()) {
		t.Errorf("decided is %+v", d)
	}
	person.refuse(api.Conflict, "approval.resolve", by(carol, text))
}

// listed is a line of the allowed signers.
func listed(t testing.TB, name, options string) string {
	t.Helper()
	return strings.TrimSpace(fmt.Sprintf("%s@acme-corp %s %s", name, options, ssh.MarshalAuthorizedKey(key(t, name).PublicKey())))
}

// allow writes the allowed signers.
func (h *harness) allow(lines ...string) {
	h.t.Helper()
	if err := os.WriteFile(h.path("signers"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// guarded builds a harness in which decisions must be signed.
func guarded(t testing.TB, yaml string, files map[string]string, lines ...string) *harness {
	t.Helper()
	h := ruled(t, yaml, files)
	h.stop()
	h.allow(lines...)
	h.configure(yaml + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {allowed_signers: %q}\n", h.path("signers")))
	h.start()
	return h
}

// If decisions must be signed, one without the right signature has no effect, and the
// attempt is recorded.
func TestDecisionsAreSigned(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "old", `valid-before="20200101"`), listed(t, "new", `valid-after="20990101"`),
		listed(t, "git", `namespaces="git"`))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	other := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise something else", fresh(nil)).ApprovalID)
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	if !saw.SignatureRequired {
		t.Error("a person is not told to sign")
	}
	good := signs(t, "carol", saw.ToSign[api.DecideApprove], api.ApprovalNamespace)
	attempts := 0
	for _, what := range api.DecisionsOf(api.ApprovalOfMessage) {
		for _, tc := range []struct{ name, signature, reason string }{
			{"none", "", "must be signed"},
			{"not a signature", "approved", "malformed SSH signature"},
			{"cut", good[:len(good)/2], "malformed SSH signature"},
			{"of a key that is not listed", signs(t, "mallory", saw.ToSign[what], api.ApprovalNamespace), "unknown signer"},
			{"of a key that has expired", signs(t, "old", saw.ToSign[what], api.ApprovalNamespace), "expired"},
			{"of a key that is not valid yet", signs(t, "new", saw.ToSign[what], api.ApprovalNamespace), "not valid yet"},
			{"of a key for something else", signs(t, "git", saw.ToSign[what], api.ApprovalNamespace), "wrong namespace"},
			{"in another namespace", signs(t, "carol", saw.ToSign[what], "git"), "wrong namespace"},
			{"over the digest alone", signs(t, "carol", saw.Digest, api.ApprovalNamespace), "bad signature"},
			{"over another approval", signs(t, "carol", other.ToSign[what], api.ApprovalNamespace), "bad signature"},
			{"over another digest", signs(t, "carol", api.SignedText(saw.ApprovalID, what, other.Digest), api.ApprovalNamespace), "bad signature"},
			{"over another decision", signs(t, "carol", saw.ToSign[api.DecisionsOf(api.ApprovalOfMessage)[(slices.Index(api.DecisionsOf(api.ApprovalOfMessage), what)+1)%4]], api.ApprovalNamespace), "bad signature"},
		} {
			t.Run(what+" "+tc.name, func(t *testing.T) {
				params := decision(what, &saw)
				if tc.signature != "" {
					params["signature"] = tc.signature
				}
				person.t = t
				e := person.refuse(api.Forbidden, "approval.resolve", params)
				contains(t, e.Message, tc.reason)
				attempts++
				r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, ApprovalID: saw.ApprovalID}})
				if len(r) != attempts || r[attempts-1].Event != "decision_refused" || r[attempts-1].PolicyReason != e.Message ||
					r[attempts-1].PolicyResult != "deny" || r[attempts-1].Details["decision"] != what {
					t.Errorf("on record: %+v", r)
				}
			})
		}
	}
	person.t = t
	// Resolving its exchange is a decision about it as well.
	person.refuse(api.Forbidden, "exchange.resolve", map[string]any{"exchangeId": saw.ExchangeID, "outcome": "resolved"})
	if now := h.shown(saw.ApprovalID); now.State != api.ApprovalPending || now.Given != 0 {
		t.Errorf("after all that it is %+v", now.ApprovalSummary)
	}
	telegram.silence(t, alice, "telegram:dave")

	// With the right signature it is sent, and the record alone shows who signed.
	params := signed(t, "carol", api.DecideApprove, &saw)
	person.must("approval.resolve", params, nil)
	if m := telegram.message("hook:message_sending"); m.DispatchID != saw.DispatchID {
		t.Errorf("delivered is %s", m.DispatchID)
	}
	now := h.shown(saw.ApprovalID)
	fingerprint := ssh.FingerprintSHA256(key(t, "carol").PublicKey())
	if d := now.Decision; d == nil || d.By != "carol@acme-corp" || d.Fingerprint != fingerprint || d.Signature != params["signature"] {
		t.Errorf("decided is %+v", d)
	}
	r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: saw.ApprovalID}})
	if len(r) != 1 || r[0].Details["by"] != "carol@acme-corp" || r[0].Details["fingerprint"] != fingerprint {
		t.Fatalf("on record: %+v", r)
	}
	digest, _ := r[0].Details["digest"].(string)
	signature, _ := r[0].Details["signature"].(string)
	list, err := sshsig.ParseAllowedSigners(strings.NewReader(listed(t, "carol", "")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list.Verify([]byte(signature), []byte(api.SignedText(r[0].ApprovalID, "approve", digest)), api.ApprovalNamespace, r[0].Time); err != nil {
		t.Errorf("the record cannot be checked: %v", err)
	}
	contains(t, person.conflict("APPROVAL_DECIDED", params).Message, "carol@acme-corp")

	// Every decision can be signed.
	person.must("approval.resolve", signed(t, "carol", api.DecideDeny, &other), nil)
	for _, what := range []string{api.DecideTakeover, api.DecideResolve} {
		next := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise+what, fresh(nil)).ApprovalID)
		person.must("approval.resolve", signed(t, "carol", what, &next), nil)
	}
}

// The list is read for every decision: a removed signer decides nothing more, and nobody
// does if the list cannot be read.
func TestSignersAreReadForEachDecision(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""), listed(t, "dora", ""))
	alice, person := h.agent("@acme/alice"), h.operates()
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	approval := signed(t, "carol", api.DecideApprove, &saw)
	refused := func(reason string) {
		t.Helper()
		contains(t, person.refuse(api.Forbidden, "approval.resolve", approval).Message, reason)
	}
	h.allow(listed(t, "dora", ""))
	refused("unknown signer")
	h.allow("this is no list")
	refused("cannot use approvals.allowed_signers")
	if err := os.Remove(h.path("signers")); err != nil {
		t.Fatal(err)
	}
	refused("cannot read approvals.allowed_signers")
	h.allow("")
	refused("unknown signer")
	h.allow(listed(t, "carol", `valid-before="20200101"`))
	refused("expired")
	h.allow(listed(t, "carol", ""))
	person.must("approval.resolve", approval, nil)

	// Nor does a daemon start without the list, because nobody could decide.
	h.stop()
	if err := os.Remove(h.path("signers")); err != nil {
		t.Fatal(err)
	}
	if err := h.tryStart(); err == nil {
		t.Error("the daemon starts without its list of signers")
	} else {
		contains(t, err.Error(), "cannot read approvals.allowed_signers")
	}
}

// If the policy asks for two people, one person is not enough, however often. The first
// approval is void if anything changes before the second.
func TestTwoPeople(t *testing.T) {
	h := guarded(t, acme, people(2, "two people"), listed(t, "carol", ""), listed(t, "dora", ""), listed(t, "erin", ""))
	alice, person := h.agent("@acme/alice"), h.operates()
	ask := func() api.Approval {
		t.Helper()
		return h.shown(alice.held(ocip.PolicyRequiresApproval, "telegram:dave", "Hello", fresh(nil)).ApprovalID)
	}
	approve := func(who string, saw *api.Approval, state string, given int) {
		t.Helper()
		var got api.ApprovalResolveResult
		person.must("approval.resolve", signed(t, who, api.DecideApprove, saw), &got)
		if got.State != state || got.Given != given || got.Needed != 2 {
			t.Fatalf("after %s it is %+v", who, got)
		}
	}
	events := func(saw *api.Approval) (list []string) {
		for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: saw.ApprovalID}}) {
			list = append(list, fmt.Sprint(r.Event, " by ", r.Details["by"]))
		}
		return list
	}

	saw := ask()
	if saw.Needed != 2 || saw.Given != 0 || !saw.SignatureRequired {
		t.Errorf("a person sees %+v", saw)
	}
	approve("carol", &saw, api.ApprovalPending, 1)
	contains(t, person.conflict("APPROVAL_TWICE", signed(t, "carol", api.DecideApprove, &saw)).Message, "carol@acme-corp has approved this already", "2 people")
	now := h.shown(saw.ApprovalID)
	if now.State != api.ApprovalPending || now.Given != 1 || now.Digest != saw.Digest || len(now.Approvals) != 1 || now.Approvals[0].By != "carol@acme-corp" || now.Approvals[0].Signature == "" {
		t.Errorf("in between it is %+v", now)
	}
	// A single approval of two sends nothing, also over a restart.
	h.stop()
	h.start()
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice, person = h.agent("@acme/alice"), h.operates()
	if n := h.records(audit.Filter{Like: audit.Record{ApprovalID: saw.ApprovalID, PolicyResult: "allow"}}); len(n) != 0 {
		t.Errorf("it left: %+v", n)
	}
	approve("dora", &saw, api.ApprovalApproved, 2)
	if m := telegram.message("hook:message_sending"); m.DispatchID != saw.DispatchID {
		t.Errorf("delivered is %s", m.DispatchID)
	}
	alice.concludes(saw.ApprovalID, api.ApprovalApproved)
	if got, want := events(&saw), []string{"approved_in_part by carol@acme-corp", "approved by dora@acme-corp"}; !slices.Equal(got, want) {
		t.Errorf("on record: %q, want %q", got, want)
	}
	r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: saw.ApprovalID}})
	if both, _ := r[len(r)-1].Details["approvals"].([]any); len(both) != 2 {
		t.Errorf("the last record lists %v", r[len(r)-1].Details["approvals"])
	}

	// The policy changes in between.
	saw = ask()
	approve("carol", &saw, api.ApprovalPending, 1)
	h.enact(people(2, "still two people"))
	person.conflict("APPROVAL_STALE", signed(t, "dora", api.DecideApprove, &saw))
	now = h.shown(saw.ApprovalID)
	if now.Given != 0 || len(now.Approvals) != 0 || now.Digest == saw.Digest || changed(t, now.Changed, "policyRevision").Now != now.PolicyRevision {
		t.Errorf("after the change it is %+v", now)
	}
	person.refuse(api.Conflict, "approval.resolve", signed(t, "carol", api.DecideApprove, &saw))
	approve("dora", &now, api.ApprovalPending, 1)
	approve("carol", &now, api.ApprovalApproved, 2)
	alice.concludes(saw.ApprovalID, api.ApprovalApproved)

	// A signer removed from the list in between does not count any more.
	saw = ask()
	approve("carol", &saw, api.ApprovalPending, 1)
	h.allow(listed(t, "dora", ""), listed(t, "erin", ""))
	approve("dora", &saw, api.ApprovalPending, 1)
	approve("erin", &saw, api.ApprovalApproved, 2)
	alice.concludes(saw.ApprovalID, api.ApprovalApproved)

	// One person under two names on the list is not two people.
	saw = ask()
	approve("dora", &saw, api.ApprovalPending, 1)
	h.allow(strings.Replace(listed(t, "dora", ""), "dora@", "doris@", 1), listed(t, "erin", ""))
	person.conflict("APPROVAL_TWICE", signed(t, "dora", api.DecideApprove, &saw))

	// One person denies for all.
	person.must("approval.resolve", signed(t, "erin", api.DecideDeny, &saw), nil)
	alice.concludes(saw.ApprovalID, api.ApprovalDenied)

	// A request for one person becomes one for two when the policy changes.
	h.enact(people(1, "one is enough"))
	saw = ask()
	if saw.Needed != 1 {
		t.Errorf("it needs %d", saw.Needed)
	}
	h.enact(people(2, "two are better"))
	person.conflict("APPROVAL_STALE", signed(t, "erin", api.DecideApprove, &saw))
	saw = h.shown(saw.ApprovalID)
	approve("erin", &saw, api.ApprovalPending, 1)
	h.allow(listed(t, "dora", ""), listed(t, "erin", ""))
	approve("dora", &saw, api.ApprovalApproved, 2)
}

// Approvals without a signature do not count once signatures are required, and two
// connections of one user are one person.
func TestTwoPeopleBecomeSigned(t *testing.T) {
	h := ruled(t, acme+"approvals: {required: 2}\n", rego(true, "ok"))
	alice, person := h.agent("@acme/alice"), h.operates()
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	if saw.Needed != 2 || saw.SignatureRequired {
		t.Errorf("a person sees %+v", saw)
	}
	var got api.ApprovalResolveResult
	person.must("approval.resolve", decision(api.DecideApprove, &saw), &got)
	if got.State != api.ApprovalPending || got.Given != 1 {
		t.Errorf("got %+v", got)
	}
	// Another connection of the same user is not another person.
	h.operates().conflict("APPROVAL_TWICE", decision(api.DecideApprove, &saw))
	h.stop()
	h.allow(listed(t, "carol", ""), listed(t, "dora", ""))
	h.configure(acme + policySection(h.path("policy"), "watch: false") + fmt.Sprintf("\napprovals: {required: 2, allowed_signers: %q}\n", h.path("signers")))
	h.start()
	person = h.operates()
	for i, who := range []string{"carol", "dora"} {
		person.must("approval.resolve", signed(t, who, api.DecideApprove, &saw), &got)
		if want := []string{api.ApprovalPending, api.ApprovalApproved}[i]; got.State != want || got.Given != i+1 {
			t.Errorf("after %s it is %+v, want %s", who, got, want)
		}
	}
}

// A takeover signs the person's own text, and settling an exchange without a held message
// signs for the exchange.
func TestSignedWordsAndSettlements(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	telegram, alice, person := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.operates()
	saw := h.shown(alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil)).ApprovalID)
	params := signed(t, "carol", api.DecideTakeover, &saw)
	params["content"] = "I shall see."
	person.refuse(api.Forbidden, "approval.resolve", params)
	text := api.SignedContent(saw.ToSign[api.DecideTakeover], saw.Salt, "I shall see.")
	params["signature"] = signs(t, "carol", text, api.ApprovalNamespace)
	person.must("approval.resolve", params, nil)
	if m := telegram.message("hook:message_sending"); m.Content != "I shall see." {
		t.Errorf("delivered is %q", m.Content)
	}
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, ApprovalID: saw.ApprovalID}}); len(r) != 1 || r[0].Details["signedText"] != text {
		t.Errorf("on record: %+v", r)
	}

	sent := alice.dispatch("telegram:dave", "How far is it?", fresh(nil)).OCIP
	resolve := map[string]any{"exchangeId": sent.ExchangeID, "outcome": "resolved"}
	person.refuse(api.Forbidden, "exchange.resolve", resolve)
	resolve = h.settlement("carol", sent.ExchangeID)
	resolve["signature"] = signs(t, "carol", api.SignedSettlement("another", "", resolve["state"].(string)), api.ApprovalNamespace)
	person.refuse(api.Forbidden, "exchange.resolve", resolve)
	resolve = h.settlement("carol", sent.ExchangeID)
	person.must("exchange.resolve", resolve, nil)
	r := h.records(audit.Filter{Like: audit.Record{ExchangeID: sent.ExchangeID}})
	if last := r[len(r)-1]; last.Event != "resolved" || last.Details["by"] != "carol@acme-corp" || last.Details["signature"] == "" ||
		last.Details["signedText"] != api.SignedSettlement(sent.ExchangeID, "", resolve["state"].(string)) {
		t.Errorf("on record: %+v", last.Record)
	}
}

// A note is signed with its decision: nobody who passes the signature on can change it.
func TestNoteIsSigned(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	h.channel("@openclawos/telegram", "telegram")
	alice, person := h.agent("@acme/alice"), h.operates()
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	plain := saw.ToSign[api.DecideDeny]
	for signedText, notes := range map[string][]string{plain: {"He is a liar."}, api.SignedNote(plain, "Not now."): {"", "Not now", "He is a liar."}} {
		for _, note := range notes {
			params := decision(api.DecideDeny, &saw)
			params["note"], params["signature"] = note, signs(t, "carol", signedText, api.ApprovalNamespace)
			contains(t, person.refuse(api.Forbidden, "approval.resolve", params).Message, "bad signature")
		}
	}
	settle := h.settlement("carol", saw.ExchangeID)
	settle["note"] = "He is a liar."
	contains(t, person.refuse(api.Forbidden, "exchange.resolve", settle).Message, "bad signature")
	params := decision(api.DecideDeny, &saw)
	params["note"], params["signature"] = "Not now.", signs(t, "carol", api.SignedNote(plain, "Not now."), api.ApprovalNamespace)
	person.must("approval.resolve", params, nil)
	r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval, Event: "denied", ApprovalID: saw.ApprovalID}})
	if len(r) != 1 || r[0].Details["signedText"] != api.SignedNote(plain, "Not now.") || r[0].Details["note"] != "Not now." {
		t.Errorf("on record: %+v", r)
	}
}
