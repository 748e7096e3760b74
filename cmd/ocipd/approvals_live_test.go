package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// operators is a daemon in a separate process, with operators who decide.
type operators struct {
	t *testing.T
	killTest
	daemon *exec.Cmd
	app    *client.Client
	env    []string
}

// newOperators writes a configuration, with further lines of it, and starts the
// daemon.
func newOperators(t *testing.T, files map[string]string, more string) *operators {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &operators{t: t, killTest: killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")}}
	p.env = []string{"HOME=" + dir, "XDG_STATE_HOME=" + dir, "TERM=xterm"}
	for name, text := range files {
		p.write(name, text)
	}
	p.write("ocipd.yaml", `
ipc: {apps_may_operate: true}
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
`+strings.ReplaceAll(more, "DIR", dir))
	p.begin()
	return p
}

func (p *operators) write(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

func (p *operators) begin() {
	p.t.Helper()
	p.daemon = p.start(p.t)
	var err error
	if p.app, err = client.Dial(p.t.Context(), p.socket); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.app.Close() })
	if _, err := p.app.Register(p.t.Context(), &api.Manifest{
		ID: "@acme/alice", Name: "alice", Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"},
	}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *operators) end() {
	p.t.Helper()
	p.app.Close()
	if err := p.daemon.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	if err := p.daemon.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// hold has alice's app send a message that must be held.
func (p *operators) hold(content string) string {
	p.t.Helper()
	var result api.DispatchResult
	err := p.app.Call(p.t.Context(), "message.dispatch", map[string]any{
		"sessionKey": "agent:bob:main", "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	if err != nil || !result.Held {
		p.t.Fatalf("%q is not held: %+v, %v", content, result, err)
	}
	return result.ApprovalID
}

// exchange has alice's app send a message that is allowed, and returns its exchange.
func (p *operators) exchange() string {
	p.t.Helper()
	var result api.DispatchResult
	err := p.app.Call(p.t.Context(), "message.dispatch", map[string]any{
		"sessionKey": "agent:bob:main", "content": "How are you?", "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	if err != nil || result.OCIP == nil {
		p.t.Fatalf("it does not go: %+v, %v", result, err)
	}
	return result.OCIP.ExchangeID
}

// run runs the program like a person without a terminal.
func (p *operators) run(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(p.t.Context(), append([]string{"--socket", p.socket, "approvals"}, args...), strings.NewReader(stdin), &out, &complaints, p.env)
	return code, out.String(), complaints.String()
}

// wants runs the program and checks its exit code and its output.
func (p *operators) wants(code int, says string, args ...string) string {
	p.t.Helper()
	got, stdout, stderr := p.run("", args...)
	if got != code || !strings.Contains(stdout+stderr, says) {
		p.t.Fatalf("approvals %q exits %d, want %d and %q:\n%s%s", args, got, code, says, stdout, stderr)
	}
	return stdout
}

func (p *operators) digest(id string) string {
	p.t.Helper()
	_, digest, _ := strings.Cut(p.wants(0, "\ndigest sha256:", "show", id), "\ndigest ")
	digest, _, _ = strings.Cut(digest, "\n")
	return digest
}

// key makes a key file, with a passphrase unless that is empty.
func (p *operators) key(name, passphrase string) (private ed25519.PrivateKey, public ssh.PublicKey, file string) {
	p.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, name)
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, name, []byte(passphrase))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if public, err = ssh.NewPublicKey(private.Public()); err != nil {
		p.t.Fatal(err)
	}
	p.write(name+".pub", string(ssh.MarshalAuthorizedKey(public)))
	return private, public, p.write(name, string(pem.EncodeToMemory(block)))
}

// serveAgent is an ssh-agent with these keys.
func (p *operators) serveAgent(held ...ed25519.PrivateKey) {
	p.t.Helper()
	keyring := agent.NewKeyring()
	for _, key := range held {
		if err := keyring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
			p.t.Fatal(err)
		}
	}
	path := filepath.Join(p.dir, fmt.Sprintf("agent-%d", len(p.env)))
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = agent.ServeAgent(keyring, conn) // it ends with the connection
			}()
		}
	}()
	p.env = append(p.env, "SSH_AUTH_SOCK="+path)
}

