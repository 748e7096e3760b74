package sshsig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	format "github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Sign signs message for namespace and returns the armored signature, which ssh-keygen -Y verify
// reads too. An RSA key signs with SHA-512. It blocks for as long as signer does, which may wait
// for a person to touch a key.
//
// Sign checks the signature before it returns it, so that a key that is not accepted, or a signer
// that signs something else, fails here.
func Sign(signer ssh.Signer, message []byte, namespace string) ([]byte, error) {
	// The key of an agent has a type of its own.
	public, err := ssh.ParsePublicKey(signer.PublicKey().Marshal())
	if err != nil {
		return nil, fmt.Errorf("cannot sign: %w", err)
	}
	key, _ := plain(public)
	if err := strong(key); err != nil {
		return nil, fmt.Errorf("cannot sign with key %s: %w", describe(key), err)
	}
	if key.Type() == ssh.KeyAlgoRSA {
		capable, ok := signer.(ssh.AlgorithmSigner)
		if !ok {
			return nil, fmt.Errorf("cannot sign with key %s: its signer knows SHA-1 only", describe(key))
		}
		signer = sha512Signer{capable}
	}
	sig, err := format.Sign(bytes.NewReader(message), signer, format.HashSHA512, namespace)
	if err != nil {
		return nil, fmt.Errorf("cannot sign with key %s: %w", describe(key), err)
	}
	armored := format.Armor(sig)
	made, err := parse(armored)
	if err == nil {
		err = prove(made, message, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot sign with key %s: the returned signature is not valid: %w", describe(key), err)
	}
	return armored, nil
}

// sha512Signer makes an RSA key sign with SHA-512 when it would choose SHA-1, also in a
// certificate.
type sha512Signer struct {
	ssh.AlgorithmSigner
}

func (s sha512Signer) Sign(random io.Reader, data []byte) (*ssh.Signature, error) {
	return s.SignWithAlgorithm(random, data, ssh.KeyAlgoRSASHA512)
}

// AgentSigner returns the key that wanted names, if the agent holds it. Wanted is a fingerprint as
// printed by ssh-add -l ("SHA256:…"), a public key as printed by ssh-add -L, or the path of a file
// with one.
//
// A fingerprint or a key stands for the certificate of the key only if the agent does not hold the
// key alone. For a certificate (…-cert.pub), the agent need only hold the key. Signing asks the
// agent, which may ask a person.
func AgentSigner(a agent.ExtendedAgent, wanted string) (ssh.Signer, error) {
	fingerprint, public, err := parseWanted(wanted)
	if err != nil {
		return nil, fmt.Errorf("cannot choose a key: %w", err)
	}
	signers, err := a.Signers()
	if err != nil {
		return nil, fmt.Errorf("cannot ask ssh-agent for its keys: %w", err)
	}
	var certified ssh.Signer
	for _, signer := range signers {
		held, err := ssh.ParsePublicKey(signer.PublicKey().Marshal())
		if err != nil {
			continue // of an unknown type, and so not wanted
		}
		if public != nil && bytes.Equal(held.Marshal(), public.Marshal()) {
			return signer, nil
		}
		key, cert := plain(held)
		if ssh.FingerprintSHA256(key) != fingerprint {
			continue
		}
		if cert == nil {
			return withCertificate(signer, public)
		}
		if certified == nil {
			certified = signer
		}
	}
	// A certificate that the agent holds does not stand for another one.
	if _, cert := plain(public); certified != nil && cert == nil {
		return certified, nil
	}
	return nil, fmt.Errorf("cannot find key %s in ssh-agent: it is not among the %d there; ssh-add -l lists them, ssh-add FILE adds one, and ssh-add -X unlocks",
		fingerprint, len(signers))
}

// withCertificate adds the wanted certificate, if any, to a key of the agent.
func withCertificate(signer ssh.Signer, public ssh.PublicKey) (ssh.Signer, error) {
	_, cert := plain(public)
	if cert == nil {
		return signer, nil
	}
	signer, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil, fmt.Errorf("cannot sign with the certificate of key %s: %w", ssh.FingerprintSHA256(cert.Key), err)
	}
	return signer, nil
}

// parseWanted returns the fingerprint of the plain key that wanted names. If wanted itself contains
// the key or certificate, it returns that too.
func parseWanted(wanted string) (fingerprint string, public ssh.PublicKey, err error) {
	if strings.HasPrefix(wanted, "SHA256:") {
		return wanted, nil, nil
	}
	text := []byte(wanted)
	if !looksLikeKeyType(wanted) {
		if text, err = os.ReadFile(wanted); err != nil {
			return "", nil, fmt.Errorf("%q is no SHA256 fingerprint and no public key, and as a file: %w", wanted, err)
		}
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			return "", nil, fmt.Errorf("%s is a private key; name the public key beside it, %[1]s.pub", wanted)
		}
	}
	if public, _, _, _, err = ssh.ParseAuthorizedKey(text); err != nil {
		return "", nil, errors.New("not a public key: " + strings.TrimPrefix(err.Error(), "ssh: "))
	}
	key, _ := plain(public)
	return ssh.FingerprintSHA256(key), public, nil
}
