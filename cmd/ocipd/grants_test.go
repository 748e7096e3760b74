package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"golang.org/x/crypto/ssh"
)

// grants runs a command about pre-approvals, and checks its exit code and its output.
func (p *operators) grants(code int, says string, args ...string) string {
	p.t.Helper()
	var out, complaints bytes.Buffer
	got := run(p.t.Context(), append([]string{"--socket", p.socket, "preapprovals"}, args...), strings.NewReader(""), &out, &complaints, p.env)
	if got != code || !strings.Contains(out.String()+complaints.String(), says) {
		p.t.Fatalf("grants %q exits %d, want %d and %q:\n%s%s", args, got, code, says, &out, &complaints)
	}
	return out.String()
}

// says has alice's app send a message in an exchange, and returns the pending request, or
// "" if it is allowed.
func (p *operators) says(exchange, content string) (approvalID string) {
	p.t.Helper()
	var result api.DispatchResult
	err := p.app.Call(p.t.Context(), "message.dispatch", map[string]any{
		"sessionKey": "agent:bob:main", "content": content, "metadata": map[string]any{"exchange": map[string]any{"id": exchange, "classification": "public"}},
	}, &result)
	if err != nil {
		p.t.Fatal(err)
	}
	return result.ApprovalID
}

// A person approves an exchange with one of its messages, sees the grant, and revokes it.
func TestApproveExchange(t *testing.T) {
	t.Parallel()
	p := newOperators(t, nil, "approvals: {notify: {desktop: false}}\nocip: {max_rounds: 9}\n")
	id := p.says("deal", "I promise to look at it")
	shown := p.wants(0, "can be approved with it: promise; up to public", "show", id)
	if !strings.Contains(shown, "approve "+id+" --exchange") {
		t.Errorf("shown is\n%s", shown)
	}
	digest := p.digest(id)
	p.wants(2, "without --exchange", "approve", id, "--yes", "--digest", digest, "--round", "2")
	p.wants(2, "--to-sign approve", "show", id, "--to-sign", "deny", "--exchange")
	p.wants(0, "\nwords promise\nclassification public\nround 4\n", "show", id, "--to-sign", "approve", "--exchange", "--round", "4")
	p.wants(0, "takes that back", "approve", id, "--yes", "--digest", digest, "--exchange", "--round", "4", "--for", "2h")
	if p.says("deal", "My promise stands") != "" {
		t.Error("within the bounds it is held")
	}
	inForce := p.wants(0, "agent-bob-1 in deal", "list", "--in-force")
	if !strings.Contains(inForce, "promise; up to public; to round 4; until") {
		t.Errorf("in force is\n%s", inForce)
	}
	grant := strings.Fields(strings.Split(inForce, "\n")[1])[0]
	p.wants(1, "no such pre-approval", "revoke", "nonesuch")
	p.wants(0, "revoked: nothing more goes with it", "revoke", grant[len(grant)-8:])
	p.wants(0, "revoked before", "revoke", grant)
	p.wants(0, "no pre-approval is in force", "list", "--in-force")
	if p.says("deal", "My promise stands still") == "" {
		t.Error("after it was revoked it goes")
	}
}

// A pre-approval needs the signature of an allowed signer.
func TestStandingGrants(t *testing.T) {
	t.Parallel()
	p := newOperators(t, map[string]string{"signers": ""}, `approvals: {allowed_signers: "DIR/signers", notify: {desktop: false}}`)
	_, carols, carolsFile := p.key("carol", "")
	_, _, evesFile := p.key("eve", "")
	p.write("signers", fmt.Sprintf("carol@acme.com namespaces=%q %s", api.ApprovalNamespace, ssh.MarshalAuthorizedKey(carols)))
	add := []string{"add", "--from", "alice", "--to", "bob", "--words", "meeting,schedule", "--uses", "2", "--for", "7d", "--yes"}
	p.grants(2, "without --from", "add", "--from", "alice", "--yes")
	p.grants(2, `cannot approve "lunch" beforehand`, append(add, "--words", "lunch")...)
	p.grants(2, "no terminal", add[:len(add)-1]...)
	p.grants(1, `no agent "mallory"`, append(add, "--from", "mallory")...)
	p.grants(1, "unknown signer", append(add, "--key", evesFile)...)
	p.grants(0, "in force: ", append(add, "--key", carolsFile)...)
	listed := p.grants(0, "agent-bob-1", "list")
	// The command's former name works.
	var former bytes.Buffer
	if code := run(t.Context(), []string{"--socket", p.socket, "grants", "list"}, strings.NewReader(""), &former, &former, p.env); code != 0 || !strings.HasPrefix(former.String(), "PRE-APPROVAL ") {
		t.Errorf("ocipd grants list exits %d:\n%s", code, &former)
	}
	if !strings.Contains(listed, "meeting, schedule; up to public; until") || !strings.Contains(listed, "0 of 2") || !strings.Contains(listed, "carol@acme.com") {
		t.Errorf("listed is\n%s", listed)
	}
	for _, exchange := range []string{"one", "two"} {
		if p.says(exchange, "The meeting is on the schedule") != "" {
			t.Errorf("%s is held", exchange)
		}
	}
	if p.says("three", "The meeting is on the schedule") == "" {
		t.Error("a third one goes")
	}
	p.grants(0, "no pre-approval is in force", "list")
	p.grants(0, "used up", "list", "--all")
}
