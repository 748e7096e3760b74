package sshsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha512"
	"crypto/x509"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/test/passkeytest"
	"golang.org/x/crypto/ssh"
)

// answer has a passkey answer a challenge.
func answer(tb testing.TB, p *passkeytest.Passkey, challenge []byte) *Assertion {
	tb.Helper()
	client, data, signature := p.Answer(challenge)
	return &Assertion{ClientData: client, AuthenticatorData: data, Signature: signature}
}

func spki(tb testing.TB, key any) []byte {
	tb.Helper()
	text, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// The answer of a browser is a signature of the text, for the list and for ssh-keygen.
func TestAssertion(t *testing.T) {
	good := newPasskey()
	key, err := PasskeyOf(spki(t, good.Key.Public()), "0a1b2c.localhost")
	if err != nil || !bytes.Equal(key.Marshal(), good.PublicKey().Marshal()) {
		t.Fatalf("PasskeyOf() = %v, %v", key, err)
	}
	other, err := PasskeyOf(spki(t, good.Key.Public()), "other.localhost")
	if err != nil {
		t.Fatal(err)
	}
	challenge := Challenge(message, namespace)
	line := listLine("alice", `namespaces="`+namespace+`"`, key)
	for _, tc := range []struct {
		name   string
		signer *passkeytest.Passkey
		ask    []byte
		key    ssh.PublicKey
		want   string
	}{
		{"good", good, challenge, key, ""},
		{"with extensions", good.But(func(p *passkeytest.Passkey) { p.Flags, p.Extensions = p.Flags|flagExtensions, []byte{0xa0} }), challenge, key, ""},
		{"another text", good, Challenge([]byte("another text"), namespace), key, "bad signature"},
		{"another namespace", good, Challenge(message, "git"), key, "bad signature"},
		{"a login", good, slices.Repeat([]byte{7}, 32), key, "bad signature"},
		{"another key", newPasskey(), challenge, key, "bad signature"},
		{"another application", good, challenge, other, "bad signature"},
		{"a new key", good.But(func(p *passkeytest.Passkey) { p.Kind = "webauthn.create" }), challenge, key, "bad signature"},
		{"an ssh key", good, challenge, ed25519Signer(t, "x").PublicKey(), "algorithm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			armored, err := answer(t, tc.signer, tc.ask).Sign(tc.key, message, namespace)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Sign() = %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := list(t, line).OfPages(page).Verify(armored, message, namespace, noon)
			if expect(t, err); got.Origin != page || !got.Verified || got.Principal != "alice" {
				t.Errorf("got %+v", got)
			}
			if err := newOpenSSH(t).verify(t, line, armored, "alice", message); err != nil {
				t.Errorf("ssh-keygen: %v", err)
			}
		})
	}
	sum := sha512.Sum512(message)
	if !bytes.HasPrefix(challenge, []byte("SSHSIG\x00\x00\x00")) || !bytes.HasSuffix(challenge, sum[:]) {
		t.Errorf("the challenge is %q", challenge)
	}
}

func TestPasskeyOfOtherKeys(t *testing.T) {
	p384, err := ecdsa.ParseRawPrivateKey(elliptic.P384(), bytes.Repeat([]byte{7}, 48))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"Ed25519": spki(t, ed25519.NewKeyFromSeed(make([]byte, 32)).Public()), "P-384": spki(t, p384.Public()), "nothing": nil, "text": []byte("text"),
	} {
		if key, err := PasskeyOf(text, "x.localhost"); err == nil {
			t.Errorf("%s: %v", name, key)
		}
	}
}

// FuzzAssertion looks for an answer that is accepted although the browser did not give it.
func FuzzAssertion(f *testing.F) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	good := newPasskey()
	good.Key = key
	a := answer(f, good, Challenge(message, namespace))
	f.Add(a.ClientData, a.AuthenticatorData, a.Signature)
	f.Add([]byte(`{"origin":1}`), a.AuthenticatorData[:37], []byte{0x30, 0})
	f.Fuzz(func(t *testing.T, client, data, signature []byte) {
		armored, err := (&Assertion{ClientData: client, AuthenticatorData: data, Signature: signature}).Sign(good.PublicKey(), message, namespace)
		if err != nil {
			return
		}
		if !bytes.Equal(client, a.ClientData) || !bytes.Equal(data[32:], a.AuthenticatorData[32:]) {
			t.Errorf("%q %x is accepted", client, data)
		}
		if _, err := list(t, listLine("alice", "", good.PublicKey())).OfPages(page).Verify(armored, message, namespace, noon); err != nil {
			t.Error(err)
		}
	})
}
