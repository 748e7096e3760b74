package approvalsui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/sshsig"
	"github.com/openclawos/ocipd/internal/term"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// KeyUsage is the help of the flag that names a key.
const KeyUsage = "sign with this `KEY`: the file of a private key, or for ssh-agent that of a public one, or its SHA256 fingerprint"

// Keys sign decisions: a key read from a file, or one of ssh-agent's.
type Keys struct {
	file ssh.Signer
	// wanted is which of the agent's keys, empty for the only one.
	wanted string
	// Socket is where the agent listens.
	Socket string
}

// OpenKey reads the key that was named, and asks for its passphrase if it has
// one. What is no private key is left for ssh-agent to know.
func (s *People) OpenKey(name string) (*Keys, error) {
	k := &Keys{wanted: name, Socket: s.Getenv("SSH_AUTH_SOCK")}
	if name == "" || strings.HasPrefix(name, "SHA256:") {
		return k, nil
	}
	text, err := os.ReadFile(name)
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

func (s *People) passphrase(name string) ([]byte, error) {
	f, ok := s.Stdin.(*os.File)
	if !ok || !term.IsTerminal(f) {
		return nil, fmt.Errorf("cannot use the key %s: it has a passphrase, and no terminal to ask for it; ssh-add %[1]s, and name %[1]s.pub", name)
	}
	fmt.Fprintf(s.Stderr, "Passphrase of %s: ", term.Printable(name))
	defer fmt.Fprintln(s.Stderr)
	return term.ReadPassword(f)
}

// Sign signs a text. It may wait for a person to touch a key.
func (k *Keys) Sign(ctx context.Context, text string) (string, error) {
	if k.file != nil {
		return signed(k.file, text)
	}
	if k.Socket == "" {
		return "", errors.New("cannot sign: no ssh-agent is running (SSH_AUTH_SOCK is not set); --key names the file of a key")
	}
	conn, err := client.DialSocket(ctx, k.Socket)
	if err != nil {
		return "", fmt.Errorf("cannot reach ssh-agent: %w", err)
	}
	defer conn.Close()
	// The agent's protocol knows no way to stop waiting but this.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	signature := ""
	signer, err := chosen(conn, k.wanted)
	if err == nil {
		signature, err = signed(signer, text)
	}
	if err != nil && ctx.Err() != nil {
		return "", ctx.Err()
	}
	return signature, err
}

func signed(signer ssh.Signer, text string) (string, error) {
	armored, err := sshsig.Sign(signer, []byte(text), api.ApprovalNamespace)
	return string(armored), err
}

// chosen is the agent's key that was named, or the only one that it has.
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

// signature is a person's signature over a decision, where one is wanted.
func (s *People) signature(ctx context.Context, a *api.Approval, decision, content, note string, exchange *api.Bounds, k *Keys, f DecideOptions) (string, error) {
	if f.Signature != "" {
		return s.readSignature(ctx, f.Signature)
	}
	if !f.Sign && f.Key == "" && !a.SignatureRequired {
		return "", nil
	}
	text, err := textToSign(a, decision, content, note, exchange)
	if err != nil {
		return "", err
	}
	return k.Sign(ctx, text)
}

func (s *People) readSignature(ctx context.Context, file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = s.ReadStdin(ctx)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the signature: %w", err)
	}
	return string(text), nil
}
