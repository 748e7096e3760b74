package store

import (
	"context"

	"github.com/openclawos/ocipd/internal/audit"
)

// ProveExtension returns the path that shows that the first records of a number are
// the beginning of those of another, or [ErrNotFound] where there are fewer.
func (r Evidence) ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error) {
	last, err := r.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := r.tree(ctx, last)
	if err != nil {
		return nil, err
	}
	return r.extension(ctx, old, size, &tree)
}

// ProveExtension is [Evidence.ProveExtension] with the tree in memory.
func (s *Store) ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error) {
	return s.extension(ctx, old, size, &s.end.Load().tree)
}

func (r *reader) extension(ctx context.Context, old, size uint64, tree *audit.Tree) ([]audit.Hash, error) {
	if old > size || size > tree.Size() {
		return nil, ErrNotFound
	}
	path, err := tree.ProveExtension(old, size, r.tiles(ctx))
	if err != nil {
		return nil, err
	}
	var roots [2]audit.Hash
	for i, n := range [...]uint64{old, size} {
		if roots[i], err = r.rootAt(ctx, n, tree); err != nil {
			return nil, err
		}
	}
	if audit.Extends(path, old, roots[0], size, roots[1]) != nil {
		return nil, &audit.Fault{Problem: "the tiles of the Merkle tree are damaged: the next start of the daemon makes them again"}
	}
	return path, nil
}
