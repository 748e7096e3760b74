package console

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/test/passkeytest"
)

// signing is a company whose decisions are signed. Its apps and its person are this process.
const signing = acme + `
ipc: {apps_may_operate: true}
approvals: {allowed_signers: DIR/signers, origins: [ORIGIN]}
`

// hold has an app send a message that waits for a person.
func (w *world) hold(content string) string {
	w.Helper()
	if w.app == nil || w.app.Err() != nil {
		c, err := client.Dial(w.Context(), w.path("run/kernel.sock"), client.WithDropEvents())
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { c.Close() })
		if _, err := c.Register(w.Context(), &api.Manifest{ID: "@acme/alice", Name: "alice", Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}}); err != nil {
			w.Fatal(err)
		}
		w.app = c
	}
	var result api.DispatchResult
	if err := w.app.Call(w.Context(), "message.dispatch", map[string]any{"sessionKey": "agent:bob:main", "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}}}, &result); err != nil || !result.Held {
		w.Fatalf("%q is not held: %+v, %v", content, result, err)
	}
	return result.ApprovalID
}

// credentialID is the id of the passkey.
var credentialID = []byte("a credential")

// enrolled enrols a passkey, as a terminal and a page do together.
func (w *world) enrolled(token string, p *passkeytest.Passkey) {
	w.Helper()
	spki, err := x509.MarshalPKIXPublicKey(p.Key.Public())
	if err != nil {
		w.Fatal(err)
	}
	page := make(chan string, 1)
	err = Enrol(w.Context(), w.control, func(told Told) {
		go func() {
			body, err := json.Marshal(map[string]any{"code": told.Code, "spki": bytes64(spki), "credentialId": bytes64(credentialID)})
			if err != nil {
				page <- err.Error()
				return
			}
			status, text := w.post("/enrol", string(body), token)
			page <- fmt.Sprint(status, " ", string(text))
		}()
	}, func(key string) (Added, error) {
		line := "ann@laptop " + key
		return Added{Line: line, Digest: "sha256:" + strings.Repeat("0", 64)}, os.WriteFile(w.path("signers"), []byte(line+"\n"), 0o600)
	})
	if said := <-page; err != nil || !strings.HasPrefix(said, "200 ") || !strings.Contains(said, "ann@laptop sk-ecdsa") {
		w.Fatalf("not enrolled: %v, %s", err, said)
	}
}

// texts is the answer of /texts.
type texts struct {
	Text        string       `json:"text"`
	Words       string       `json:"words"`
	Digest      string       `json:"digest"`
	Challenge   bytes64      `json:"challenge"`
	Credentials []credential `json:"credentials"`
	Command     string       `json:"command"`
	RPID        string       `json:"rpId"`
	Signature   bool         `json:"signature"`
	Click       bool         `json:"click"`
}

func (w *world) texts(token, id, decision string) (t texts) {
	w.Helper()
	var a api.Approval
	w.call(token, "approval.get", map[string]any{"approvalId": id}, &a)
	body, err := json.Marshal(map[string]any{"approvalId": id, "decision": decision, "digest": a.Digest})
	if err != nil {
		w.Fatal(err)
	}
	if status, text := w.post("/texts", string(body), token); status != http.StatusOK || json.Unmarshal(text, &t) != nil {
		w.Fatalf("no text: %d %s", status, text)
	}
	return t
}

// decided posts a decision with an assertion, and returns the answer.
func (w *world) decided(token, id, decision, digest string, credential []byte, client, data, signature []byte) (status int, said string) {
	w.Helper()
	body, err := json.Marshal(map[string]any{
		"approvalId": id, "decision": decision, "digest": digest,
		"assertion": map[string]any{"credentialId": bytes64(credential), "clientDataJSON": bytes64(client), "authenticatorData": bytes64(data), "signature": bytes64(signature)},
	})
	if err != nil {
		w.Fatal(err)
	}
	status, text := w.post("/decide", string(body), token)
	return status, string(text)
}