// TestSignedDecisions has a daemon that requires two operators' signatures.
func TestSignedDecisions(t *testing.T) {
	t.Parallel()
	p := newOperators(t, map[string]string{"signers": ""}, `approvals: {required: 2, allowed_signers: "DIR/signers", notify: {desktop: false}}`)
	carol, carols, carolsFile := p.key("carol", "")
	dan, dans, dansFile := p.key("dan", "")
	eve, _, evesFile := p.key("eve", "")
	_, _, lockedFile := p.key("locked", "secret")
	list := ""
	for name, key := range map[string]ssh.PublicKey{"carol@acme.com": carols, "dan@acme.com": dans} {
		list += fmt.Sprintf("%s namespaces=%q %s", name, api.ApprovalNamespace, ssh.MarshalAuthorizedKey(key))
	}
	p.write("signers", list)

	id := p.hold("I promise to do it by Friday")
	digest := p.digest(id)
	approve := []string{"approve", id, "--yes", "--digest", digest}
	p.wants(0, "0 given, by 2 people needed, each with a signature", "show", id)
	p.wants(1, "cannot sign: no ssh-agent is running", approve...)
	p.wants(1, "cannot approve "+id+": the signature is not accepted", append(approve, "--key", evesFile)...)
	p.wants(1, "it has a passphrase, and no terminal to ask for it", append(approve, "--key", lockedFile)...)
	p.wants(1, "cannot use the key "+p.write("odd", "-----BEGIN OPENSSH PRIVATE KEY-----\n"), append(approve, "--key", filepath.Join(p.dir, "odd"))...)
	p.wants(0, "1 of 2 approvals are given: the message goes on waiting", append(approve, "--key", carolsFile)...)
	p.wants(1, "carol@acme.com has approved this already; it needs 2 people", append(approve, "--key", carolsFile)...)
	p.wants(0, "  approved      by carol@acme.com, ", "show", id)

	// ssh-agent has no key, several, and one.
	p.serveAgent()
	p.wants(1, "cannot sign: ssh-agent has no key", approve...)
	p.serveAgent(carol, dan, eve)
	p.wants(1, "cannot sign: ssh-agent has 3 keys; --key SHA256:", approve...)
	p.wants(1, "cannot find key "+"SHA256:nobody", append(approve, "--key", "SHA256:nobody")...)
	p.serveAgent(dan)
	p.wants(0, "approved: the message goes on its way", approve...)
	p.wants(0, "signed        with "+ssh.FingerprintSHA256(dans), "show", id)

	// A key of the agent is named by its file, or its fingerprint.
	p.serveAgent(carol, dan, eve)
	p.wants(0, "denied: nothing was sent", "deny", p.hold("I promise it all"), "--key", dansFile+".pub")
	p.wants(0, "resolved: nothing was sent", "resolve", p.hold("I promise it again"), "--key", ssh.FingerprintSHA256(carols))

	// A takeover is signed too, after the other person has approved the message, and has the words
	// that were approved; and so is settling an exchange.
	id = p.hold("I promise something else")
	approve[1], approve[4] = id, p.digest(id)
	takeover := []string{"takeover", id, "--yes", "--digest", approve[4], "--key", carolsFile}
	p.wants(1, "this message needs 2 people", takeover...)
	p.wants(0, "1 of 2 approvals are given", append(approve, "--key", dansFile)...)
	p.wants(1, "the others have not seen these words", append(takeover, "--content", "Not now.")...)
	p.wants(0, "taken over: it goes on its way as yours", takeover...)
	p.wants(0, "content sha256:", "show", p.hold("I promise the last thing"), "--to-sign", "takeover", "--content", "Not now.")
	exchange := p.exchange()
	settle := func(want int, says string, flags ...string) {
		t.Helper()
		var out bytes.Buffer
		args := append([]string{"--socket", p.socket, "exchanges", "resolve", exchange}, flags...)
		if code := run(t.Context(), args, strings.NewReader(""), &out, &out, p.env); code != want || !strings.Contains(out.String(), says) {
			t.Errorf("%q exits %d: %s", args, code, out.String())
		}
	}
	settle(1, "cannot sign: ssh-agent has 3 keys", "--sign")
	settle(0, "resolved", "--key", ssh.FingerprintSHA256(carols))

	// The agent is gone.
	p.env = append(p.env, "SSH_AUTH_SOCK="+filepath.Join(p.dir, "nowhere"))
	id = p.hold("I promise to stop")
	p.wants(1, "cannot reach ssh-agent: cannot connect to "+p.dir, "deny", id)

	// A signature of ssh-keygen is accepted.
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("without ssh-keygen")
	}
	toSign := p.wants(0, "ocipd approval v1\n"+id+"\ndeny\nsha256:", "show", id, "--to-sign", "deny")
	cmd := exec.CommandContext(t.Context(), keygen, "-Y", "sign", "-f", dansFile, "-n", api.ApprovalNamespace)
	cmd.Stdin = strings.NewReader(toSign)
	signature, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := p.write("signature", string(signature))
	// It covers this decision, and no other.
	p.wants(1, "the signature is not accepted", "resolve", id, "--signature", file)
	p.wants(1, "cannot read the signature: ", "deny", id, "--signature", file+"s")
	if code, stdout, stderr := p.run(string(signature), "deny", id, "--signature", "-"); code != 0 || !strings.HasPrefix(stdout, "denied: ") {
		t.Errorf("exits %d: %s%s", code, stdout, stderr)
	}
	p.end()
}

// TestSigningEndsWithItsCaller has an agent that never answers, like one that waits for a touch.
func TestSigningEndsWithItsCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		// It is asked for its keys, and stays silent.
		_, _ = conn.Read(make([]byte, 5))
		cancel()
	}()
	defer l.Close()
	k := &cli.Keys{Socket: path}
	if _, err := k.Sign(ctx, "text"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
