// Package passkeytest is a passkey in software, with the browser that asks it to sign. It was
// written by the specifications alone (WebAuthn; OpenSSH, PROTOCOL.u2f), so that a test can have
// both say anything.
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math/big"
	"slices"

	"golang.org/x/crypto/ssh"
)

// Flags of authenticator data (WebAuthn, 6.1).
const (
	Present    = 1 << 0
	Verified   = 1 << 2
	Attested   = 1 << 6
	Extensions = 1 << 7
)

// Passkey is an [ssh.Signer]. A test copies it and changes what the copy says.
type Passkey struct {
	Key *ecdsa.PrivateKey
	// RP is the name for which the key was made, and Origin that of the page which asks it.
	RP, Origin string
	// Kind is the type of the request in the browser's data, and Behind is the text behind the origin.
	Kind, Behind string
	Flags        byte
	Extensions   []byte
	// Challenge returns the challenge for the data that are to be signed. Nil is the data.
	Challenge func(data []byte) []byte
}

// New returns a passkey that signs as browsers have it sign.
func New(rp, origin string) *Passkey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &Passkey{Key: key, RP: rp, Origin: origin, Kind: "webauthn.get", Behind: `,"crossOrigin":false}`, Flags: Present | Verified}
}

// But returns a copy with a change.
func (p *Passkey) But(change func(*Passkey)) *Passkey {
	other := *p
	change(&other)
	return &other
}

// PublicKey is the key as a line of allowed signers has it.
func (p *Passkey) PublicKey() ssh.PublicKey {
	point, err := p.Key.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	key, err := ssh.ParsePublicKey(ssh.Marshal(struct {
		Type, Curve string
		Point       []byte
		Application string
	}{ssh.KeyAlgoSKECDSA256, "nistp256", point, p.RP}))
	if err != nil {
		panic(err)
	}
	return key
}

// Sign signs data as OpenSSH writes signatures of browsers.
func (p *Passkey) Sign(random io.Reader, data []byte) (*ssh.Signature, error) {
	challenge := data
	if p.Challenge != nil {
		challenge = p.Challenge(data)
	}
	client, authenticator, signed := p.asked(challenge)
	r, s, err := ecdsa.Sign(random, p.Key, signed)
	return &ssh.Signature{
		Format: "webauthn-sk-ecdsa-sha2-nistp256@openssh.com",
		Blob:   ssh.Marshal(struct{ R, S *big.Int }{r, s}),
		Rest: ssh.Marshal(struct {
			Flags                      byte
			Counter                    uint32
			Origin, Client, Extensions []byte
		}{p.Flags, counter, []byte(p.Origin), client, authenticator[37:]}),
	}, err
}

// Answer is a browser's answer to a challenge: clientDataJSON, authenticatorData and signature.
func (p *Passkey) Answer(challenge []byte) (client, authenticator, signature []byte) {
	client, authenticator, signed := p.asked(challenge)
	signature, err := ecdsa.SignASN1(rand.Reader, p.Key, signed)
	if err != nil {
		panic(err)
	}
	return client, authenticator, signature
}

// counter is that of a key that has signed a few times.
const counter = 7

// asked returns the browser's data, the authenticator's, and the digest of both, which is signed.
func (p *Passkey) asked(challenge []byte) (client, authenticator, signed []byte) {
	client = []byte(`{"type":"` + p.Kind + `","challenge":"` + base64.RawURLEncoding.EncodeToString(challenge) + `","origin":"` + p.Origin + `"` + p.Behind)
	application, clientHash := sha256.Sum256([]byte(p.RP)), sha256.Sum256(client)
	authenticator = slices.Concat(application[:], binary.BigEndian.AppendUint32([]byte{p.Flags}, counter), p.Extensions)
	digest := sha256.Sum256(slices.Concat(authenticator, clientHash[:]))
	return client, authenticator, digest[:]
}
