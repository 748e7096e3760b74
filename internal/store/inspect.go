package store

import (
	"context"
	"errors"

	"github.com/openclawos/ocipd/internal/audit"
)

// Checkpoint returns the newest checkpoint; its Seq is zero where none was made.
func (r *Reader) Checkpoint(ctx context.Context) (Signed, error) { return r.newestCheckpoint(ctx) }

// PublicKey returns the public key that the log is signed with, "" where it never
// was.
func (r *Reader) PublicKey(ctx context.Context) (string, error) {
	key, err := r.meta(ctx, publicKeyName)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return string(key), err
}

// RootAt returns the root of the tree over the first records, or [ErrNotFound]
// where there are fewer.
func (r *Reader) RootAt(ctx context.Context, size uint64) (audit.Hash, error) {
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
func (r *Reader) CheckTail(ctx context.Context) (audit.Head, error) {
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
