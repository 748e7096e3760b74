package sshsig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	format "github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Reasons to refuse a signature. The errors of this package wrap one of them, or several if several
// lines list the key and each refuses it for a different reason.
var (
	// ErrMalformed reports that the bytes are no SSH signature of the current version. Version 1
	// excludes signatures by a bare RSA key with SHA-1.
	ErrMalformed = errors.New("malformed SSH signature")
	// ErrAlgorithm reports that the key or the algorithm is too weak or unknown.
	ErrAlgorithm = errors.New("algorithm not accepted")
	// ErrNamespace reports that the signature was made for another purpose, or that the key may not
	// sign for this one.
	ErrNamespace = errors.New("wrong namespace")
	// ErrBadSignature reports that this key did not sign this text.
	ErrBadSignature = errors.New("bad signature")
	// ErrUnknownSigner reports that the key is not on the list.
	ErrUnknownSigner = errors.New("unknown signer")
	// ErrPrincipal reports that the key is on the list under another name.
	ErrPrincipal = errors.New("not this principal's key")
	// ErrNotYetValid and ErrExpired report that the key or its certificate may sign only at another
	// time.
	ErrNotYetValid = errors.New("not valid yet")
	ErrExpired     = errors.New("expired")
	// ErrCertificate reports that a certificate is not valid.
	ErrCertificate = errors.New("certificate not accepted")
	// ErrNotTouched reports that a FIDO key signed without a touch.
	ErrNotTouched = errors.New("no touch")
	// ErrOrigin reports that a page whose origin is not accepted had a FIDO key sign.
	ErrOrigin = errors.New("origin not accepted")
	// ErrNotVerified reports that a FIDO key signed without a PIN or biometrics, or that the line
	// requires them for a key that is no FIDO key.
	ErrNotVerified = errors.New("user not verified")
)

// refuse wraps kind with an explanation.
func refuse(kind error, words string, args ...any) error {
	return fmt.Errorf("%w: %s", kind, fmt.Sprintf(words, args...))
}

// maxArmoredBytes bounds an armored signature. The longest without a
// certificate, RSA of 16384 bits, takes less than 6 KiB.
const maxArmoredBytes = 64 << 10

// Signature is a signature that was accepted.
type Signature struct {
	// Principal is the signer. From VerifyAs it is the requested name. From Verify it is, for a
	// certificate, its first name that the line allows; for a key, the first name on its line that
	// has no wildcard, or all patterns of the line, as text, if there is no such name.
	Principal string
	// Line is the line of the list that allowed the signature, from 1.
	Line int
	// KeyType is the type of the key that signed, such as "ssh-ed25519", and Fingerprint its
	// "SHA256:…" as printed by ssh-keygen -l. For a certificate, both describe the key in it.
	KeyType, Fingerprint string
	// Authority is the fingerprint of the key that signed the certificate. CertificateID and Serial
	// are the values in the certificate. Without a certificate they are empty.
	Authority     string
	CertificateID string
	Serial        uint64
	// Touched and Verified report that a FIDO authenticator was touched, and that it was given a
	// PIN or biometrics. They are false for other keys, which cannot tell.
	Touched, Verified bool
	// Origin is that of the page on which a browser asked for the signature, such as
	// "https://host.example"; otherwise it is empty.
	Origin string
}

// Verify checks that armored is a signature of message, made for namespace by a key that the list
// allows at the time at, to the second. It returns the signer's name from the first line that
// allows the signature.
//
// It skips a line that excludes names from a pattern and has no name without a wildcard: whether
// that line allows the key depends on the name. VerifyAs asks for a name.
//
// The error wraps one of this package's, such as [ErrUnknownSigner].
func (s *Signers) Verify(armored, message []byte, namespace string, at time.Time) (Signature, error) {
	return s.verify("", armored, message, namespace, at)
}

// VerifyAs is Verify for a signature that has to be principal's, as with
// `ssh-keygen -Y verify -I`. A key on the list under other names only is
// refused with [ErrPrincipal].
func (s *Signers) VerifyAs(principal string, armored, message []byte, namespace string, at time.Time) (Signature, error) {
	if principal == "" {
		return Signature{}, fmt.Errorf("cannot accept the SSH signature: %w", refuse(ErrPrincipal, "the principal asked for is empty"))
	}
	return s.verify(principal, armored, message, namespace, at)
}

