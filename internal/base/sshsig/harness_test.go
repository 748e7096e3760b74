package sshsig

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

const namespace = "approval@example.com"

var (
	message = []byte("approve 018f0000-0000-7000-8000-000000000001 sha256:00ff\n")
	noon    = time.Date(2026, 3, 13, 12, 0, 0, 0, time.UTC)
)

func newSigner(tb testing.TB, key any) ssh.Signer {
	tb.Helper()
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

// ed25519Signer returns the same key for the same name.
func ed25519Signer(tb testing.TB, name string) ssh.Signer {
	tb.Helper()
	seed := sha256.Sum256([]byte(name))
	return newSigner(tb, ed25519.NewKeyFromSeed(seed[:]))
}

func ecdsaSigner(tb testing.TB, curve elliptic.Curve) ssh.Signer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return newSigner(tb, key)
}

func rsaSigner(tb testing.TB, bits int) ssh.Signer {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}
	return newSigner(tb, key)
}

// authenticator is a FIDO key in software. It signs as PROTOCOL.u2f describes, with the given
// flags.
type authenticator struct {
	application string
	flags       byte
	counter     uint32
	ed25519     ed25519.PrivateKey
	ecdsa       *ecdsa.PrivateKey // instead of ed25519
}

func newAuthenticator(tb testing.TB, keyType string, flags byte) *authenticator {
	tb.Helper()
	a := &authenticator{application: "ssh:", flags: flags, counter: 41}
	seed := sha256.Sum256([]byte(keyType))
	a.ed25519 = ed25519.NewKeyFromSeed(seed[:])
	if keyType == ssh.KeyAlgoSKECDSA256 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			tb.Fatal(err)
		}
		a.ed25519, a.ecdsa = nil, key
	}
	return a
}

func (a *authenticator) with(flags byte) *authenticator {
	other := *a
	other.flags = flags
	return &other
}

func (a *authenticator) PublicKey() ssh.PublicKey {
	var blob []byte
	if a.ecdsa != nil {
		point, err := a.ecdsa.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		blob = ssh.Marshal(struct {
			Type, Curve string
			Point       []byte
			Application string
		}{ssh.KeyAlgoSKECDSA256, "nistp256", point, a.application})
	} else {
		blob = ssh.Marshal(struct {
			Type        string
			Key         []byte
			Application string
		}{ssh.KeyAlgoSKED25519, a.ed25519.Public().(ed25519.PublicKey), a.application})
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		panic(err)
	}
	return key
}

func (a *authenticator) Sign(_ io.Reader, data []byte) (*ssh.Signature, error) {
	a.counter++
	extra := []byte{a.flags, byte(a.counter >> 24), byte(a.counter >> 16), byte(a.counter >> 8), byte(a.counter)}
	application, digest := sha256.Sum256([]byte(a.application)), sha256.Sum256(data)
	signed := slices.Concat(application[:], extra, digest[:])
	sig := &ssh.Signature{Format: a.PublicKey().Type(), Rest: extra}
	if a.ecdsa == nil {
		sig.Blob = ed25519.Sign(a.ed25519, signed)
		return sig, nil
	}
	digest = sha256.Sum256(signed)
	r, s, err := ecdsa.Sign(rand.Reader, a.ecdsa, digest[:])
	sig.Blob = ssh.Marshal(struct{ R, S *big.Int }{r, s})
	return sig, err
}

// listLine writes a line of an allowed_signers file. Options may be empty.
func listLine(principals, options string, key ssh.PublicKey) string {
	fields := []string{principals, options, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))}
	return strings.Join(slices.DeleteFunc(fields, func(field string) bool { return field == "" }), " ")
}

func list(tb testing.TB, lines ...string) *Signers {
	tb.Helper()
	s, err := ParseAllowedSigners(strings.NewReader(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func sign(tb testing.TB, signer ssh.Signer) []byte {
	tb.Helper()
	armored, err := Sign(signer, message, namespace)
	if err != nil {
		tb.Fatal(err)
	}
	return armored
}

// certify returns signer with a certificate by authority, after change has modified the
// certificate.
func certify(tb testing.TB, signer, authority ssh.Signer, change func(*ssh.Certificate)) ssh.Signer {
	tb.Helper()
	cert := &ssh.Certificate{
		Key: signer.PublicKey(), Serial: 7, CertType: ssh.UserCert, KeyId: "alice's laptop",
		ValidPrincipals: []string{"alice@example.com", "root@example.net"},
		ValidAfter:      uint64(noon.Add(-time.Hour).Unix()), ValidBefore: uint64(noon.Add(time.Hour).Unix()),
	}
	if change != nil {
		change(cert)
	}
	if err := cert.SignCert(zeros{}, authority); err != nil {
		tb.Fatal(err)
	}
	certified, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		tb.Fatal(err)
	}
	return certified
}

// zeros is the source of a constant nonce. A fuzzer runs in several processes, which must use the
// same certificate.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// blob is the blob of PROTOCOL.sshsig, field by field.
type blob struct {
	Magic                                           [6]byte
	Version                                         uint32
	PublicKey, Namespace, Reserved, Hash, Signature string
}

// forge makes a signature by hand. Before modifies the data that is signed and sent, and after only
// the data that is sent. Both may be nil.
func forge(tb testing.TB, signer ssh.Signer, algorithm string, before, after func(*blob)) []byte {
	tb.Helper()
	b := blob{
		Magic: [6]byte([]byte("SSHSIG")), Version: 1, PublicKey: string(signer.PublicKey().Marshal()),
		Namespace: namespace, Hash: "sha512",
	}
	if before != nil {
		before(&b)
	}
	digest := sha512.Sum512(message)
	data := slices.Concat([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Digest string }{b.Namespace, "", b.Hash, string(digest[:])}))
	var sig *ssh.Signature
	var err error
	if algorithm == "" {
		sig, err = signer.Sign(rand.Reader, data)
	} else {
		sig, err = signer.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, data, algorithm)
	}
	if err != nil {
		tb.Fatal(err)
	}
	b.Signature = string(ssh.Marshal(sig))
	if after != nil {
		after(&b)
	}
	return armor(ssh.Marshal(b))
}

func armor(blob []byte) []byte {
	return []byte(header + "\n" + base64.StdEncoding.EncodeToString(blob) + "\n" + footer + "\n")
}
