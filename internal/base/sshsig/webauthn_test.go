package sshsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/openclawos/ocipd/test/passkeytest"
)

const page = "http://0a1b2c.localhost:7443"

func newPasskey() *passkeytest.Passkey { return passkeytest.New("0a1b2c.localhost", page) }

func TestVerifyPasskey(t *testing.T) {
	good := newPasskey()
	const backedUp = 1<<3 | 1<<4
	for _, tc := range []struct {
		name    string
		signer  *passkeytest.Passkey
		options string
		want    error
		openssh bool // ssh-keygen accepts it
	}{
		{"as browsers do it", good, "", nil, true},
		{"with members behind", good.But(func(p *passkeytest.Passkey) { p.Behind = `,"crossOrigin":false,"other_keys_can_be_added_here":"x"}` }), "", nil, true},
		{"of a key that is backed up", good.But(func(p *passkeytest.Passkey) { p.Flags |= backedUp }), "", nil, true},
		{"with extensions", good.But(func(p *passkeytest.Passkey) { p.Flags, p.Extensions = p.Flags|flagExtensions, []byte{0xa0} }), "", nil, true},
		{"on a line that demands a PIN", good, "verify-required", nil, false},

		{"without PIN and fingerprint", good.But(func(p *passkeytest.Passkey) { p.Flags = flagPresent }), "", ErrNotVerified, true},
		{"without a touch", good.But(func(p *passkeytest.Passkey) { p.Flags = flagVerified }), "", ErrNotTouched, true},
		{"of another page", good.But(func(p *passkeytest.Passkey) { p.Origin = "http://0a1b2c.localhost:7444" }), "", ErrOrigin, true},
		{"of another host", good.But(func(p *passkeytest.Passkey) { p.Origin = "http://evil.example" }), "", ErrOrigin, true},
		{"of another name", good.But(func(p *passkeytest.Passkey) { p.RP = "other.localhost" }), "", ErrUnknownSigner, false},
		{"of a page in a frame", good.But(func(p *passkeytest.Passkey) { p.Behind = `,"crossOrigin":true,"topOrigin":"http://evil.example"}` }), "", ErrBadSignature, true},
		{"without a word about frames", good.But(func(p *passkeytest.Passkey) { p.Behind = `}` }), "", ErrBadSignature, true},
		{"with an origin that goes on", good.But(func(p *passkeytest.Passkey) { p.Behind = `,"crossOrigin":falsey}` }), "", ErrBadSignature, true},
		{"of a new key", good.But(func(p *passkeytest.Passkey) { p.Kind = "webauthn.create" }), "", ErrBadSignature, false},
		{"of another challenge", good.But(func(p *passkeytest.Passkey) { p.Challenge = func([]byte) []byte { return []byte("a login") } }), "", ErrBadSignature, false},
		{"of a longer challenge", good.But(func(p *passkeytest.Passkey) {
			p.Challenge = func(data []byte) []byte { return append(bytes.Clone(data), 'x') }
		}), "", ErrBadSignature, false},
		{"with data of a new key", good.But(func(p *passkeytest.Passkey) { p.Flags |= flagAttested }), "", ErrMalformed, false},
		{"with announced extensions that are missing", good.But(func(p *passkeytest.Passkey) { p.Flags |= flagExtensions }), "", ErrMalformed, false},
		{"with extensions that are not announced", good.But(func(p *passkeytest.Passkey) { p.Extensions = []byte{0xa0} }), "", ErrMalformed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			armored := forge(t, tc.signer, "", nil, nil)
			line := listLine("alice", tc.options, good.PublicKey())
			got, err := list(t, line).OfPages("https://host.example", page).Verify(armored, message, namespace, noon)
			if tc.want != nil {
				expect(t, err, tc.want)
			} else if expect(t, err); got.Origin != page || !got.Touched || !got.Verified || got.Principal != "alice" {
				t.Errorf("got %+v", got)
			}
			// ssh-keygen knows no origins and no user verification.
			if o := newOpenSSH(t); tc.options == "" {
				if err := o.verify(t, line, armored, "alice", message); (err == nil) != tc.openssh {
					t.Errorf("ssh-keygen: %v", err)
				}
				if o.verify(t, line, armored, "alice", []byte("something else")) == nil {
					t.Error("ssh-keygen accepts another message")
				}
			}
		})
	}
}