func (s *Signers) verify(principal string, armored, message []byte, namespace string, at time.Time) (Signature, error) {
	sig, err := parse(armored)
	if err != nil {
		return Signature{}, fmt.Errorf("cannot accept the SSH signature: %w", err)
	}
	lines := s.listing(sig.PublicKey)
	if len(lines) == 0 {
		err = unknown(sig.PublicKey)
	} else if err = prove(sig, message, namespace); err == nil {
		err = s.fromPage(sig)
	}
	if err != nil {
		return Signature{}, fmt.Errorf("cannot accept the SSH signature: %w", err)
	}
	for _, l := range lines {
		accepted, fault := l.allow(sig, principal, at)
		if fault == nil {
			return accepted, nil
		}
		fault = fmt.Errorf("line %d of the allowed signers: %w", l.number, fault)
		if err == nil {
			err = fault
		} else {
			err = fmt.Errorf("%w; %w", err, fault)
		}
	}
	return Signature{}, fmt.Errorf("cannot accept the SSH signature: %w", err)
}

// listing returns the lines that list a key or, for a certificate, its authority.
func (s *Signers) listing(key ssh.PublicKey) []line {
	_, cert := plain(key)
	if cert != nil {
		key = cert.SignatureKey
	}
	blob := key.Marshal()
	var lines []line
	for _, l := range s.lines {
		if l.authority == (cert != nil) && bytes.Equal(l.key.Marshal(), blob) {
			lines = append(lines, l)
		}
	}
	return lines
}

// NameOf returns the name under which a plain key signs in a namespace if no name is asked for, or ""
// if the list has no such key.
func (s *Signers) NameOf(key ssh.PublicKey, namespace string) string {
	for _, l := range s.listing(key) {
		if l.namespaces == nil || l.namespaces.match(namespace) {
			return l.principals.name()
		}
	}
	return ""
}

func unknown(key ssh.PublicKey) error {
	key, cert := plain(key)
	if cert != nil {
		return refuse(ErrUnknownSigner, "the certificate of key %s is by %s, and no line lists that as cert-authority; sign with a key on the list, or put the authority on it",
			describe(key), describe(cert.SignatureKey))
	}
	return refuse(ErrUnknownSigner, "no line lists key %s; sign with a key on the list, or put this one on it", describe(key))
}

// The armor of PROTOCOL.sshsig.
const (
	header = "-----BEGIN SSH SIGNATURE-----"
	footer = "-----END SSH SIGNATURE-----"
)

