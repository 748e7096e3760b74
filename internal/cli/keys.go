package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// keyUsage is the help of the flag that names a key.
const keyUsage = "sign with this `KEY`: the file of a private key, or for ssh-agent that of a public one, or its SHA256 fingerprint"

// KeyFlag gives a command the flag that names the key to sign with.
func KeyFlag(c *cobra.Command, key *string) { c.Flags().StringVar(key, "key", "", keyUsage) }

// Keys sign decisions: a key read from a file, or one of ssh-agent's.
type Keys struct {
	file ssh.Signer
	// wanted names one of the agent's keys; empty for the only one.
	wanted string
	// Socket is the agent's socket.
	Socket string
}

// OpenKey reads the named key, and asks for its passphrase if it has one. A name that is
// not a private key's file is left to ssh-agent.
func (s *Process) OpenKey(name string) (*Keys, error) {
	k := &Keys{wanted: name, Socket: s.Getenv("SSH_AUTH_SOCK")}
	if name == "" || strings.HasPrefix(name, "SHA256:") {
		return k, nil
	}
	text, err := ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	if !bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		return k, nil
	}
	k.file, err = ssh.ParsePrivateKey(text)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		var passphrase []byte
		if passphrase, err = s.passphrase(name); err != nil {
			return nil, err
		}
		k.file, err = ssh.ParsePrivateKeyWithPassphrase(text, passphrase)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the key %s: %s; a key in hardware is added to ssh-agent, and named by its %[1]s.pub",
			name, strings.TrimPrefix(err.Error(), "ssh: "))
	}
	return k, nil
}

func (s *Process) passphrase(name string) ([]byte, error) {
	f, ok := s.Stdin.(*os.File)
	if !ok || !term.IsTerminal(f) {
		return nil, fmt.Errorf("cannot use the key %s: it has a passphrase, and no terminal to ask for it; ssh-add %[1]s, and name %[1]s.pub", name)
	}
	fmt.Fprintf(s.Stderr, "Passphrase of %s: ", term.Printable(name))
	defer fmt.Fprintln(s.Stderr)
	return term.ReadPassword(f)
}

// Named reports whether a person has chosen the key.
func (k *Keys) Named() bool { return k.wanted != "" || k.file != nil }

// Sign signs a decision. It may wait for a person to touch a key.
func (k *Keys) Sign(ctx context.Context, text string) (string, error) {
	return k.SignAs(ctx, text, api.ApprovalNamespace)
}

// SignAs is [Keys.Sign] for a text of another namespace.
func (k *Keys) SignAs(ctx context.Context, text, namespace string) (string, error) {
	if k.file != nil {
		return signed(k.file, text, namespace)
	}
	if k.Socket == "" {
		return "", errors.New("cannot sign: no ssh-agent is running (SSH_AUTH_SOCK is not set); --key names the file of a key")
	}
	conn, err := client.DialSocket(ctx, k.Socket)
	if err != nil {
		return "", fmt.Errorf("cannot reach ssh-agent: %w", err)
	}
	defer conn.Close()
	// The agent's protocol has no other way to stop waiting.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	signature := ""
	signer, err := chosen(conn, k.wanted)
	if err == nil {
		signature, err = signed(signer, text, namespace)
	}
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	return signature, err
}

func signed(signer ssh.Signer, text, namespace string) (string, error) {
	armored, err := sshsig.Sign(signer, []byte(text), namespace)
	return string(armored), err
}

// chosen is the named key of the agent, or its only one.
func chosen(conn io.ReadWriter, wanted string) (ssh.Signer, error) {
	a := agent.NewClient(conn)
	if wanted != "" {
		return sshsig.AgentSigner(a, wanted)
	}
	held, err := a.List()
	if err != nil {
		return nil, fmt.Errorf("cannot ask ssh-agent for its keys: %w", err)
	}
	names := make(map[string]bool)
	for _, key := range held {
		public, err := ssh.ParsePublicKey(key.Marshal())
		if err != nil {
			continue // of a type that is not known here
		}
		if certificate, ok := public.(*ssh.Certificate); ok {
			public = certificate.Key
		}
		wanted = ssh.FingerprintSHA256(public)
		names[wanted] = true
	}
	switch len(names) {
	case 0:
		return nil, errors.New("cannot sign: ssh-agent has no key; ssh-add FILE adds one, or --key names one")
	case 1:
		return sshsig.AgentSigner(a, wanted)
	}
	return nil, fmt.Errorf("cannot sign: ssh-agent has %d keys; --key SHA256:… says which, and ssh-add -l lists them", len(names))
}

// CallSigned makes a call on the operator socket, which may take long. If the daemon
// requires a signature for the method, it signs the call with the named key, or with
// ssh-agent's only one.
func (s *Process) CallSigned(ctx context.Context, c *client.Client, key, method string, params, result any) error {
	encoded, err := encode(method, params)
	if err != nil {
		return err
	}
	signature, err := s.SignCall(ctx, c, key, method, encoded)
	if err != nil {
		return err
	}
	return c.CallSigned(ctx, method, encoded, signature, result)
}

// OperateSigned is [Process.Operate] for a method that may require a signature.
func (s *Process) OperateSigned(ctx context.Context, key, method string, params, result any) error {
	encoded, err := encode(method, params)
	if err != nil {
		return err
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	signature, err := s.SignCall(ctx, c, key, method, encoded)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	return c.CallSigned(ctx, method, encoded, signature, result)
}

func encode(method string, params any) (jsontext.Value, error) {
	if params == nil {
		return jsontext.Value("{}"), nil
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("cannot write the params of %s: %w", method, err)
	}
	return encoded, nil
}

// SignCall signs a call, and returns "" if the daemon requires no signature. It may wait
// for a person to touch a key.
func (s *Process) SignCall(ctx context.Context, c *client.Client, key, method string, params jsontext.Value) (string, error) {
	challenge, err := s.challenge(ctx, c, method)
	if err != nil || challenge.Nonce == "" {
		return "", err
	}
	keys, err := s.OpenKey(key)
	if err != nil {
		return "", err
	}
	text, err := api.SignedCall(method, challenge.Nonce, params)
	if err != nil {
		return "", err
	}
	return keys.Sign(ctx, text)
}

// SignatureRequired reports whether the daemon requires a signature for a method.
func (s *Process) SignatureRequired(ctx context.Context, c *client.Client, method string) (bool, error) {
	challenge, err := s.challenge(ctx, c, method)
	return challenge.SignatureRequired, err
}

// challenge asks how to sign a method. A daemon that does not know the method refuses the
// call itself.
func (s *Process) challenge(ctx context.Context, c *client.Client, method string) (challenge api.Challenge, err error) {
	err = s.AskPage(ctx, c.Call, "operator.challenge", api.ChallengeParams{Method: method}, &challenge)
	if refused, ok := errors.AsType[*api.Error](err); ok && (refused.Code == api.MethodNotFound || refused.Code == api.NotFound) {
		err = nil
	}
	return challenge, err
}

// SignedNow returns the check that somebody in a file of signers has made a signature, and may sign
// now.
func SignedNow(by sshsig.File) func(armored, text []byte) error { return by.Check(time.Now()) }
