package sshsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// minRSABits is the length of the shortest RSA key that is accepted.
const minRSABits = 2048

// Flags of a FIDO signature (PROTOCOL.u2f; CTAP2, authenticator data).
const (
	flagPresent  = 1 << 0 // the authenticator was touched
	flagVerified = 1 << 2 // a PIN was entered or a finger recognised
)

// fido is the part of a FIDO signature behind the signature proper.
type fido struct {
	Flags   byte
	Counter uint32
}

// plain returns the key that signs: the key itself, or the one in a certificate. Then it also
// returns the certificate.
func plain(key ssh.PublicKey) (ssh.PublicKey, *ssh.Certificate) {
	if cert, ok := key.(*ssh.Certificate); ok {
		return cert.Key, cert
	}
	return key, nil
}

// algorithms returns the accepted signature algorithms of a plain key.
func algorithms(key ssh.PublicKey) []string {
	switch key.Type() {
	case ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519:
		return []string{key.Type()}
	case ssh.KeyAlgoSKECDSA256:
		return []string{key.Type(), algorithmWebAuthn}
	}
	return nil
}

// strong refuses a plain key that is too weak.
func strong(key ssh.PublicKey) error {
	if algorithms(key) == nil {
		return refuse(ErrAlgorithm, "a key of type %s; use an Ed25519, ECDSA, RSA or FIDO key", key.Type())
	}
	if public, ok := key.(ssh.CryptoPublicKey); ok {
		if key, ok := public.CryptoPublicKey().(*rsa.PublicKey); ok && key.N.BitLen() < minRSABits {
			return refuse(ErrAlgorithm, "an RSA key of %d bits; use one of %d or more", key.N.BitLen(), minRSABits)
		}
	}
	return nil
}

// accepted refuses a signature by a plain key if its algorithm is not accepted, or if it has
// trailing bytes that the algorithm does not read.
func accepted(key ssh.PublicKey, sig *ssh.Signature) error {
	if err := strong(key); err != nil {
		return err
	}
	if !slices.Contains(algorithms(key), sig.Format) {
		return refuse(ErrAlgorithm, "%q for a key of type %s; it has to be one of %q", sig.Format, key.Type(), algorithms(key))
	}
	switch {
	case sig.Format == algorithmWebAuthn:
		return assertionOf(sig).readable()
	case isFIDO(key):
		if err := ssh.Unmarshal(sig.Rest, &fido{}); err != nil {
			return refuse(ErrMalformed, "its FIDO flags and counter cannot be read")
		}
	case len(sig.Rest) > 0:
		return refuse(ErrMalformed, "%d bytes too many behind the signature", len(sig.Rest))
	}
	return nil
}

// isFIDO reports whether a FIDO authenticator holds a plain key.
func isFIDO(key ssh.PublicKey) bool {
	return key.Type() == ssh.KeyAlgoSKED25519 || key.Type() == ssh.KeyAlgoSKECDSA256
}

// flagsOf returns the flags of a FIDO signature that was accepted.
func flagsOf(sig *ssh.Signature) byte { return sig.Rest[0] }

// mathematical is a key that checks only the mathematics of a FIDO signature. The key of package
// ssh refuses a signature without a touch, but here the line of the list decides whether that is a
// fault.
type mathematical struct {
	ssh.PublicKey
}

// Verify checks a signature that was accepted.
func (k mathematical) Verify(data []byte, sig *ssh.Signature) error {
	key, _ := plain(k.PublicKey)
	if a := assertionOf(sig); a != nil {
		return a.verify(key, data, sig)
	}
	if isFIDO(key) && flagsOf(sig)&flagPresent == 0 {
		return verifyUntouched(key, data, sig)
	}
	return key.Verify(data, sig)
}

// verifyUntouched checks an accepted FIDO signature as PROTOCOL.u2f, "SSH U2F signatures",
// describes it, with any flags.
func verifyUntouched(key ssh.PublicKey, data []byte, sig *ssh.Signature) error {
	application, err := applicationOf(key)
	if err != nil {
		return err
	}
	applicationHash, dataHash := sha256.Sum256([]byte(application)), sha256.Sum256(data)
	// Flags and counter are signed in the form in which they are sent.
	signed := slices.Concat(applicationHash[:], sig.Rest, dataHash[:])
	return verifySigned(key, signed, sig)
}

// errNotVerified is the answer of a check of mathematics. The caller says more.
var errNotVerified = errors.New("signature did not verify")

// verifySigned checks a signature of a FIDO key over exactly these bytes, in the form of
// PROTOCOL.u2f.
func verifySigned(key ssh.PublicKey, signed []byte, sig *ssh.Signature) error {
	var public crypto.PublicKey
	if key, ok := key.(ssh.CryptoPublicKey); ok {
		public = key.CryptoPublicKey()
	}
	switch public := public.(type) {
	case ed25519.PublicKey:
		if ed25519.Verify(public, signed, sig.Blob) {
			return nil
		}
	case *ecdsa.PublicKey:
		var point struct{ R, S *big.Int }
		if err := ssh.Unmarshal(sig.Blob, &point); err != nil {
			return err
		}
		if digest := sha256.Sum256(signed); ecdsa.Verify(public, digest[:], point.R, point.S) {
			return nil
		}
	}
	return errNotVerified
}

// applicationOf returns the application of a FIDO key, usually "ssh:".
func applicationOf(key ssh.PublicKey) (string, error) {
	if key.Type() == ssh.KeyAlgoSKED25519 {
		var w struct{ Type, Key, Application string }
		err := ssh.Unmarshal(key.Marshal(), &w)
		return w.Application, err
	}
	var w struct{ Type, Curve, Key, Application string }
	err := ssh.Unmarshal(key.Marshal(), &w)
	return w.Application, err
}

// isPasskey reports whether a FIDO key was made for pages: ssh-keygen makes no other application than
// one that begins with "ssh:". A program beside the browser can ask such a key for a signature with a
// touch alone.
func isPasskey(key ssh.PublicKey) bool {
	if !isFIDO(key) {
		return false
	}
	application, err := applicationOf(key)
	return err != nil || !strings.HasPrefix(application, "ssh:")
}

// describe names a key as ssh-keygen -l does.
func describe(key ssh.PublicKey) string {
	return fmt.Sprintf("%s (%s)", ssh.FingerprintSHA256(key), key.Type())
}