// parse reads an armored signature that has nothing around it except line breaks at the end. It
// does not check the signer or the text.
func parse(armored []byte) (*format.Signature, error) {
	if len(armored) > maxArmoredBytes {
		return nil, refuse(ErrMalformed, "%d bytes, and the limit is %d", len(armored), maxArmoredBytes)
	}
	body, begun := strings.CutPrefix(string(armored), header)
	body, ended := strings.CutSuffix(strings.TrimRight(body, "\r\n"), footer)
	if !begun || !ended || !strings.HasPrefix(strings.TrimPrefix(body, "\r"), "\n") || !strings.HasSuffix(body, "\n") {
		return nil, refuse(ErrMalformed, "it has to begin with the line %q and to end with the line %q; pass on the whole output of ssh-keygen -Y sign", header, footer)
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(body)
	if err != nil {
		return nil, refuse(ErrMalformed, "%v; pass on the output of ssh-keygen -Y sign unchanged", err)
	}
	sig, err := format.ParseSignature(blob)
	if errors.Is(err, format.ErrUnsupportedHashAlgorithm) {
		return nil, refuse(ErrAlgorithm, "%v; sign with ssh-keygen -Y sign -O hashalg=sha512", err)
	}
	if err != nil {
		return nil, refuse(ErrMalformed, "%v; make it with ssh-keygen -Y sign of a current OpenSSH", err)
	}
	key, _ := plain(sig.PublicKey)
	if err := accepted(key, sig.Signature); err != nil {
		return nil, err
	}
	return sig, nil
}

// prove checks that the key of a signature signed message for namespace.
func prove(sig *format.Signature, message []byte, namespace string) error {
	if sig.Namespace != namespace || namespace == "" {
		return refuse(ErrNamespace, "it is for %q and has to be for %[2]q; sign with ssh-keygen -Y sign -n %[2]s", sig.Namespace, namespace)
	}
	err := format.Verify(bytes.NewReader(message), sig, mathematical{sig.PublicKey}, sig.HashAlgorithm, namespace)
	if err != nil {
		return refuse(ErrBadSignature, "the text or the signature was changed after signing; sign the text as it is now")
	}
	return nil
}

// allow checks that a line allows a proven signature, whose key or authority it lists. Principal is
// the required signer, or "" for any that the line names.
func (l *line) allow(sig *format.Signature, principal string, at time.Time) (Signature, error) {
	key, cert := plain(sig.PublicKey)
	accepted := Signature{
		Line: l.number, KeyType: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
		Touched:  isFIDO(key) && flagsOf(sig.Signature)&flagPresent != 0,
		Verified: isFIDO(key) && flagsOf(sig.Signature)&flagVerified != 0,
	}
	if page := assertionOf(sig.Signature); page != nil {
		accepted.Origin = page.Origin
	}
	if cert != nil {
		accepted.Authority, accepted.CertificateID, accepted.Serial = ssh.FingerprintSHA256(cert.SignatureKey), cert.KeyId, cert.Serial
	}
	var err error
	if accepted.Principal, err = l.name(cert, principal); err != nil {
		return Signature{}, err
	}
	if l.namespaces != nil && !l.namespaces.match(sig.Namespace) {
		return Signature{}, refuse(ErrNamespace, "the key may sign for %s, not for %q; sign with another key, or change namespaces", l.namespaces, sig.Namespace)
	}
	now := at.Unix()
	if !l.after.IsZero() && now < l.after.Unix() {
		return Signature{}, refuse(ErrNotYetValid, "the key is valid from %s; sign with another key, or change valid-after", l.after.Format(time.RFC3339))
	}
	if !l.before.IsZero() && now > l.before.Unix() {
		return Signature{}, refuse(ErrExpired, "the key was valid until %s; sign with another key, or change valid-before", l.before.Format(time.RFC3339))
	}
	if cert != nil {
		if err := check(cert, accepted.Principal, at); err != nil {
			return Signature{}, err
		}
	}
	if err := l.present(key, cert, accepted); err != nil {
		return Signature{}, err
	}
	return accepted, nil
}

// name returns the name under which a line allows a key or a certificate.
func (l *line) name(cert *ssh.Certificate, principal string) (string, error) {
	switch {
	case principal != "" && !l.principals.match(principal):
		return "", refuse(ErrPrincipal, "it lists the key for %s, not for %q", l.principals, principal)
	case cert == nil && principal == "":
		if principal = l.principals.name(); principal == "" {
			return "", refuse(ErrPrincipal, "it allows the key by name, and no name was asked for; put a name without wildcards on the line")
		}
	case cert != nil && principal == "":
		i := slices.IndexFunc(cert.ValidPrincipals, l.principals.match)
		if i < 0 {
			return "", refuse(ErrPrincipal, "it is for %s, and the certificate for %q", l.principals, cert.ValidPrincipals)
		}
		principal = cert.ValidPrincipals[i]
	case cert != nil && !slices.Contains(cert.ValidPrincipals, principal):
		return "", refuse(ErrPrincipal, "the certificate is for %q, not for %q", cert.ValidPrincipals, principal)
	}
	return principal, nil
}

// Names of PROTOCOL.certkeys.
const (
	optionVerifyRequired = "verify-required"   // a critical option
	extensionNoTouch     = "no-touch-required" // an extension
)

// check checks a certificate by an authority that is on the list.
func check(cert *ssh.Certificate, principal string, at time.Time) error {
	now := at.Unix()
	switch {
	case cert.CertType != ssh.UserCert:
		return refuse(ErrCertificate, "it is a host's; sign with a user's")
	case now < 0 || uint64(now) < cert.ValidAfter:
		return refuse(ErrNotYetValid, "the certificate is not valid yet")
	case uint64(now) >= cert.ValidBefore:
		return refuse(ErrExpired, "the certificate has expired; get a new one from its authority")
	}
	if err := accepted(cert.SignatureKey, cert.Signature); err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	checker := ssh.CertChecker{
		SupportedCriticalOptions: []string{optionVerifyRequired},
		Clock:                    func() time.Time { return at },
	}
	if err := checker.CheckCert(principal, cert); err != nil {
		return refuse(ErrCertificate, "%v; get another from its authority", err)
	}
	return nil
}

// present checks that a FIDO key was used as its line and its certificate require.
func (l *line) present(key ssh.PublicKey, cert *ssh.Certificate, accepted Signature) error {
	noTouch, verified := l.noTouch, l.verified
	if cert != nil {
		_, extended := cert.Extensions[extensionNoTouch]
		_, critical := cert.CriticalOptions[optionVerifyRequired]
		noTouch, verified = noTouch && extended, verified || critical
	}
	if isFIDO(key) && !accepted.Touched && !noTouch {
		return refuse(ErrNotTouched, "the authenticator was not touched; sign again and touch it")
	}
	if isPasskey(key) && !accepted.Verified {
		return refuse(ErrNotVerified, "the key is a passkey, and the authenticator asked for neither a PIN nor a fingerprint")
	}
	if verified && !accepted.Verified {
		return refuse(ErrNotVerified, "the line requires a FIDO key with a PIN or a fingerprint; make one with ssh-keygen -O verify-required")
	}
	return nil
}