// TestPasskeyDecides makes decisions by a passkey in software.
func TestPasskeyDecides(t *testing.T) {
	w := begin(t, signing)
	token := w.session()
	p := passkeytest.New(w.place.Host, w.place.Origin())
	w.enrolled(token, p)
	id, other := w.hold("I promise the bridge by Friday"), w.hold("I promise the harbour by Friday")
	approve, deny, elsewhere := w.texts(token, id, "approve"), w.texts(token, id, "deny"), w.texts(token, other, "approve")
	if !approve.Signature || len(approve.Credentials) != 1 || !bytes.Equal(approve.Credentials[0].ID, credentialID) || approve.Credentials[0].Name != "ann@laptop" || approve.Command != "ocipd approvals approve "+id || len(strings.Fields(approve.Words)) != 4 || approve.RPID != w.place.Host {
		t.Errorf("to sign is %+v", approve)
	}
	for _, tc := range []struct {
		name       string
		p          *passkeytest.Passkey
		challenge  []byte
		credential []byte
		digest     string
		change     bool
		want       string
	}{
		{"another decision", p, deny.Challenge, credentialID, approve.Digest, false, "bad signature"},
		{"another approval", p, elsewhere.Challenge, credentialID, approve.Digest, false, "bad signature"},
		{"another digest", p, approve.Challenge, credentialID, elsewhere.Digest, false, "APPROVAL_STALE"},
		{"a login's challenge", p, bytes.Repeat([]byte{7}, 32), credentialID, approve.Digest, false, "bad signature"},
		{"another port", p.But(func(p *passkeytest.Passkey) { p.Origin = "http://" + w.place.Host + ":1" }), approve.Challenge, credentialID, approve.Digest, false, "origin not accepted"},
		{"another name", p.But(func(p *passkeytest.Passkey) { p.Origin = "http://evil.example" }), approve.Challenge, credentialID, approve.Digest, false, "origin not accepted"},
		{"another application", p.But(func(p *passkeytest.Passkey) { p.RP = "localhost" }), approve.Challenge, credentialID, approve.Digest, false, "bad signature"},
		{"no user verification", p.But(func(p *passkeytest.Passkey) { p.Flags = passkeytest.Present }), approve.Challenge, credentialID, approve.Digest, false, "user not verified"},
		{"no touch", p.But(func(p *passkeytest.Passkey) { p.Flags = passkeytest.Verified }), approve.Challenge, credentialID, approve.Digest, false, "no touch"},
		{"another key", passkeytest.New(p.RP, p.Origin), approve.Challenge, credentialID, approve.Digest, false, "bad signature"},
		{"not enrolled", p, approve.Challenge, []byte("another"), approve.Digest, false, "not enrolled"},
		{"a changed byte", p, approve.Challenge, credentialID, approve.Digest, true, "bad signature"},
		{"in a frame", p.But(func(p *passkeytest.Passkey) { p.Behind = `,"crossOrigin":true}` }), approve.Challenge, credentialID, approve.Digest, false, "bad signature"},
	} {
		client, data, signature := tc.p.Answer(tc.challenge)
		if tc.change {
			signature[len(signature)-1] ^= 1
		}
		if status, said := w.decided(token, id, "approve", tc.digest, tc.credential, client, data, signature); status != http.StatusOK || !strings.Contains(said, `"error"`) || !strings.Contains(said, tc.want) {
			t.Errorf("%s: %d %s, want %s", tc.name, status, said, tc.want)
		}
	}
	// A click decides nothing.
	if status, said := w.post("/decide", `{"approvalId":"`+id+`","decision":"approve","digest":"`+approve.Digest+`"}`, token); status != http.StatusOK || !strings.Contains(string(said), "FORBIDDEN") {
		t.Errorf("without a passkey: %d %s", status, said)
	}
	var a api.Approval
	if w.call(token, "approval.get", map[string]any{"approvalId": id}, &a); a.State != api.ApprovalPending {
		t.Fatalf("it is %s", a.State)
	}
	client, data, signature := p.Answer(approve.Challenge)
	if status, said := w.decided(token, id, "approve", approve.Digest, credentialID, client, data, signature); status != http.StatusOK || !strings.Contains(said, `"state":"approved"`) {
		t.Fatalf("the passkey: %d %s", status, said)
	}
	if _, said := w.decided(token, id, "approve", approve.Digest, credentialID, client, data, signature); !strings.Contains(said, "APPROVAL_DECIDED") {
		t.Errorf("a second time: %s", said)
	}
	if w.call(token, "approval.get", map[string]any{"approvalId": id}, &a); a.Decision == nil || a.Decision.By != "ann@laptop" {
		t.Fatalf("decided is %+v", a.Decision)
	}
	w.verify(a.Decision.Signature, approve.Text, true)
	w.verify(a.Decision.Signature, deny.Text, false)
	if got := w.records("console_enrolled"); len(got) != 1 {
		t.Errorf("%d passkeys are on record as enrolled", len(got))
	}
}

