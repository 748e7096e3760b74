package sshsig

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
)

// File is a file of allowed signers. It is read anew for each signature, so that
// whoever is taken out of it signs nothing more.
type File struct {
	Path string
	// Key names the setting that names the file, for whoever is told that it cannot be
	// used.
	Key string
	// Namespace is that of the signatures.
	Namespace string
	// Seen, where set, is told the SHA-256 of the file and what it lists whenever it is read,
	// before anybody is let in by it. Where it fails, the file is not used.
	Seen func(sum [sha256.Size]byte, list *Signers) error
}

// maxFile bounds a file of signers.
const maxFile = 16 << 20

// Load reads the file.
func (f File) Load() (*Signers, error) {
	// Read as a whole or not at all, and nothing is waited for: a person's decision is.
	text, err := durable.ReadUpTo(f.Path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", f.Key, err)
	}
	list, err := ParseAllowedSigners(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("cannot use %s %s: %w", f.Key, f.Path, err)
	}
	if f.Seen != nil {
		if err := f.Seen(sha256.Sum256(text), list); err != nil {
			return nil, fmt.Errorf("cannot use %s %s: %w", f.Key, f.Path, err)
		}
	}
	return list, nil
}

// Verify checks an armored signature over a text.
func (f File) Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error) {
	list, err := f.Load()
	if err != nil {
		return "", "", err
	}
	signature, err := list.Verify(armored, text, f.Namespace, at)
	return signature.Principal, signature.Fingerprint, err
}
