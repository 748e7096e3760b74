package daemon_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// token is a secret in a realistic form.
const token = "ghp_" + "4kJd83jSla9XmPq20vBnR7tYcWz1Lf5gHu6E"

// withGina adds an agent of another tenant, and declares the channel's owner.
func withGina(yaml string) string {
	yaml += `access: {apps: {"@openclawos/telegram": {channels: [telegram], tenants: [acme-corp]}, "@acme/matrix": {channels: [matrix], tenants: [acme-corp, globex-inc]}}}` + "\n"
	return strings.Replace(yaml, "directory:\n",
		"  - {id: gina, app: \"@globex/gina\", instance_id: agent-gina-1, user_id: gina, org_unit: sales, tenant_id: globex-inc}\ndirectory:\n", 1)
}

// digestOf sends a text to a stranger and returns the digest on record.
func (h *harness) digestOf(a *app, text string) string {
	h.t.Helper()
	sent := a.dispatch("matrix:!stranger:acme.example", text, nil)
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	if len(r) != 1 || r[0].ContentBytes == 0 || !regexp.MustCompile(`^hmac-sha256:[0-9a-f]{64}$`).MatchString(r[0].ContentDigest) || r[0].Content != "" {
		h.t.Fatalf("on record: %+v", r)
	}
	return r[0].ContentDigest
}

// everywhere returns the files below the state directory that hold a text.
func (h *harness) everywhere(text string) (files []string) {
	h.t.Helper()
	err := filepath.WalkDir(h.path("state"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			files = append(files, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return files
}

// log returns every line of the log, newest first.
func (h *harness) log() string {
	h.t.Helper()
	var page api.AuditQueryResult
	h.operator("audit.query", map[string]any{"limit": 1000}, &page)
	var lines strings.Builder
	for _, line := range page.Records {
		lines.Write(line)
		lines.WriteByte('\n')
	}
	return lines.String()
}

func TestDigestsMatchInsideATenantOnly(t *testing.T) {
	// Without labels, which name the sender, the texts are equal.
	h := build(t, withGina(acme)+"ocip: {disclosure: none}\n")
	alice, bob, gina := h.agent("@acme/alice"), h.agent("@acme/bob"), h.agent("@globex/gina")
	first := h.digestOf(alice, "Hello")
	if h.digestOf(bob, "Hello") != first {
		t.Error("equal texts of a tenant have different digests")
	}
	if h.digestOf(alice, "Hello!") == first {
		t.Error("different texts have the same digest")
	}
	if h.digestOf(gina, "Hello") == first {
		t.Error("another tenant has the same digest")
	}
	h.stop()
	h.start()
	if h.digestOf(h.agent("@acme/alice"), "Hello") != first {
		t.Error("after a restart the digest is another")
	}
}

// A copy of the database or the log does not help in guessing a text.
func TestKeysAreNowhereButInTheirDirectory(t *testing.T) {
	h := build(t, acme)
	h.digestOf(h.agent("@acme/alice"), "Hello")
	text, err := os.ReadFile(h.path("state/keys/digest.json"))
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`"key": "([^"]+)"`).FindSubmatch(text)
	signing, err := os.ReadFile(h.path("state/keys/checkpoint.key"))
	if key == nil || err != nil {
		t.Fatalf("no keys: %s, %v", text, err)
	}
	h.stop()
	for name, secret := range map[string]string{"digest.json": string(key[1]), "checkpoint.key": strings.TrimSpace(string(signing))} {
		if files := h.everywhere(secret); !slices.Equal(files, []string{name}) {
			t.Errorf("the key of %s is in %q", name, files)
		}
	}
}

// A key of an earlier daemon is removed from the database.
func TestOldDigestKeyLeavesTheDatabase(t *testing.T) {
	h := build(t, acme)
	h.stop()
	with := func(do func(*store.Store)) {
		s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		do(s)
	}
	with(func(s *store.Store) {
		if _, err := s.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: "content-digest-key", Value: []byte("0123456789abcdef")}}}); err != nil {
			t.Fatal(err)
		}
	})
	h.start()
	h.stop()
	with(func(s *store.Store) {
		if key, err := s.Meta(t.Context(), "content-digest-key"); err != nil || len(key) > 0 {
			t.Errorf("the database holds %q, %v", key, err)
		}
	})
}

