package keyring

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// lineFile holds the key by which this host's line logs in to a broker. It is a file of its own: a
// client of a broker signs whatever the broker sends, so that this key signs nothing else.
const lineFile = "fleet-line.key"

// OpenLine reads the key of this host's line, and makes it durably if there is none.
func OpenLine(dir string, random io.Reader) (ed25519.PrivateKey, error) {
	key, err := ReadLine(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := prepare(dir, lineFile); err != nil {
		return nil, err
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fmt.Errorf("cannot make the key of the line: %w", err)
	}
	if err := write(dir, lineFile, secretMode, []byte(base64.StdEncoding.EncodeToString(seed)+"\n")); err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ReadLine reads the key of this host's line. Without one, the error is [fs.ErrNotExist].
func ReadLine(dir string) (ed25519.PrivateKey, error) {
	text, err := read(dir, lineFile, secretMode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this host has no key for a broker; make it with `ocipd fleet join`: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	seed, err := base64.StdEncoding.DecodeString(line(text))
	if err != nil || len(seed) != ed25519.SeedSize {
		// The error may contain a part of the key.
		return nil, fmt.Errorf("cannot use the key file %s: it is not as `ocipd fleet join` writes it", filepath.Join(dir, lineFile))
	}
	return ed25519.NewKeyFromSeed(seed), nil
}
