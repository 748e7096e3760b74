package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Consistency proves that a larger log begins with all of a smaller one (RFC 6962, section 2.1.2),
// to somebody who has the checkpoints of both and no record. Its text is the request to a witness
// (C2SP tlog-witness).
type Consistency struct {
	// Old is the number of records of the smaller log.
	Old  uint64
	Path []Hash
	// Note is the signed checkpoint of the larger one.
	Note string
	// HandOvers are the checkpoints in which a key of the log hands over to the next, for a
	// verifier that knows an earlier key than the one that signed the note.
	HandOvers []string
}

// maxPath bounds a proof: a tree has at most so many levels.
const maxPath = 63

const oldMember = "old "

// MarshalText writes the proof.
func (c *Consistency) MarshalText() ([]byte, error) {
	b := strconv.AppendUint([]byte(oldMember), c.Old, 10)
	b = append(b, '\n')
	return appendProof(b, c.Path, c.Note, c.HandOvers), nil
}

// UnmarshalText reads a proof.
func (c *Consistency) UnmarshalText(text []byte) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("not a consistency proof: %w", fmt.Errorf(format, args...))
	}
	if len(text) > MaxReceiptBytes {
		return bad("longer than %d bytes", MaxReceiptBytes)
	}
	head, signed, found := bytes.Cut(text, []byte("\n\n"))
	if !found {
		return bad("no checkpoint follows the proof")
	}
	lines := strings.Split(string(head), "\n")
	number, found := strings.CutPrefix(lines[0], oldMember)
	old, err := strconv.ParseUint(number, 10, 62)
	if !found || err != nil || strconv.FormatUint(old, 10) != number {
		return bad("%.40q names no number of records", lines[0])
	}
	got := Consistency{Old: old}
	if got.Note, got.HandOvers, err = apart(string(signed)); err != nil {
		return bad("%w", err)
	}
	if got.Path, err = readPath(lines[1:], maxPath); err != nil {
		return bad("%w", err)
	}
	if _, err := OpenCheckpoint(got.Note); !errors.Is(err, ErrUnsigned) {
		return bad("%w", err)
	}
	*c = got
	return nil
}

// ErrFork means that two checkpoints do not belong to one growing log.
var ErrFork = errors.New("the checkpoint is not of a log that goes on from the other one")

// Extends reports whether the proof leads from one root to another: nothing of the smaller log was
// changed.
func Extends(path []Hash, old uint64, oldRoot Hash, size uint64, root Hash) error {
	proof := make(tlog.TreeProof, len(path))
	for i, h := range path {
		proof[i] = tlog.Hash(h)
	}
	switch {
	case old > size || size > 1<<62:
		return fmt.Errorf("%w: it is of %d records, and the other of %d", ErrFork, size, old)
	case old == size:
		if len(path) > 0 || oldRoot != root {
			return ErrFork
		}
		return nil
	case old == 0:
		// Every log continues an empty one.
		if len(path) > 0 {
			return ErrFork
		}
		return nil
	case tlog.CheckTree(proof, int64(size), tlog.Hash(root), int64(old), tlog.Hash(oldRoot)) != nil:
		return ErrFork
	}
	return nil
}

// Check returns the checkpoint of the larger log, signed by one of the keys or by one that they
// hand over to, if the log of an older checkpoint is its beginning. The signer of the older one
// does not matter: the larger one says that its records are the first of the log.
func (c *Consistency) Check(old *Checkpoint, keys ...note.Verifier) (Checkpoint, error) {
	next, err := OpenCheckpoint(c.Note, followed(keys, c.HandOvers)...)
	switch {
	case err != nil:
		return Checkpoint{}, err
	case next.Origin != old.Origin:
		return Checkpoint{}, fmt.Errorf("%w: it is of the log %s, and the other of %s", ErrFork, next.Origin, old.Origin)
	case c.Old != old.Size:
		return Checkpoint{}, fmt.Errorf("%w: the proof is from %d records on, and that one is of %d", ErrFork, c.Old, old.Size)
	}
	return next, Extends(c.Path, old.Size, old.Root, next.Size, next.Root)
}

// ProveExtension returns the path from the root at one size to the root at another.
func (t *Tree) ProveExtension(old, size uint64, tiles TileReader) ([]Hash, error) {
	if old > size || size > t.size {
		return nil, fmt.Errorf("cannot prove that %d records begin with %d: there are %d", size, old, t.size)
	}
	if old == 0 || old == size {
		return nil, nil
	}
	proof, err := tlog.ProveTree(int64(size), int64(old), t.hashes(tiles))
	if err != nil {
		return nil, fmt.Errorf("cannot prove that %d records begin with %d: %w", size, old, err)
	}
	path := make([]Hash, len(proof))
	for i, h := range proof {
		path[i] = Hash(h)
	}
	return path, nil
}

// hashes reads the tree with the library's numbers for hashes.
func (t *Tree) hashes(tiles TileReader) tlog.HashReaderFunc {
	return func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, stored := range indexes {
			level, n := tlog.SplitStoredHashIndex(stored)
			h, err := t.subtree(level, uint64(n), tiles)
			if err != nil {
				return nil, err
			}
			hashes[i] = tlog.Hash(h)
		}
		return hashes, nil
	}
}