// If a key cannot be stored durably there is no record, and so no message.
func TestNoDigestKeyNoMessage(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
	if err := os.Remove(h.path("state/keys/digest.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.path("state/keys/digest.json/in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := h.logEnd()
	failure := alice.refuse(api.InternalError, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "Hello"})
	if code := ocipCode(t, failure); code != string(ocip.AuditWriteFailed) || h.logEnd() != before {
		t.Errorf("refused with %s, %s, and %d records more", code, failure.Message, h.logEnd()-before)
	}
	if strings.Contains(failure.Message, "digest.json") {
		t.Errorf("the app is told where keys are: %s", failure.Message)
	}
	if err := os.RemoveAll(h.path("state/keys/digest.json")); err != nil {
		t.Fatal(err)
	}
	telegram.silence(t, alice, "telegram:dave")
}

func TestForgettingATenant(t *testing.T) {
	h := build(t, withGina(acme))
	alice, gina := h.agent("@acme/alice"), h.agent("@globex/gina")
	was, other := h.digestOf(alice, "Hello"), h.digestOf(gina, "Hello")
	var forgot api.AuditForgetResult
	h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, &forgot)
	r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity, TenantID: "acme-corp"}})
	if len(r) != 1 || r[0].Event != "digest_key_destroyed" || r[0].Seq != forgot.AuditSeq || r[0].Details["uid"] != float64(os.Getuid()) || r[0].Details["pid"] != float64(os.Getpid()) {
		t.Fatalf("on record: %+v, told %+v", r, forgot)
	}
	failure := h.operates().refuse(api.NotFound, "audit.forget", map[string]any{"tenant": "acme-corp"})
	contains(t, failure.Message, `"acme-corp"`, `"globex-inc"`)
	if h.digestOf(alice, "Hello") == was {
		t.Error("the text still has the digest it had")
	}
	if h.digestOf(gina, "Hello") != other {
		t.Error("another tenant's digests are others")
	}
	h.operates().refuse(api.InvalidParams, "audit.forget", map[string]any{})
	h.operates().refuse(api.InvalidParams, "audit.forget", map[string]any{"tenant": strings.Repeat("x", 10_000)})
	h.verify()
}

func TestAppsTouchNoKeys(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	for method, params := range map[string]any{"audit.forget": map[string]any{"tenant": "acme-corp"}, "audit.rotate_key": map[string]any{}} {
		alice.refuse(api.Forbidden, method, params)
	}
	h.stop()
	h.strict = true
	h.start()
	// A process that is an app is not an operator's.
	h.agent("@acme/alice")
	for method, params := range map[string]any{"audit.forget": map[string]any{"tenant": "acme-corp"}, "audit.rotate_key": map[string]any{}} {
		h.operates().refuse(api.Forbidden, method, params)
	}
}

func TestRotatingTheSigningKey(t *testing.T) {
	h := build(t, acme)
	before, err := keyring.PublicKeys(h.path("state/keys"))
	if err != nil {
		t.Fatal(err)
	}
	var rotated api.AuditRotateKeyResult
	h.operates().must("audit.rotate_key", map[string]any{}, &rotated)
	after, err := keyring.PublicKeys(h.path("state/keys"))
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || len(after) != 2 || after[0].Verifier != before[0].Verifier ||
		rotated.Previous != before[0].Verifier || rotated.Verifier != after[1].Verifier || rotated.Verifier == rotated.Previous {
		t.Fatalf("before %+v, after %+v, told %+v", before, after, rotated)
	}
	asked := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}})
	if last := asked[len(asked)-1]; last.Event != "key_rotation" || last.Seq+1 != rotated.AuditSeq || last.Details["uid"] != float64(os.Getuid()) {
		t.Errorf("on record: %+v, want it right before %d", last, rotated.AuditSeq)
	}
	h.stop()
	h.start()
	again, err := keyring.PublicKeys(h.path("state/keys"))
	if err != nil || again[len(again)-1].Verifier != rotated.Verifier {
		t.Errorf("after a restart the keys are %+v, %v", again, err)
	}
	h.operates().must("audit.rotate_key", map[string]any{}, &rotated)
	h.verify()
}