// verify has OpenSSH verify a signature.
func (w *world) verify(signature, text string, good bool) {
	w.Helper()
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		w.Skip("no ssh-keygen here")
	}
	w.write("signature", signature)
	cmd := exec.Command(program, "-Y", "verify", "-f", w.path("signers"), "-I", "ann@laptop", "-n", api.ApprovalNamespace, "-s", w.path("signature"))
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); (err == nil) != good {
		w.Errorf("ssh-keygen: %v %s", err, out)
	}
}

// A code is good for one page, for five minutes and for three tries.
func TestEnrolCode(t *testing.T) {
	w := begin(t, signing)
	token := w.session()
	p := passkeytest.New(w.place.Host, w.place.Origin())
	spki, err := x509.MarshalPKIXPublicKey(p.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	try := func(code string) string {
		_, text := w.post("/enrol", fmt.Sprintf(`{"code":%q,"spki":%q,"credentialId":"AAAA"}`, code, base64.RawURLEncoding.EncodeToString(spki)), token)
		return string(text)
	}
	if said := try("123456"); !strings.Contains(said, "no terminal waits") {
		t.Error(said)
	}
	one, err := w.console.enrol.begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the code is wrong: type", "the code is wrong: type", "too often", "no terminal waits"} {
		if said := try("none"); !strings.Contains(said, want) {
			t.Errorf("%s, want %s", said, want)
		}
	}
	if said := try(one.code); !strings.Contains(said, "no terminal waits") {
		t.Error(said)
	}
	if one, err = w.console.enrol.begin(); err != nil {
		t.Fatal(err)
	}
	w.clock.forward(enrolTime)
	if said := try(one.code); !strings.Contains(said, "no terminal waits") {
		t.Error(said)
	}
	if text, err := os.ReadFile(w.path("signers")); err != nil || len(text) > 0 {
		t.Errorf("the list is %q, %v", text, err)
	}
}

// Without signers, a click decides if the configuration says so, and the record says that nothing
// proves it.
func TestClick(t *testing.T) {
	for _, clicks := range []bool{false, true} {
		yaml := acme + "ipc: {apps_may_operate: true}\n"
		if clicks {
			yaml += "console: {decide: session}\n"
		}
		w := begin(t, yaml)
		w.clicks = clicks
		token := w.session()
		id := w.hold("I promise the bridge by Friday")
		to := w.texts(token, id, "approve")
		status, said := w.post("/decide", `{"approvalId":"`+id+`","decision":"approve","digest":"`+to.Digest+`"}`, token)
		if status != http.StatusOK || strings.Contains(string(said), `"state":"approved"`) != clicks || strings.Contains(string(said), "FORBIDDEN") == clicks || to.Click != clicks {
			t.Errorf("clicks %t: %d %s", clicks, status, said)
		}
		if !clicks {
			continue
		}
		got := w.records("approved")
		if len(got) != 1 || got[0].Details["via"] != "console" || got[0].Details["proof"] != "none" || got[0].Details["client"] == nil {
			t.Errorf("on record is %v", got)
		}
	}
}
