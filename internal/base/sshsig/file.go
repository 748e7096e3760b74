package sshsig

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
)

// File is a file of allowed signers. It is read anew for each signature, so that a person who was
// removed from it can sign nothing more.
type File struct {
	Path string
	// Key names the setting that names the file, for the error if the file cannot be used.
	Key string
	// Namespace is the namespace of the signatures.
	Namespace string
	// Origins are those of the pages on which browsers may ask for signatures.
	Origins []string
	// Seen, if set, is called with the SHA-256 of the file and its list after each read, before any
	// signature is accepted. If it fails, the file is not used.
	Seen func(sum [sha256.Size]byte, list *Signers) error
}

// maxFile bounds a file of signers.
const maxFile = 16 << 20

// Load reads the file.
func (f File) Load() (*Signers, error) {
	// The read takes the whole file or fails, and never waits, since a person's decision waits for
	// it.
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

// Check returns the check that somebody in the file has made a signature, and may sign at a time.
func (f File) Check(at time.Time) func(armored, text []byte) error {
	return func(armored, text []byte) error {
		_, _, err := f.Verify(armored, text, at)
		return err
	}
}

// Verify checks an armored signature over a text.
func (f File) Verify(armored, text []byte, at time.Time) (principal, fingerprint string, err error) {
	list, err := f.Load()
	if err != nil {
		return "", "", err
	}
	signature, err := list.OfPages(f.Origins...).Verify(armored, text, f.Namespace, at)
	return signature.Principal, signature.Fingerprint, err
}
