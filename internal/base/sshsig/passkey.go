package sshsig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/ssh"
)

// Challenge returns the bytes that a signature of a message signs (PROTOCOL.sshsig). A page gives
// them to the browser as the challenge for a passkey.
func Challenge(message []byte, namespace string) []byte {
	sum := sha512.Sum512(message)
	return append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{namespace, "", "sha512", string(sum[:])})...)
}

// PasskeyOf returns the key of a passkey that was made for the host name application, from its
// public key as browsers give it (getPublicKey, a SubjectPublicKeyInfo). It has to be on P-256:
// OpenSSH has no form for the signatures of browsers by other keys.
func PasskeyOf(spki []byte, application string) (ssh.PublicKey, error) {
	public, err := x509.ParsePKIXPublicKey(spki)
	if err != nil {
		return nil, fmt.Errorf("cannot read the passkey: %w", err)
	}
	key, ok := public.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("cannot use the passkey: it is not of the type ES256")
	}
	point, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("cannot read the passkey: %w", err)
	}
	return ssh.ParsePublicKey(ssh.Marshal(struct {
		Type, Curve string
		Point       []byte
		Application string
	}{ssh.KeyAlgoSKECDSA256, "nistp256", point, application}))
}

// Assertion is a browser's answer to navigator.credentials.get (WebAuthn, 5.2.2).
type Assertion struct {
	ClientData, AuthenticatorData, Signature []byte
}

// Beginning of authenticator data (WebAuthn, 6.1): the digest of the application, the flags and a
// counter.
const authenticatorData = sha256.Size + 1 + 4

// Sign makes an armored signature of message out of a browser's answer to [Challenge]. It returns
// an error if key did not sign this message for this namespace.
func (a *Assertion) Sign(key ssh.PublicKey, message []byte, namespace string) ([]byte, error) {
	sig, err := a.packed()
	if err != nil {
		return nil, fmt.Errorf("cannot read the browser's answer: %w", err)
	}
	return Sign(given{key, sig}, message, namespace)
}

// packed writes the answer as OpenSSH does (PROTOCOL.u2f, "SSH WebAuthn signatures").
func (a *Assertion) packed() (*ssh.Signature, error) {
	var point struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(a.Signature, &point); err != nil || len(rest) > 0 {
		return nil, errors.New("its signature is not the one of an ES256 key")
	}
	var client struct {
		Origin string `json:"origin"`
	}
	if err := json.Unmarshal(a.ClientData, &client); err != nil {
		return nil, fmt.Errorf("its client data: %w", err)
	}
	if len(a.AuthenticatorData) < authenticatorData {
		return nil, errors.New("its authenticator data are too short")
	}
	behind := a.AuthenticatorData[sha256.Size:]
	return &ssh.Signature{
		Format: algorithmWebAuthn,
		Blob:   ssh.Marshal(point),
		Rest: ssh.Marshal(assertion{
			Flags: behind[0], Counter: binary.BigEndian.Uint32(behind[1:]), Origin: client.Origin, ClientData: a.ClientData, Extensions: behind[5:],
		}),
	}, nil
}

// given is a signer whose signature was made elsewhere.
type given struct {
	key ssh.PublicKey
	sig *ssh.Signature
}

func (g given) PublicKey() ssh.PublicKey { return g.key }

func (g given) Sign(io.Reader, []byte) (*ssh.Signature, error) { return g.sig, nil }
