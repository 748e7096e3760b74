package sshsig

import (
	"bytes"
	"crypto/elliptic"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	format "github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

func TestVerify(t *testing.T) {
	for _, tc := range []struct {
		name   string
		signer ssh.Signer
	}{
		{"Ed25519", ed25519Signer(t, "alice")},
		{"ECDSA P-256", ecdsaSigner(t, elliptic.P256())},
		{"ECDSA P-384", ecdsaSigner(t, elliptic.P384())},
		{"ECDSA P-521", ecdsaSigner(t, elliptic.P521())},
		{"RSA", rsaSigner(t, 2048)},
		{"FIDO Ed25519", newAuthenticator(t, ssh.KeyAlgoSKED25519, flagPresent)},
		{"FIDO ECDSA", newAuthenticator(t, ssh.KeyAlgoSKECDSA256, flagPresent)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key := tc.signer.PublicKey()
			s := list(t, "# people", listLine("alice@example.com", "", key), listLine("bob@example.com", "", ed25519Signer(t, "bob").PublicKey()))
			got, err := s.Verify(sign(t, tc.signer), message, namespace, noon)
			want := Signature{
				Principal: "alice@example.com", Line: 2, KeyType: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
				Touched: isFIDO(key),
			}
			if err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// TestVerifyRefuses covers every possible fault of a signature or its signer. Each has an error of
// its own.
func TestVerifyRefuses(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	key := signer.PublicKey()
	plainLine := listLine("alice@example.com", "", key)
	armored := sign(t, signer)
	other := []byte("approve something else\n")
	for _, tc := range []struct {
		name      string
		line      string
		as        string // the requested principal, or ""
		message   []byte
		namespace string
		want      error
	}{
		{"as it was signed", plainLine, "", message, namespace, nil},
		{"as it was signed, by name", plainLine, "alice@example.com", message, namespace, nil},
		{"changed message", plainLine, "", other, namespace, ErrBadSignature},
		{"longer message", plainLine, "", append(bytes.Clone(message), '\n'), namespace, ErrBadSignature},
		{"no message", plainLine, "", nil, namespace, ErrBadSignature},
		{"other namespace", plainLine, "", message, "git", ErrNamespace},
		{"longer namespace", plainLine, "", message, namespace + "x", ErrNamespace},
		{"empty namespace", plainLine, "", message, "", ErrNamespace},
		{"key not listed", listLine("alice@example.com", "", ed25519Signer(t, "bob").PublicKey()), "", message, namespace, ErrUnknownSigner},
		{"nobody listed", "", "", message, namespace, ErrUnknownSigner},
		{"listed as an authority only", listLine("*", "cert-authority", key), "", message, namespace, ErrUnknownSigner},
		{"other principal", plainLine, "bob@example.com", message, namespace, ErrPrincipal},
		{"principal in capitals", plainLine, "Alice@example.com", message, namespace, ErrPrincipal},
		{"pattern", listLine("*@example.com", "", key), "alice@example.com", message, namespace, nil},
		{"negated principal", listLine("*@example.com,!alice@example.com", "", key), "alice@example.com", message, namespace, ErrPrincipal},
		{"negated principal, another asked for", listLine("*@example.com,!alice@example.com", "", key), "bob@example.com", message, namespace, nil},
		{"negated principal, nobody asked for", listLine("*@example.com,!alice@example.com", "", key), "", message, namespace, ErrPrincipal},
		{"everyone negated", listLine("alice@example.com,!*", "", key), "", message, namespace, ErrPrincipal},
		{"namespace allowed", listLine("alice", `namespaces="git,approval@*"`, key), "", message, namespace, nil},
		{"namespace not allowed", listLine("alice", `namespaces="git,file"`, key), "", message, namespace, ErrNamespace},
		{"namespace negated", listLine("alice", `namespaces="*,!approval@example.com"`, key), "", message, namespace, ErrNamespace},
		{"in time", listLine("alice", `valid-after="20260313120000Z",valid-before="20260313120001Z"`, key), "", message, namespace, nil},
		{"in its last second", listLine("alice", `valid-before="20260313120000Z"`, key), "", message, namespace, nil},
		{"expired", listLine("alice", `valid-before="20260313115959Z"`, key), "", message, namespace, ErrExpired},
		{"not yet valid", listLine("alice", `valid-after="20260313120001Z"`, key), "", message, namespace, ErrNotYetValid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, at := list(t, tc.line), noon.Add(999*time.Millisecond)
			got, err := s.Verify(armored, tc.message, tc.namespace, at)
			if tc.as != "" {
				got, err = s.VerifyAs(tc.as, armored, tc.message, tc.namespace, at)
			}
			expect(t, err, tc.want)
			if (err != nil) != (got == Signature{}) {
				t.Errorf("got %+v with %v", got, err)
			}
			if err == nil && tc.as != "" && got.Principal != tc.as {
				t.Errorf("asked for %s, got %s", tc.as, got.Principal)
			}
		})
	}
	if _, err := list(t, plainLine).VerifyAs("", armored, message, namespace, noon); !errors.Is(err, ErrPrincipal) {
		t.Errorf("an empty principal: %v", err)
	}
}

// expect checks that err is want and no other error of this package.
func expect(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, kind := range []error{
		ErrMalformed, ErrAlgorithm, ErrNamespace, ErrBadSignature, ErrUnknownSigner, ErrPrincipal,
		ErrNotYetValid, ErrExpired, ErrCertificate, ErrNotTouched, ErrNotVerified, ErrOrigin,
	} {
		wanted := slices.ContainsFunc(want, func(w error) bool { return errors.Is(w, kind) })
		if errors.Is(err, kind) != wanted {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err != nil && !strings.HasPrefix(err.Error(), "cannot accept the SSH signature: ") {
		t.Errorf("got %q", err)
	}
}

// TestVerifyTriesEveryLine lists a key more than once. The first line that allows it counts. If
// none does, the error has the reason of each.
func TestVerifyTriesEveryLine(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	key, armored := signer.PublicKey(), sign(t, signer)
	lines := []string{
		listLine("alice@git", `namespaces="git"`, key),
		listLine("alice@past", `valid-before="20200101Z"`, key),
		listLine("alice@future", `valid-after="20300101Z"`, key),
	}
	_, err := list(t, lines...).Verify(armored, message, namespace, noon)
	expect(t, err, ErrNamespace, ErrExpired, ErrNotYetValid)
	for _, part := range []string{"line 1 ", "line 2 ", "line 3 ", "git", "2020-01-01", "2030-01-01"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	lines = append(lines, listLine("alice@now", "", key), listLine("alice@later", "", key))
	got, err := list(t, lines...).Verify(armored, message, namespace, noon)
	if err != nil || got.Principal != "alice@now" || got.Line != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = list(t, lines...).VerifyAs("alice@later", armored, message, namespace, noon)
	if err != nil || got.Principal != "alice@later" || got.Line != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestVerifyNames checks the name of the signer if no principal was requested.
func TestVerifyNames(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	armored := sign(t, signer)
	for principals, want := range map[string]string{
		"alice":                 "alice",
		"*@example.com,alice":   "alice",
		"alice,bob":             "alice",
		"alice,bob,!alice":      "bob",
		"*,bob,!a*":             "bob",
		"*@example.com":         "*@example.com",
		"*@example.com,?@a":     "*@example.com,?@a",
		`"Alice B. Carol,ali?"`: "Alice B. Carol",
	} {
		got, err := list(t, listLine(principals, "", signer.PublicKey())).Verify(armored, message, namespace, noon)
		if err != nil || got.Principal != want {
			t.Errorf("%s: got %q, %v", principals, got.Principal, err)
		}
	}
}

func TestVerifyMalformed(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	s := list(t, listLine("alice", "", signer.PublicKey()))
	good := sign(t, signer)
	text := string(good)
	lines := strings.SplitAfter(text, "\n")
	body := strings.Join(lines[1:len(lines)-2], "")
	for _, tc := range []struct {
		name, armored string
		want          error
	}{
		{"as it was made", text, nil},
		{"no line break at the end", strings.TrimSuffix(text, "\n"), nil},
		{"CRLF", strings.ReplaceAll(text, "\n", "\r\n"), nil},
		{"one line", header + "\n" + strings.ReplaceAll(body, "\n", "") + "\n" + footer, nil},
		{"empty", "", ErrMalformed},
		{"header alone", header, ErrMalformed},
		{"header and footer", header + "\n" + footer, ErrMalformed},
		{"header and footer on a line", header + footer, ErrMalformed},
		{"no body", header + "\n\n" + footer, ErrMalformed},
		{"truncated by a line", strings.Join(lines[:len(lines)-2], ""), ErrMalformed},
		{"truncated footer", text[:len(text)-2], ErrMalformed},
		{"truncated body", header + "\n" + body[:40] + "\n" + footer, ErrMalformed},
		{"text behind", text + "approved\n", ErrMalformed},
		{"blank behind", text + " ", ErrMalformed},
		{"text before", "approved\n" + text, ErrMalformed},
		{"line break before", "\n" + text, ErrMalformed},
		{"twice", text + text, ErrMalformed},
		{"footer behind the body", header + "\n" + strings.TrimSpace(body) + footer, ErrMalformed},
		{"header before the body", header + body + footer, ErrMalformed},
		{"PEM headers", header + "\nComment: hi\n\n" + body + footer, ErrMalformed},
		{"other PEM", strings.ReplaceAll(text, "SSH SIGNATURE", "PGP SIGNATURE"), ErrMalformed},
		{"no base64", strings.Replace(text, body[:1], "*", 1), ErrMalformed},
		{"too long", header + "\n" + strings.Repeat("\n", maxArmoredBytes) + body + footer, ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.Verify([]byte(tc.armored), message, namespace, noon)
			if tc.want == nil {
				expect(t, err)
			} else {
				expect(t, err, tc.want)
			}
		})
	}
	// No part of it is accepted.
	for i := range len(text) - 1 {
		if _, err := s.Verify(good[:i], message, namespace, noon); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d of %d bytes: %v", i, len(text), err)
		}
	}
}

// TestVerifyBlob changes the fields of PROTOCOL.sshsig one after another.
func TestVerifyBlob(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	s := list(t, listLine("alice", "", signer.PublicKey()))
	for _, tc := range []struct {
		name          string
		before, after func(*blob)
		want          error
	}{
		{"as it was made", nil, nil, nil},
		{"reserved field in use", nil, func(b *blob) { b.Reserved = "later" }, nil}, // "implementations should ignore" it
		{"magic", nil, func(b *blob) { b.Magic[5] = 'g' }, ErrMalformed},
		{"version 0", nil, func(b *blob) { b.Version = 0 }, ErrMalformed},
		{"version 2", nil, func(b *blob) { b.Version = 2 }, ErrMalformed},
		{"other namespace", func(b *blob) { b.Namespace = "git" }, nil, ErrNamespace},
		{"other namespace was signed", func(b *blob) { b.Namespace = "git" }, func(b *blob) { b.Namespace = namespace }, ErrBadSignature},
		{"SHA-1 of the text", func(b *blob) { b.Hash = "sha1" }, nil, ErrAlgorithm},
		{"no hash", func(b *blob) { b.Hash = "" }, nil, ErrAlgorithm},
		{"other hash than was signed", nil, func(b *blob) { b.Hash = "sha256" }, ErrBadSignature},
		{"other key", nil, func(b *blob) { b.PublicKey = string(ed25519Signer(t, "bob").PublicKey().Marshal()) }, ErrUnknownSigner},
		{"no key", nil, func(b *blob) { b.PublicKey = "" }, ErrMalformed},
		{"bytes behind the key", nil, func(b *blob) { b.PublicKey += "x" }, ErrMalformed},
		{"no signature", nil, func(b *blob) { b.Signature = "" }, ErrMalformed},
		{"bytes behind the signature", nil, func(b *blob) { b.Signature += "x" }, ErrMalformed},
		{"changed signature", nil, func(b *blob) { b.Signature = b.Signature[:len(b.Signature)-1] + "\xff" }, ErrBadSignature},
		{"other algorithm", nil, func(b *blob) {
			b.Signature = string(ssh.Marshal(ssh.Signature{Format: ssh.KeyAlgoED25519 + "x", Blob: make([]byte, 64)}))
		}, ErrAlgorithm},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.Verify(forge(t, signer, "", tc.before, tc.after), message, namespace, noon)
			if tc.want == nil {
				expect(t, err)
			} else {
				expect(t, err, tc.want)
			}
		})
	}
	t.Run("bytes behind the blob", func(t *testing.T) {
		armored := forge(t, signer, "", nil, nil)
		blob, err := base64.StdEncoding.DecodeString(strings.Split(string(armored), "\n")[1])
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Verify(armor(append(blob, 0)), message, namespace, noon)
		expect(t, err, ErrMalformed)
	})
	t.Run("empty namespace on both sides", func(t *testing.T) {
		armored := forge(t, signer, "", func(b *blob) { b.Namespace = "" }, nil)
		_, err := s.Verify(armored, message, "", noon)
		expect(t, err, ErrNamespace)
	})
}

// TestVerifyWeak makes valid signatures that are not accepted.
func TestVerifyWeak(t *testing.T) {
	signer, short := rsaSigner(t, 2048), rsaSigner(t, 1024)
	s := list(t, listLine("alice", "", signer.PublicKey()), listLine("*", "cert-authority", ed25519Signer(t, "authority").PublicKey()))
	certified := func(signer ssh.Signer) ssh.Signer { return certify(t, signer, ed25519Signer(t, "authority"), nil) }
	sha1Always := sha1Signer{signer.(ssh.AlgorithmSigner)}
	dsa, err := base64.StdEncoding.DecodeString(strings.Fields(dsaKey)[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		armored []byte
		want    error
	}{
		{"RSA with SHA-512", forge(t, signer, ssh.KeyAlgoRSASHA512, nil, nil), nil},
		{"RSA with SHA-256", forge(t, signer, ssh.KeyAlgoRSASHA256, nil, nil), nil},
		{"RSA with SHA-1", forge(t, signer, ssh.KeyAlgoRSA, nil, nil), ErrMalformed}, // the library refuses it
		{"certified RSA with SHA-512", forge(t, certified(signer), ssh.KeyAlgoRSASHA512, nil, nil), nil},
		{"certified RSA with SHA-1", forge(t, certified(sha1Always), "", nil, nil), ErrAlgorithm},
		{"short RSA", forge(t, short, ssh.KeyAlgoRSASHA512, nil, nil), ErrAlgorithm},
		{"certified short RSA", forge(t, certified(short), ssh.KeyAlgoRSASHA512, nil, nil), ErrAlgorithm},
		{"DSA", forge(t, ed25519Signer(t, "alice"), "", nil, func(b *blob) { b.PublicKey = string(dsa) }), ErrAlgorithm},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.Verify(tc.armored, message, namespace, noon)
			if tc.want == nil {
				expect(t, err)
			} else {
				expect(t, err, tc.want)
			}
		})
	}
}

// sha1Signer is an RSA key that always signs with SHA-1.
type sha1Signer struct {
	ssh.AlgorithmSigner
}

func (s sha1Signer) Sign(random io.Reader, data []byte) (*ssh.Signature, error) {
	return s.SignWithAlgorithm(random, data, ssh.KeyAlgoRSA)
}

func (s sha1Signer) SignWithAlgorithm(random io.Reader, data []byte, _ string) (*ssh.Signature, error) {
	return s.AlgorithmSigner.SignWithAlgorithm(random, data, ssh.KeyAlgoRSA)
}

func TestVerifyFIDO(t *testing.T) {
	const backup = 1 << 4 // a flag that means nothing here
	for _, keyType := range []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256} {
		device := newAuthenticator(t, keyType, 0)
		for _, tc := range []struct {
			name    string
			flags   byte
			options string
			want    error
		}{
			{"touched", flagPresent, "", nil},
			{"touched and PIN", flagPresent | flagVerified, "", nil},
			{"touched and another flag", flagPresent | backup, "", nil},
			{"not touched", 0, "", ErrNotTouched},
			{"PIN, but not touched", flagVerified, "", ErrNotTouched},
			{"touch not needed", 0, "no-touch-required", nil},
			{"touch not needed, but touched", flagPresent, "no-touch-required", nil},
			{"PIN needed and given", flagPresent | flagVerified, "verify-required", nil},
			{"PIN needed and not given", flagPresent, "verify-required", ErrNotVerified},
			{"PIN needed, touch not", flagVerified, "verify-required,no-touch-required", nil},
			{"PIN needed, touch not, neither given", 0, "verify-required,no-touch-required", ErrNotVerified},
		} {
			t.Run(keyType+" "+tc.name, func(t *testing.T) {
				signer := device.with(tc.flags)
				s := list(t, listLine("alice", tc.options, signer.PublicKey()))
				got, err := s.Verify(sign(t, signer), message, namespace, noon)
				if tc.want != nil {
					expect(t, err, tc.want)
					return
				}
				expect(t, err)
				if got.Touched != (tc.flags&flagPresent != 0) || got.Verified != (tc.flags&flagVerified != 0) {
					t.Errorf("flags %b: got %+v", tc.flags, got)
				}
				_, err = s.Verify(sign(t, signer), append(bytes.Clone(message), '!'), namespace, noon)
				expect(t, err, ErrBadSignature)
			})
		}
	}
}

// TestVerifyFIDOChanged changes the data of a FIDO signature after it was made. Every change is
// noticed, whether or not the device was touched.
func TestVerifyFIDOChanged(t *testing.T) {
	for _, keyType := range []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256} {
		for _, flags := range []byte{0, flagPresent} {
			device := newAuthenticator(t, keyType, flags)
			elsewhere := *device
			elsewhere.application = "ssh:other"
			s := list(t, listLine("alice", "no-touch-required", device.PublicKey()))
			for _, tc := range []struct {
				name   string
				signer ssh.Signer
				after  func(*blob)
				want   error
			}{
				{"as it was made", device, nil, nil},
				{"touch", device, func(b *blob) { b.flip(5, flagPresent) }, ErrBadSignature},
				{"PIN", device, func(b *blob) { b.flip(5, flagVerified) }, ErrBadSignature},
				{"counter", device, func(b *blob) { b.flip(1, 1) }, ErrBadSignature},
				{"signature", device, func(b *blob) { b.flip(6, 1) }, ErrBadSignature},
				{"application", &elsewhere, func(b *blob) { b.PublicKey = string(device.PublicKey().Marshal()) }, ErrBadSignature},
				{"key of another application", &elsewhere, nil, ErrUnknownSigner},
				{"no signature", device, func(b *blob) {
					b.Signature = string(ssh.Marshal(ssh.Signature{Format: keyType, Blob: []byte("x"), Rest: []byte{flags, 0, 0, 0, 1}}))
				}, ErrBadSignature},
				{"no counter", device, func(b *blob) { b.Signature = b.Signature[:len(b.Signature)-4] }, ErrMalformed},
				{"no flags", device, func(b *blob) { b.Signature = b.Signature[:len(b.Signature)-5] }, ErrMalformed},
				{"bytes behind the counter", device, func(b *blob) { b.Signature += "x" }, ErrMalformed},
				{"signature of a browser", device, func(b *blob) {
					b.Signature = strings.Replace(b.Signature, string(binary.BigEndian.AppendUint32(nil, uint32(len(keyType))))+keyType,
						string(binary.BigEndian.AppendUint32(nil, uint32(len("webauthn-"+keyType))))+"webauthn-"+keyType, 1)
				}, map[string]error{ssh.KeyAlgoSKED25519: ErrAlgorithm, ssh.KeyAlgoSKECDSA256: ErrMalformed}[keyType]},
			} {
				t.Run(keyType+" "+tc.name, func(t *testing.T) {
					_, err := s.Verify(forge(t, tc.signer, "", nil, tc.after), message, namespace, noon)
					if tc.want == nil {
						expect(t, err)
					} else {
						expect(t, err, tc.want)
					}
				})
			}
		}
	}
}