// sealing builds a harness that keeps texts for one identity, in a file.
func sealing(t *testing.T) (h *harness, file string) { return sealingOf(t, acme, "full") }

// sealingOf is sealing with a configuration and a choice of kept texts.
func sealingOf(t *testing.T, yaml, content string) (h *harness, file string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "identity.txt")
	if err := os.WriteFile(file, []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h = build(t, yaml+"audit:\n  content: "+content+"\n  recipients: ["+identity.Recipient().String()+"]\n")
	return h, file
}

// Kept texts are for their recipients, and nobody else finds them.
func TestKeptTextsAreSealed(t *testing.T) {
	h, file := sealing(t)
	alice := h.agent("@acme/alice")
	const text = "The lighthouse keeper sends his regards"
	sent := alice.dispatch("agent:bob:main", text, fresh(nil))
	records := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}})
	if len(records) != 2 {
		t.Fatalf("on record: %+v", records)
	}
	for _, r := range records {
		got, err := sealedtext.Unseal(file, r.Content)
		if err != nil || !strings.HasPrefix(got, text) || r.ContentBytes != len(got) || r.ContentDigest == "" {
			t.Errorf("unsealed is %q, %v, of %d bytes", got, err, r.ContentBytes)
		}
	}
	if log := h.log(); strings.Contains(log, "lighthouse") {
		t.Errorf("the text is in the log: %s", log)
	}
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	h := build(t, acme+"audit:\n  redact:\n    members: [sessionKey, details.tool]\n    patterns: [\"(?i)project falcon\"]\n")
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	leak := "it was " + token + " of Project Falcon"

	bob.must("agent.queue", map[string]any{"sessionKey": "agent:bob:main", "text": "Hello"}, nil)
	run := bob.message("hook:message_received")
	bob.must("agent.complete", map[string]any{"runId": run.RunID, "success": false, "error": leak}, nil)
	sent := alice.dispatch("telegram:dave", "Hello", fresh(map[string]any{"data": []map[string]any{
		{"source": "crm", "fields": []string{"name"}, "classification": "public", "description": "it was of Project Falcon"},
		{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "it was of Project Falcon"},
	}}))
	alice.must("hook.emit", map[string]any{"hookName": "tool_executing", "data": map[string]any{"toolName": "deploy"}, "context": map[string]any{"agentId": "alice"}}, nil)
	h.operates().must("exchange.resolve", map[string]any{"exchangeId": sent.OCIP.ExchangeID, "outcome": "resolved", "note": leak}, nil)
	held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	h.operates().must("approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": "deny", "note": leak}, nil)

	log := h.log()
	for _, secret := range []string{token, "Project Falcon", `"telegram:dave"`, `"deploy"`} {
		if strings.Contains(log, secret) {
			t.Errorf("%s is in the log:\n%s", secret, log)
		}
	}
	if n := strings.Count(log, "it was [redacted credential.github-token] of [redacted]"); n < 3 {
		t.Errorf("%d redacted texts are in the log, want an error and two notes:\n%s", n, log)
	}
	contains(t, log, `"description":"it was of [redacted]"`)
	// Equal sessions still match, and a decision can still be checked.
	keys := regexp.MustCompile(`"sessionKey":"(redacted:[0-9a-f]{16})"`).FindAllStringSubmatch(log, -1)
	distinct := make(map[string]int)
	for _, key := range keys {
		distinct[key[1]]++
	}
	if len(distinct) < 2 || len(keys) <= len(distinct) {
		t.Errorf("sessions on record: %v", distinct)
	}
	contains(t, log, `"digest":"`+saw.Digest+`"`)
	h.verify()
}

