package store

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/audit"
)

// Evidence is what a database shows of its log.
type Evidence struct{ *reader }

// Evidence returns what the store's own file shows, and not what is remembered of it.
func (s *Store) Evidence() Evidence { return Evidence{&s.reader} }

// Checkpoint returns the newest checkpoint; its Seq is zero where none was made.
func (r Evidence) Checkpoint(ctx context.Context) (Signed, error) { return r.newestCheckpoint(ctx) }

// PublicKey returns the public key that the log is signed with, "" where it never
// was.
func (r Evidence) PublicKey(ctx context.Context) (string, error) {
	key, err := r.meta(ctx, publicKeyName)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return string(key), err
}

// RootAt returns the root of the tree over the first records, or [ErrNotFound]
// where there are fewer.
func (r Evidence) RootAt(ctx context.Context, size uint64) (audit.Hash, error) {
	last, err := r.LastSeq(ctx)
	if err != nil {
		return audit.Hash{}, err
	}
	tree, err := r.tree(ctx, last)
	if err != nil {
		return audit.Hash{}, err
	}
	return r.rootAt(ctx, size, &tree)
}

// CheckTail checks the chain of the last 256 records, or of those there are, and
// returns its end.
func (r Evidence) CheckTail(ctx context.Context) (audit.Head, error) {
	tombstone, err := r.Tombstone(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return audit.Head{}, err
	}
	last, err := r.LastSeq(ctx)
	if err != nil {
		return audit.Head{}, err
	}
	return r.verifyTail(ctx, tombstone, last)
}
