package sshsig

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

func TestSignRefuses(t *testing.T) {
	signer, refused := rsaSigner(t, 2048), errors.New("refused by its owner")
	for _, tc := range []struct {
		name      string
		signer    ssh.Signer
		namespace string
		want      error  // or
		text      string // part of it
	}{
		{"no namespace", signer, "", nil, "missing namespace"},
		{"key of an unknown type", strangeSigner{}, namespace, nil, "unknown key algorithm"},
		{"short RSA", rsaSigner(t, 1024), namespace, ErrAlgorithm, "1024 bits"},
		{"RSA that knows SHA-1 only", bareSigner{signer}, namespace, nil, "SHA-1 only"},
		{"RSA that signs with SHA-1 when asked for SHA-512", sha1Signer{signer.(ssh.AlgorithmSigner)}, namespace, ErrMalformed, "the returned signature is not valid"},
		{"signer that signs something else", deafSigner{ed25519Signer(t, "alice")}, namespace, ErrBadSignature, "the returned signature is not valid"},
		{"signer that refuses", refusingSigner{ed25519Signer(t, "alice"), refused}, namespace, refused, "SHA256:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			armored, err := Sign(tc.signer, message, tc.namespace)
			if armored != nil || err == nil || !strings.HasPrefix(err.Error(), "cannot sign") || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %q, %v", armored, err)
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// strangeKey is a key of an unknown type.
func strangeKey() *agent.Key {
	return &agent.Key{Format: "ssh-future", Blob: ssh.Marshal(struct{ Type, Key string }{"ssh-future", "x"})}
}

type strangeSigner struct{ ssh.Signer }

func (strangeSigner) PublicKey() ssh.PublicKey { return strangeKey() }

type bareSigner struct{ ssh.Signer }

type deafSigner struct{ ssh.Signer }

func (s deafSigner) Sign(random io.Reader, _ []byte) (*ssh.Signature, error) {
	return s.Signer.Sign(random, []byte("something else"))
}

type refusingSigner struct {
	ssh.Signer
	err error
}

func (s refusingSigner) Sign(io.Reader, []byte) (*ssh.Signature, error) { return nil, s.err }

// hardwareAgent is an agent with a FIDO key, and a key of an unknown type.
type hardwareAgent struct {
	agent.ExtendedAgent
	device *authenticator
}

func (a hardwareAgent) List() ([]*agent.Key, error) {
	keys, err := a.ExtendedAgent.List()
	key := a.device.PublicKey()
	return append(keys, strangeKey(), &agent.Key{Format: key.Type(), Blob: key.Marshal(), Comment: "blue token"}), err
}

func (a hardwareAgent) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	if string(key.Marshal()) == string(a.device.PublicKey().Marshal()) {
		return a.device.Sign(nil, data)
	}
	return a.ExtendedAgent.SignWithFlags(key, data, flags)
}

// serve returns a client of an agent, over its protocol.
func serve(t *testing.T, server agent.Agent) agent.ExtendedAgent {
	t.Helper()
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- agent.ServeAgent(server, there) }()
	t.Cleanup(func() {
		_ = here.Close()
		if err := <-served; err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	return agent.NewClient(here)
}

func TestAgentSignerFIDO(t *testing.T) {
	for _, keyType := range []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256} {
		device := newAuthenticator(t, keyType, flagPresent|flagVerified)
		client := serve(t, hardwareAgent{agent.NewKeyring().(agent.ExtendedAgent), device})
		signer, err := AgentSigner(client, ssh.FingerprintSHA256(device.PublicKey()))
		if err != nil {
			t.Fatal(err)
		}
		s := list(t, listLine("alice", "verify-required", device.PublicKey()))
		got, err := s.Verify(sign(t, signer), message, namespace, noon)
		if err != nil || !got.Touched || !got.Verified {
			t.Errorf("%s: got %+v, %v", keyType, got, err)
		}
	}
}

func TestAgentSignerWanted(t *testing.T) {
	seed := sha256.Sum256([]byte("alice"))
	private := ed25519.NewKeyFromSeed(seed[:])
	held, unheld := newSigner(t, private), ed25519Signer(t, "bob").PublicKey()
	cert := certify(t, held, ed25519Signer(t, "authority"), nil).PublicKey().(*ssh.Certificate)
	otherCert := certify(t, held, ed25519Signer(t, "mallory"), nil).PublicKey().(*ssh.Certificate)
	text := func(key ssh.PublicKey) string { return string(ssh.MarshalAuthorizedKey(key)) }
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := agent.AddedKey{PrivateKey: private, Comment: "alice's laptop"}
	certified := agent.AddedKey{PrivateKey: private, Certificate: cert}
	for _, tc := range []struct {
		name   string
		held   []agent.AddedKey
		wanted string
		want   ssh.PublicKey
		fault  string
	}{
		{"fingerprint", []agent.AddedKey{key}, ssh.FingerprintSHA256(held.PublicKey()), held.PublicKey(), ""},
		{"key", []agent.AddedKey{key}, text(held.PublicKey()), held.PublicKey(), ""},
		{"key and comment", []agent.AddedKey{key}, strings.TrimSpace(text(held.PublicKey())) + " alice@laptop", held.PublicKey(), ""},
		{"file", []agent.AddedKey{key}, file("id.pub", text(held.PublicKey())), held.PublicKey(), ""},
		{"file of a certificate", []agent.AddedKey{key}, file("id-cert.pub", text(cert)), cert, ""},
		{"certificate that is held", []agent.AddedKey{key, certified}, text(cert), cert, ""},
		{"certificate that alone is held", []agent.AddedKey{certified}, text(cert), cert, ""},
		{"key beside its certificate", []agent.AddedKey{certified, key}, text(held.PublicKey()), held.PublicKey(), ""},
		{"key that is held in a certificate", []agent.AddedKey{certified}, ssh.FingerprintSHA256(held.PublicKey()), cert, ""},
		{"other certificate than is held", []agent.AddedKey{certified}, text(otherCert), nil, "cannot find key SHA256:"},
		{"key that is not held", []agent.AddedKey{key}, text(unheld), nil, "cannot find key " + ssh.FingerprintSHA256(unheld) + " in ssh-agent: it is not among the 1 there"},
		{"no key held", nil, ssh.FingerprintSHA256(unheld), nil, "not among the 0 there"},
		{"nothing wanted", []agent.AddedKey{key}, "", nil, "cannot choose a key"},
		{"no such file", []agent.AddedKey{key}, filepath.Join(dir, "nothing.pub"), nil, "no such file"},
		{"other fingerprint", []agent.AddedKey{key}, "MD5:00:11", nil, "no SHA256 fingerprint"},
		{"bad key", []agent.AddedKey{key}, "ssh-ed25519 AAAA", nil, "not a public key"},
		{"file of a private key", []agent.AddedKey{key}, file("id", "-----BEGIN OPENSSH PRIVATE KEY-----\n"), nil, "id.pub"},
		{"file of something else", []agent.AddedKey{key}, file("notes", "milk\n"), nil, "not a public key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keyring := agent.NewKeyring()
			for _, added := range tc.held {
				if err := keyring.Add(added); err != nil {
					t.Fatal(err)
				}
			}
			signer, err := AgentSigner(serve(t, keyring), tc.wanted)
			if tc.want == nil {
				if err == nil || !strings.HasPrefix(err.Error(), "cannot ") || !strings.Contains(err.Error(), tc.fault) {
					t.Fatalf("got %v, want %q", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := signer.PublicKey().Marshal(); string(got) != string(tc.want.Marshal()) {
				t.Errorf("got %s", text(signer.PublicKey()))
			}
			sign(t, signer)
		})
	}
}

func TestAgentSignerNoAgent(t *testing.T) {
	here, there := net.Pipe()
	_ = there.Close()
	_, err := AgentSigner(agent.NewClient(here), "SHA256:x")
	if err == nil || !strings.HasPrefix(err.Error(), "cannot ask ssh-agent for its keys: ") {
		t.Errorf("got %v", err)
	}
}