// flip changes bits of the signature's byte at that distance from its end.
func (b *blob) flip(fromEnd int, bits byte) {
	signature := []byte(b.Signature)
	signature[len(signature)-fromEnd] ^= bits
	b.Signature = string(signature)
}

func TestVerifyCertificate(t *testing.T) {
	authority, signer := ed25519Signer(t, "authority"), ed25519Signer(t, "alice")
	trusted := listLine("*@example.com", "cert-authority", authority.PublicKey())
	rsaAuthority := rsaSigner(t, 2048)
	device := newAuthenticator(t, ssh.KeyAlgoSKED25519, 0)
	extended := func(c *ssh.Certificate) { c.Extensions = map[string]string{"no-touch-required": "", "permit-pty": ""} }
	critical := func(name, value string) func(*ssh.Certificate) {
		return func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{name: value} }
	}
	for _, tc := range []struct {
		name   string
		line   string
		as     string
		signer ssh.Signer
		want   []error
	}{
		{"good", trusted, "", certify(t, signer, authority, nil), nil},
		{"good, by name", trusted, "alice@example.com", certify(t, signer, authority, nil), nil},
		{"forever", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidAfter, c.ValidBefore = 0, ssh.CertTimeInfinity }), nil},
		{"not on the line", trusted, "root@example.net", certify(t, signer, authority, nil), []error{ErrPrincipal}},
		{"not in the certificate", trusted, "bob@example.com", certify(t, signer, authority, nil), []error{ErrPrincipal}},
		{"negated", listLine("*,!alice@*,!root@*", "cert-authority", authority.PublicKey()), "", certify(t, signer, authority, nil), []error{ErrPrincipal}},
		{"no principals", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidPrincipals = nil }), []error{ErrPrincipal}},
		{"no principals, by name", trusted, "alice@example.com", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidPrincipals = nil }), []error{ErrPrincipal}},
		{"other authority", trusted, "", certify(t, signer, ed25519Signer(t, "mallory"), nil), []error{ErrUnknownSigner}},
		{"authority listed as a signer only", listLine("*", "", authority.PublicKey()), "", certify(t, signer, authority, nil), []error{ErrUnknownSigner}},
		{"key listed, certificate not", listLine("*", "", signer.PublicKey()), "", certify(t, signer, authority, nil), []error{ErrUnknownSigner}},
		{"signature of the authority is another's", trusted, "", impostor(t, signer, authority), []error{ErrCertificate}},
		{"host", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }), []error{ErrCertificate}},
		{"expired", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidBefore = uint64(noon.Unix()) }), []error{ErrExpired}},
		{"not yet valid", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidAfter = uint64(noon.Unix()) + 1 }), []error{ErrNotYetValid}},
		{"valid for no time", trusted, "", certify(t, signer, authority, func(c *ssh.Certificate) { c.ValidAfter = 1 << 63 }), []error{ErrNotYetValid}},
		{"line expired", listLine("*", `cert-authority,valid-before="20260101Z"`, authority.PublicKey()), "", certify(t, signer, authority, nil), []error{ErrExpired}},
		{"namespace of the line", listLine("*", `cert-authority,namespaces="git"`, authority.PublicKey()), "", certify(t, signer, authority, nil), []error{ErrNamespace}},
		{"forced command", trusted, "", certify(t, signer, authority, critical("force-command", "true")), []error{ErrCertificate}},
		{"unknown critical option", trusted, "", certify(t, signer, authority, critical("later@example.com", "")), []error{ErrCertificate}},
		{"RSA authority", listLine("*", "cert-authority", rsaAuthority.PublicKey()), "", certify(t, signer, rsaAuthority, nil), nil},
		{
			"RSA authority with SHA-1", listLine("*", "cert-authority", rsaAuthority.PublicKey()), "",
			certify(t, signer, sha1Only(t, rsaAuthority), nil), []error{ErrCertificate, ErrAlgorithm},
		},
		{"RSA", trusted, "", certify(t, rsaSigner(t, 2048), authority, nil), nil},
		{"FIDO authority that was not touched", listLine("*", "cert-authority", device.PublicKey()), "", certify(t, signer, device, nil), nil},
		{"FIDO touched", trusted, "", certify(t, device.with(flagPresent), authority, nil), nil},
		{"FIDO not touched", trusted, "", certify(t, device, authority, nil), []error{ErrNotTouched}},
		{"FIDO not touched, certificate allows it", trusted, "", certify(t, device, authority, extended), []error{ErrNotTouched}},
		{
			"FIDO not touched, line allows it", listLine("*", "cert-authority,no-touch-required", authority.PublicKey()), "",
			certify(t, device, authority, nil), []error{ErrNotTouched},
		},
		{
			"FIDO not touched, both allow it", listLine("*", "cert-authority,no-touch-required", authority.PublicKey()), "",
			certify(t, device, authority, extended), nil,
		},
		{"certificate wants a PIN, given", trusted, "", certify(t, device.with(flagPresent|flagVerified), authority, critical("verify-required", "")), nil},
		{"certificate wants a PIN, not given", trusted, "", certify(t, device.with(flagPresent), authority, critical("verify-required", "")), []error{ErrNotVerified}},
		{"certificate wants a PIN, no FIDO key", trusted, "", certify(t, signer, authority, critical("verify-required", "")), []error{ErrNotVerified}},
		{
			"line wants a PIN, no FIDO key", listLine("*", "cert-authority,verify-required", authority.PublicKey()), "",
			certify(t, signer, authority, nil), []error{ErrNotVerified},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, armored := list(t, tc.line), sign(t, tc.signer)
			got, err := s.Verify(armored, message, namespace, noon)
			if tc.as != "" {
				got, err = s.VerifyAs(tc.as, armored, message, namespace, noon)
			}
			expect(t, err, tc.want...)
			if err != nil {
				return
			}
			key, cert := plain(tc.signer.PublicKey())
			want := Signature{
				Principal: "alice@example.com", Line: 1, KeyType: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
				Authority: ssh.FingerprintSHA256(cert.SignatureKey), CertificateID: "alice's laptop", Serial: 7,
				Touched: got.Touched, Verified: got.Verified,
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// impostor returns signer with a certificate that names authority but was signed by another key.
func impostor(t *testing.T, signer, authority ssh.Signer) ssh.Signer {
	t.Helper()
	certified := certify(t, signer, ed25519Signer(t, "mallory"), nil)
	certified.PublicKey().(*ssh.Certificate).SignatureKey = authority.PublicKey()
	return certified
}

// sha1Only returns an authority that certifies with SHA-1.
func sha1Only(t *testing.T, signer ssh.Signer) ssh.Signer {
	t.Helper()
	restricted, err := ssh.NewSignerWithAlgorithms(signer.(ssh.AlgorithmSigner), []string{ssh.KeyAlgoRSA})
	if err != nil {
		t.Fatal(err)
	}
	return restricted
}

// TestVerifySaysWhatToDo checks the errors as a person reads them.
func TestVerifySaysWhatToDo(t *testing.T) {
	signer := ed25519Signer(t, "alice")
	key, armored := signer.PublicKey(), sign(t, signer)
	for _, tc := range []struct{ line, namespace, want string }{
		{
			listLine("bob", "", ed25519Signer(t, "bob").PublicKey()), namespace,
			"cannot accept the SSH signature: unknown signer: no line lists key " + ssh.FingerprintSHA256(key) +
				" (ssh-ed25519); sign with a key on the list, or put this one on it",
		},
		{
			listLine("alice", "", key), "git",
			`cannot accept the SSH signature: wrong namespace: it is for "approval@example.com" and has to be for "git"; sign with ssh-keygen -Y sign -n git`,
		},
		{
			listLine("alice", `valid-before="20260101Z"`, key), namespace,
			"cannot accept the SSH signature: line 1 of the allowed signers: expired: the key was valid until 2026-01-01T00:00:00Z; sign with another key, or change valid-before",
		},
	} {
		if _, err := list(t, tc.line).Verify(armored, message, tc.namespace, noon); err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

// FuzzVerify looks for a signature that is accepted although no signer made it.
func FuzzVerify(f *testing.F) {
	authority := ed25519Signer(f, "authority")
	device := newAuthenticator(f, ssh.KeyAlgoSKED25519, 0)
	// None of them is random, since a fuzzer runs in several processes.
	signers := []ssh.Signer{
		ed25519Signer(f, "alice"), device.with(flagPresent), device,
		certify(f, ed25519Signer(f, "carol"), authority, nil),
	}
	lines := []string{listLine("*", "cert-authority,no-touch-required", authority.PublicKey())}
	made := map[string]bool{}
	blobOf := func(armored []byte) string {
		sig, err := format.Unarmor(armored)
		if err != nil {
			return ""
		}
		return string(sig.Marshal()) // without the reserved field
	}
	for _, signer := range signers {
		if key, cert := plain(signer.PublicKey()); cert == nil {
			options := ""
			if isFIDO(key) {
				options = "no-touch-required"
			}
			lines = append(lines, listLine("alice", options, key))
		}
		armored := sign(f, signer)
		made[blobOf(armored)] = true
		f.Add(armored)
	}
	sum := sha1.Sum(message)
	f.Add(armor(sum[:]))
	f.Add([]byte(header + "\n" + footer))
	s := list(f, lines...)
	f.Fuzz(func(t *testing.T, armored []byte) {
		got, err := s.Verify(armored, message, namespace, noon)
		switch {
		case err == nil && !made[blobOf(armored)]:
			t.Errorf("accepted as %+v", got)
		case err != nil && (got != Signature{} || !strings.HasPrefix(err.Error(), "cannot accept the SSH signature: ")):
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