// The text of a decided message is not kept, and the record still shows what it was about.
func TestDecidedMessagesAreForgotten(t *testing.T) {
	const text = "I promise the lighthouse will be ready"
	for _, tc := range []struct {
		decision, state string
		keep            bool
	}{
		{"approve", api.ApprovalApproved, false}, {"deny", api.ApprovalDenied, false}, {"resolve", api.ApprovalResolved, false},
		{"takeover", api.ApprovalTakenOver, false}, {"deny", api.ApprovalDenied, true},
	} {
		name := tc.decision
		yaml := acme
		if tc.keep {
			name, yaml = name+", kept", acme+"approvals: {keep_content: true}\n"
		}
		t.Run(name, func(t *testing.T) {
			h := build(t, yaml)
			telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
			asked := fresh(map[string]any{"id": "exch-1"})
			held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", text, asked)
			before := h.shown(held.ApprovalID)
			if before.Content != text || before.ContentBytes != len(text) || before.Forgotten {
				t.Fatalf("waiting is %+v", before)
			}
			h.decides(tc.decision, held.ApprovalID)
			if sends := tc.decision == "approve" || tc.decision == "takeover"; sends {
				if m := telegram.message("hook:message_sending"); !strings.Contains(m.Content, text) {
					t.Errorf("delivered is %q", m.Content)
				}
			}
			alice.concludes(held.ApprovalID, tc.state)

			after := h.shown(held.ApprovalID)
			want := before
			want.State, want.DecidedAt, want.Decision, want.Given, want.Approvals = after.State, after.DecidedAt, after.Decision, after.Given, after.Approvals
			if !tc.keep {
				want.Salt = ""
				want.Content, want.Summary, want.Sending, want.Forgotten = "", "", nil, true
			}
			if got, want := encoded(t, after), encoded(t, want); got != want || after.State != tc.state {
				t.Errorf("decided is\n%s, want\n%s", got, want)
			}
			var list api.ApprovalListResult
			h.operator("approval.list", map[string]any{"state": tc.state}, &list)
			if len(list.Approvals) != 1 || strings.Contains(string(list.Approvals[0]), "lighthouse") != tc.keep {
				t.Errorf("listed are %s", list.Approvals)
			}
			h.operates().conflict("APPROVAL_DECIDED", decision("deny", &before))
			h.stop()
			s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			stored, err := s.Approval(t.Context(), held.ApprovalID)
			if err != nil || strings.Contains(string(stored.Body)+string(stored.Summary), "lighthouse") != tc.keep {
				t.Errorf("stored is %s, %v", stored.Body, err)
			}
		})
	}
}