// A list without origins accepts no signature that a browser asked for. Without a browser, a passkey
// signs as any FIDO key does, but not without a PIN or a fingerprint.
func TestPasskeyWithoutPages(t *testing.T) {
	good := newPasskey()
	s := list(t, listLine("alice", "", good.PublicKey()))
	_, err := s.Verify(forge(t, good, "", nil, nil), message, namespace, noon)
	expect(t, err, ErrOrigin)
	_, err = s.OfPages(page).Verify(forge(t, good, "", nil, nil), []byte("another text"), namespace, noon)
	expect(t, err, ErrBadSignature)
	alone := newAuthenticator(t, ssh.KeyAlgoSKECDSA256, flagPresent)
	alone.ecdsa, alone.application = good.Key, good.RP
	_, err = s.Verify(sign(t, alone), message, namespace, noon)
	expect(t, err, ErrNotVerified)
	alone.flags |= flagVerified
	got, err := s.Verify(sign(t, alone), message, namespace, noon)
	if expect(t, err); got.Origin != "" {
		t.Errorf("got %+v", got)
	}
}

// An Ed25519 key has no signatures of browsers: OpenSSH has no form of them.
func TestBrowsersSignByECDSA(t *testing.T) {
	device := newAuthenticator(t, ssh.KeyAlgoSKED25519, flagPresent|flagVerified)
	armored := forge(t, device, "", nil, func(b *blob) {
		b.Signature = string(ssh.Marshal(ssh.Signature{Format: algorithmWebAuthn, Blob: []byte("x"), Rest: []byte("y")}))
	})
	_, err := list(t, listLine("alice", "", device.PublicKey())).OfPages(page).Verify(armored, message, namespace, noon)
	expect(t, err, ErrAlgorithm)
}

// No changed character of the armor is accepted.
func TestPasskeyChanged(t *testing.T) {
	good := newPasskey()
	s := list(t, listLine("alice", "", good.PublicKey())).OfPages(page)
	armored := forge(t, good, "", nil, nil)
	if _, err := s.Verify(armored, message, namespace, noon); err != nil {
		t.Fatal(err)
	}
	for i := len(header) + 1; i < len(armored)-len(footer)-2; i++ {
		changed := bytes.Clone(armored)
		if changed[i] = 'A'; armored[i] == 'A' {
			changed[i] = 'B'
		}
		if got, err := s.Verify(changed, message, namespace, noon); err == nil {
			t.Fatalf("character %d: accepted as %+v", i, got)
		}
	}
}

// FuzzPasskey looks for bytes behind a signature that are accepted although the browser did not
// write them.
func FuzzPasskey(f *testing.F) {
	// A fuzzer runs in several processes, which use the same key.
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	good := newPasskey()
	good.Key = key
	var made []byte
	armored := forge(f, good, "", nil, func(b *blob) {
		var sig ssh.Signature
		if err := ssh.Unmarshal([]byte(b.Signature), &sig); err != nil {
			f.Fatal(err)
		}
		made = sig.Rest
	})
	s := list(f, listLine("alice", "", good.PublicKey())).OfPages(page)
	if _, err := s.Verify(armored, message, namespace, noon); err != nil {
		f.Fatal(err)
	}
	f.Add(made)
	f.Add(bytes.Replace(made, []byte("false"), []byte("true "), 1))
	f.Fuzz(func(t *testing.T, rest []byte) {
		changed := forge(t, good, "", nil, func(b *blob) {
			b.Signature = strings.TrimSuffix(b.Signature, string(made)) + string(rest)
		})
		if got, err := s.Verify(changed, message, namespace, noon); err == nil && !bytes.Equal(rest, made) {
			t.Errorf("accepted as %+v", got)
		}
	})
}
