package daemon_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// found returns the texts that a digest in the log reveals, with the kinds of those
// records. The attacker has the log, candidate texts and possibly a salt that precedes each
// text, and a digest key.
func (h *harness) found(texts []string, salt string, key []byte) (list []string) {
	h.t.Helper()
	digests := regexp.MustCompile(`[0-9a-f]{64}`)
	for _, r := range h.records(audit.Filter{}) {
		line := strings.Join([]string{r.ContentDigest, r.DeliveredDigest, fmt.Sprint(r.Details)}, " ")
		parts := []string{"", r.ApprovalID, r.SessionKey, r.DispatchID, r.ExchangeID, salt}
		for _, digest := range digests.FindAllString(line, -1) {
			for _, text := range texts {
				for _, before := range parts {
					whole := before + text
					framed := fmt.Sprintf("%d:%s\n%d:%s\n", len(before), before, len(text), text)
					sums := [][]byte{sum(whole), sum(whole + "\n"), sum(framed), sum(fmt.Sprintf("%d:%s\n", len(text), text)), sum(before + "\n" + text)}
					if key != nil {
						mac := hmac.New(sha256.New, key)
						mac.Write([]byte(whole))
						sums = append(sums, mac.Sum(nil))
					}
					if slices.ContainsFunc(sums, func(s []byte) bool { return hex.EncodeToString(s) == digest }) {
						list = append(list, r.ActionType+" "+r.Event+": "+text)
					}
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func sum(text string) []byte {
	s := sha256.Sum256([]byte(text))
	return s[:]
}

// digestKey is a tenant's key from its file.
func (h *harness) digestKey() []byte {
	h.t.Helper()
	text, err := os.ReadFile(h.path("state/keys/digest.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	m := regexp.MustCompile(`"key": "([^"]+)"`).FindSubmatch(text)
	if m == nil {
		return nil
	}
	key, err := base64.StdEncoding.DecodeString(string(m[1]))
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

// No recorded digest lets anybody find a text by trying likely ones: neither of a sent
// message, nor of a held one, nor of a person's own text. With the tenant's key sent texts
// can be matched, until the key is destroyed.
func TestTextsCannotBeGuessed(t *testing.T) {
	h := guarded(t, acme, rego(true, "ok"), listed(t, "carol", ""))
	h.channel("@openclawos/telegram", "telegram")
	alice, bob, person := h.agent("@acme/alice"), h.agent("@acme/bob"), h.operates()
	const instead = "Let us talk on Monday."
	sent := []string{"How far is it?\n\n" + aliceSays, "Is it far?\n\nSent by bob's assistant"}
	alice.dispatch("matrix:!stranger:acme.example", "How far is it?", nil)
	bob.dispatch("matrix:!stranger:acme.example", "Is it far?", nil)
	texts := append([]string{instead}, sent...)
	var salts, ids []string
	for i, what := range []string{api.DecideApprove, api.DecideDeny, api.DecideResolve, api.DecideTakeover, ""} {
		text := fmt.Sprintf("I promise you %d dollars by Friday", 1000*i)
		texts = append(texts, text)
		held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", text, fresh(nil))
		saw := h.shown(held.ApprovalID)
		salts, ids = append(salts, saw.Salt), append(ids, held.ApprovalID)
		var own api.Approval
		if alice.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &own); own.Salt != "" {
			t.Error("the app that asks is shown the salt")
		}
		// A repeated request is recorded too.
		alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", text, fresh(nil))
		if what == "" {
			continue
		}
		params := signed(t, "carol", what, &saw)
		if what == api.DecideTakeover {
			params["content"] = instead
			params["signature"] = signs(t, "carol", api.SignedContent(saw.ToSign[what], saw.Salt, instead), api.ApprovalNamespace)
		}
		person.must("approval.resolve", params, nil)
		if after := h.shown(held.ApprovalID); after.Salt != "" || !after.Forgotten {
			t.Errorf("after it was decided (%s) its salt is %q", what, after.Salt)
		}
	}
	if slices.Sort(salts); len(slices.Compact(salts)) != 5 || len(salts[0]) != 64 {
		t.Errorf("the salts are %q", salts)
	}
	if found := h.found(texts, "", nil); len(found) > 0 {
		t.Errorf("found by guessing: %q", found)
	}
	// The guesses work: with the salt they find the person's text, with the key the sent ones.
	words := 0
	for _, salt := range salts {
		words += len(h.found([]string{instead}, salt, nil))
	}
	key := h.digestKey()
	if found := h.found(sent, "", key); words != 1 || len(found) < len(sent) {
		t.Errorf("with the salt %d are found, with the key %q", words, found)
	}
	person.mustSigned("carol", "audit.forget", map[string]any{"tenant": "acme-corp"}, nil)
	if found := h.found(texts, "", nil); len(found) > 0 || len(h.digestKey()) > 0 {
		t.Errorf("found by guessing, after the key was destroyed: %q", found)
	}
	// A request does not stay in the database longer than its text.
	h.stop()
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range ids {
		a, err := s.Approval(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if waits := a.State == api.ApprovalPending; waits != (a.Asked != "") {
			t.Errorf("approval %s is %s and has what was asked for as %q", a.ID, a.State, a.Asked)
		}
	}
}

// If texts are kept, the salt is sealed with the text.
func TestSaltIsSealedWithTheText(t *testing.T) {
	h, file := sealing(t)
	held := h.agent("@acme/alice").held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	saw := h.shown(held.ApprovalID)
	r := h.records(audit.Filter{Like: audit.Record{ApprovalID: held.ApprovalID}})
	sealed, _ := r[0].Details["salt"].(string)
	if salt, err := sealedtext.Unseal(file, sealed); err != nil || salt != saw.Salt || salt == "" {
		t.Errorf("sealed is %q, %v, want %q", salt, err, saw.Salt)
	}
}
