package keyring

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxPairs is how many pairs of keys a host keeps.
const maxPairs = 16

// fleetFile holds the keys of this host in its fleet.
const fleetFile = "fleet.json"

// Fleet is a pair of keys of this host in its fleet: see internal/fleet/frame.
type Fleet struct {
	Sign ed25519.PrivateKey
	Seal *ecdh.PrivateKey
}

// storedFleet is the file: the pairs of keys, the newest last.
type storedFleet struct {
	Keys []storedPair `json:"keys"`
}

type storedPair struct {
	Sign []byte `json:"sign"`
	Seal []byte `json:"seal"`
}

// AddFleet makes a further pair of keys of this host, durably. It comes into force with the roster
// that has it; until then the one in force stays, of which inForce is the public key that signs, nil for
// none. Pairs before that one are removed, and later ones are kept: an operator may still sign any of them.
func AddFleet(dir string, random io.Reader, inForce ed25519.PublicKey) (*Fleet, error) {
	if err := prepare(dir, fleetFile); err != nil {
		return nil, err
	}
	stored, err := readFleet(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	seeds := make([]byte, 2*ed25519.SeedSize)
	if _, err := io.ReadFull(random, seeds); err != nil {
		return nil, fmt.Errorf("cannot make the keys of this host: %w", err)
	}
	made := storedPair{Sign: seeds[:ed25519.SeedSize], Seal: seeds[ed25519.SeedSize:]}
	if used := slices.IndexFunc(stored.Keys, func(p storedPair) bool {
		keys, err := p.keys()
		return err == nil && inForce.Equal(keys.Sign.Public())
	}); used > 0 {
		stored.Keys = stored.Keys[used:]
	}
	if stored.Keys = append(stored.Keys, made); len(stored.Keys) > maxPairs {
		// The first may be in force.
		stored.Keys = slices.Delete(stored.Keys, 1, 1+len(stored.Keys)-maxPairs)
	}
	text, err := json.Marshal(&stored, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("cannot encode the keys of this host: %w", err)
	}
	if err := write(dir, fleetFile, secretMode, append(text, '\n')); err != nil {
		return nil, err
	}
	return made.keys()
}

func (s *storedPair) keys() (*Fleet, error) {
	if len(s.Sign) != ed25519.SeedSize {
		return nil, errors.New("sign is no seed of 32 bytes")
	}
	seal, err := ecdh.X25519().NewPrivateKey(s.Seal)
	if err != nil {
		return nil, errors.New("seal is no key of 32 bytes")
	}
	return &Fleet{Sign: ed25519.NewKeyFromSeed(s.Sign), Seal: seal}, nil
}

// ReadFleet reads the pairs of keys of this host, the newest last. Without any, the error is
// [fs.ErrNotExist].
func ReadFleet(dir string) (all []*Fleet, err error) {
	stored, err := readFleet(dir)
	for i := range stored.Keys {
		var one *Fleet
		if one, err = stored.Keys[i].keys(); err != nil {
			return nil, fmt.Errorf("cannot use the key file %s: %w", filepath.Join(dir, fleetFile), err)
		}
		all = append(all, one)
	}
	return all, err
}

func readFleet(dir string) (stored storedFleet, err error) {
	text, err := read(dir, fleetFile, secretMode)
	if errors.Is(err, fs.ErrNotExist) {
		return stored, fmt.Errorf("this host has no keys for a fleet; make them with `ocipd fleet join`: %w", fs.ErrNotExist)
	}
	if err == nil && json.Unmarshal(text, &stored, json.RejectUnknownMembers(true)) != nil {
		// The error may contain a part of a key.
		return stored, fmt.Errorf("cannot use the key file %s: it is not as `ocipd fleet join` writes it", filepath.Join(dir, fleetFile))
	}
	return stored, err
}

// Public returns the public keys, as the roster has them.
func (f *Fleet) Public() (sign, seal []byte) {
	return f.Sign.Public().(ed25519.PublicKey), f.Seal.PublicKey().Bytes()
}