func encoded(t testing.TB, a api.Approval) string {
	t.Helper()
	text, err := json.Marshal(&a, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A change of the message to be sent is recorded by digests.
func TestAskedAnewSaysNoText(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", "I promise the lighthouse will be ready", fresh(nil))
	saw := h.shown(held.ApprovalID)
	h.stop()
	h.configure(acme + "ocip: {disclosure: prefix}\n")
	h.start()
	h.operates().conflict("APPROVAL_STALE", decision("approve", &saw))
	log := h.log()
	contains(t, log, `"asked_anew"`, `"field":"sending"`, `"was":"hmac-sha256:`, `"now":"hmac-sha256:`)
	if strings.Contains(log, "lighthouse") {
		t.Errorf("the text is in the log:\n%s", log)
	}
	again := h.shown(held.ApprovalID)
	if len(again.Changed) == 0 || !strings.Contains(again.Changed[0].Was, "lighthouse") {
		t.Errorf("a person is shown %+v", again.Changed)
	}
	h.decides("deny", held.ApprovalID)
	if a := h.shown(held.ApprovalID); strings.Contains(encoded(t, a), "lighthouse") {
		t.Errorf("decided is %s", encoded(t, a))
	}
}

// keyFile is where the digest keys are.
func (h *harness) keyFile() string { return h.path("state/keys/digest.json") }

// A key with digests on record is not replaced unasked: the start fails and changes
// nothing, and succeeds with the file back in place.
func TestLostDigestKeysAreNotReplaced(t *testing.T) {
	h := build(t, withGina(acme))
	h.stop()
	if err := os.Remove(h.keyFile()); err != nil {
		t.Fatal(err)
	}
	// Without digests on record the keys are not missed.
	h.start()
	was := h.digestOf(h.agent("@acme/alice"), "Hello")
	h.stop()
	kept, err := os.ReadFile(h.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.keyFile()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := h.tryStart()
		if err == nil {
			t.Fatal("it starts without the keys")
		}
		if strings.Contains(err.Error(), "globex-inc") {
			t.Errorf("a tenant of whom there are no digests is missed: %v", err)
		}
		contains(t, err.Error(), h.keyFile(), `"acme-corp"`, "put the file back", "echo '{\"tenants\":{}}' > "+h.keyFile())
		if _, err := os.Lstat(h.keyFile()); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("there are keys again: %v", err)
		}
	}
	if err := os.WriteFile(h.keyFile(), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	if h.digestOf(h.agent("@acme/alice"), "Hello") != was {
		t.Error("with the file put back the digest is another")
	}
	if strings.Contains(h.log(), "digest_key_lost") {
		t.Error("keys that are back are on record as lost")
	}
}

// A person who puts a file without a key in place gives the key up: that is recorded and
// logged, once, and the tenant gets a new key.
func TestLostDigestKeysAreGivenUp(t *testing.T) {
	h := build(t, withGina(acme))
	was, other := h.digestOf(h.agent("@acme/alice"), "Hello"), h.digestOf(h.agent("@globex/gina"), "Hello")
	h.stop()
	var stored struct {
		Tenants map[string]jsontext.Value `json:"tenants"`
	}
	text, err := os.ReadFile(h.keyFile())
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(stored.Tenants, "acme-corp")
	if text, err = json.Marshal(stored); err == nil {
		err = os.WriteFile(h.keyFile(), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	logged := h.observe()
	h.start()
	said := logged.FilterLevelExact(zap.ErrorLevel).FilterMessageSnippet("digest keys are lost").All()
	if len(said) != 1 || !slices.Equal(said[0].ContextMap()["tenants"].([]any), []any{"acme-corp"}) {
		t.Errorf("it says %v", said)
	}
	lost := func() []audit.Entry {
		return slices.DeleteFunc(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}), func(e audit.Entry) bool { return e.Event != "digest_key_lost" })
	}
	if r := lost(); len(r) != 1 || r[0].TenantID != "acme-corp" || r[0].Details["file"] != h.keyFile() {
		t.Errorf("on record: %+v", r)
	}
	if h.digestOf(h.agent("@acme/alice"), "Hello") == was {
		t.Error("the lost key is back")
	}
	if h.digestOf(h.agent("@globex/gina"), "Hello") != other {
		t.Error("another tenant's digests are others")
	}
	h.stop()
	h.start()
	if r := lost(); len(r) != 1 {
		t.Errorf("at the next start it is on record %d times", len(r))
	}
}

// Another key in place of a tenant's is worse than none, because everything looks well.
func TestDigestKeyOfAnotherIsRefused(t *testing.T) {
	h, other := build(t, acme), build(t, acme)
	was := h.digestOf(h.agent("@acme/alice"), "Hello")
	h.stop()
	other.stop()
	kept, err := os.ReadFile(h.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := os.ReadFile(other.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.keyFile(), wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.tryStart(); err == nil {
		t.Fatal("it starts with a key of another log")
	} else {
		contains(t, err.Error(), h.keyFile(), `"acme-corp"`, "from a backup", "take the tenants' entries out")
	}
	if err := os.WriteFile(h.keyFile(), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	if h.digestOf(h.agent("@acme/alice"), "Hello") != was {
		t.Error("with the right key the digest is another")
	}
}

// keysOnRecord returns the records of an event of the digest keys.
func (h *harness) keysOnRecord(event string) []audit.Entry {
	h.t.Helper()
	return slices.DeleteFunc(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}), func(e audit.Entry) bool { return e.Event != event })
}

// A destroyed key is not missed, and is never used again, however many keys the tenant has
// had since and whichever tenant has it now.
func TestDestroyedDigestKeyStaysDestroyed(t *testing.T) {
	for _, tc := range []struct {
		name string
		// later is set if the tenant has another key before the old one is back.
		later bool
		// under is the tenant under which it is back.
		under string
	}{
		{"at once", false, "acme-corp"},
		{"after the next key", true, "acme-corp"},
		{"as another tenant's", false, "globex-inc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := build(t, withGina(acme))
			was := h.digestOf(h.agent("@acme/alice"), "Hello")
			backup := h.digestKeys()
			h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
			h.stop()
			if tc.later {
				h.start()
				h.stop()
			}
			h.putDigestKeys(map[string]jsontext.Value{tc.under: backup["acme-corp"]})
			logged := h.observe()
			h.start()
			said := logged.FilterLevelExact(zap.ErrorLevel).FilterMessageSnippet("was there again").All()
			if len(said) != 1 || said[0].ContextMap()["tenant"] != tc.under {
				t.Errorf("it says %v", logged.All())
			}
			again := h.keysOnRecord("digest_key_destroyed")
			if len(again) != 2 || again[1].TenantID != tc.under || again[1].Details["again"] != true || again[1].Details["file"] != h.keyFile() {
				t.Errorf("on record: %+v", again)
			}
			for tenant, key := range h.digestKeys() {
				if string(key) == string(backup["acme-corp"]) {
					t.Errorf("the destroyed key is in the file, of %s", tenant)
				}
			}
			for _, app := range []string{"@acme/alice", "@globex/gina"} {
				if h.digestOf(h.agent(app), "Hello") == was {
					t.Errorf("the digests of %s match those of the destroyed key", app)
				}
			}
			h.stop()
			h.start()
			if n := len(h.keysOnRecord("digest_key_destroyed")); n != 2 {
				t.Errorf("at the next start it is on record %d times", n)
			}
			h.stop()
			// The new key can be lost again.
			if err := os.Remove(h.keyFile()); err != nil {
				t.Fatal(err)
			}
			if err := h.tryStart(); err == nil {
				t.Error("it starts without the new key")
			}
		})
	}
}

// An old backup of the file does not replace a key in use.
func TestDestroyedDigestKeyForOneInUse(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.digestOf(alice, "Hello")
	old := h.digestKeys()
	h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
	was := h.digestOf(alice, "Hello")
	inUse := h.digestKeys()
	h.stop()
	h.putDigestKeys(old)
	for range 2 {
		err := h.tryStart()
		if err == nil {
			t.Fatal("it starts with a destroyed key")
		}
		contains(t, err.Error(), h.keyFile(), `destroyed on record are there of: "acme-corp"`, "from a backup")
	}
	h.putDigestKeys(inUse)
	h.start()
	if h.digestOf(h.agent("@acme/alice"), "Hello") != was {
		t.Error("with the right key the digest is another")
	}
}

// An earlier daemon's note about a destroyed key is kept beyond the next one.
func TestDestroyedDigestKeyOfAnEarlierDaemon(t *testing.T) {
	h := build(t, acme)
	was := h.digestOf(h.agent("@acme/alice"), "Hello")
	backup := h.digestKeys()
	h.operates().must("audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
	h.stop()
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	noted, err := s.MetaUnder(t.Context(), "digest-key-destroyed:")
	if err != nil || len(noted) != 1 {
		t.Fatalf("noted are %q, %v", noted, err)
	}
	for name := range noted {
		if _, err := s.Commit(&store.Change{Parts: []store.Part{store.Dropped(name)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.start()
	h.stop()
	h.putDigestKeys(backup)
	h.start()
	if h.digestOf(h.agent("@acme/alice"), "Hello") == was {
		t.Error("the destroyed key is used")
	}
}

// digestKeys returns the keys in the file, by tenant.
func (h *harness) digestKeys() map[string]jsontext.Value {
	h.t.Helper()
	var stored struct {
		Tenants map[string]jsontext.Value `json:"tenants"`
	}
	text, err := os.ReadFile(h.keyFile())
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return stored.Tenants
}

func (h *harness) putDigestKeys(tenants map[string]jsontext.Value) {
	h.t.Helper()
	text, err := json.Marshal(map[string]any{"tenants": tenants})
	if err == nil {
		err = os.WriteFile(h.keyFile(), text, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// A key made while the daemon runs is noted before it is used.
func TestDigestKeyMadeOnTheWay(t *testing.T) {
	h := build(t, acme)
	h.reloaded(withGina(acme))
	h.digestOf(h.agent("@globex/gina"), "Hello")
	h.stop()
	if err := os.Remove(h.keyFile()); err != nil {
		t.Fatal(err)
	}
	if err := h.tryStart(); err == nil {
		t.Error("it starts without the keys")
	} else {
		contains(t, err.Error(), `"globex-inc"`)
	}
}
