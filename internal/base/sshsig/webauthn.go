package sshsig

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	format "github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// algorithmWebAuthn is the algorithm of a signature that a browser asked a FIDO key for
// (PROTOCOL.u2f, "SSH WebAuthn signatures").
const algorithmWebAuthn = "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"

// Flags of authenticator data that announce more of it (WebAuthn, 6.1).
const (
	flagAttested   = 1 << 6 // data of a new key, which no signature has
	flagExtensions = 1 << 7
)

// assertion is the part of a browser's signature behind the signature proper.
type assertion struct {
	Flags      byte
	Counter    uint32
	Origin     string
	ClientData []byte
	Extensions []byte
}

// assertionOf returns the assertion in a signature, or nil if no browser asked for it. A signature
// that was accepted has a readable one.
func assertionOf(sig *ssh.Signature) *assertion {
	var a assertion
	if sig.Format != algorithmWebAuthn || ssh.Unmarshal(sig.Rest, &a) != nil {
		return nil
	}
	return &a
}

// readable checks the parts of an assertion against each other.
func (a *assertion) readable() error {
	switch {
	case a == nil:
		return refuse(ErrMalformed, "its assertion of the browser cannot be read")
	case a.Flags&flagAttested != 0, (a.Flags&flagExtensions != 0) != (len(a.Extensions) > 0):
		return refuse(ErrMalformed, "its flags %#x say something else than its assertion has", a.Flags)
	}
	return nil
}

// verify checks that a key signed data by the assertion. The beginning of the browser's data is
// compared, not parsed: browsers write these members first, in this form and order (WebAuthn,
// 5.8.1.1). A page in a frame of another origin is refused.
func (a *assertion) verify(key ssh.PublicKey, data []byte, sig *ssh.Signature) error {
	begin := `{"type":"webauthn.get","challenge":"` + base64.RawURLEncoding.EncodeToString(data) + `","origin":"` + a.Origin + `","crossOrigin":false`
	rest, ok := bytes.CutPrefix(a.ClientData, []byte(begin))
	if !ok || len(rest) == 0 || rest[0] != ',' && rest[0] != '}' {
		return errNotVerified
	}
	application, err := applicationOf(key)
	if err != nil {
		return err
	}
	applicationHash, clientHash := sha256.Sum256([]byte(application)), sha256.Sum256(a.ClientData)
	return verifySigned(key, slices.Concat(applicationHash[:], sig.Rest[:5], a.Extensions, clientHash[:]), sig)
}

// OfPages returns the list with signatures that browsers asked for on pages of these origins, such
// as "https://host.example". Without it, no such signature is accepted.
func (s *Signers) OfPages(origins ...string) *Signers {
	return &Signers{lines: s.lines, origins: origins}
}

// fromPage checks that a signature of a browser was asked for on a page of an accepted origin, by
// a user whom the authenticator verified.
func (s *Signers) fromPage(sig *format.Signature) error {
	a := assertionOf(sig.Signature)
	switch {
	case a == nil:
		return nil
	case !slices.Contains(s.origins, a.Origin):
		return refuse(ErrOrigin, "a page of %q asked for it, and accepted are pages of %q; sign on another page, or put the origin into the list", a.Origin, s.origins)
	case a.Flags&flagVerified == 0:
		return refuse(ErrNotVerified, "the authenticator asked for neither a PIN nor a fingerprint, which a page has to demand")
	}
	return nil
}
