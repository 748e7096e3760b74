package logstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
)

// ErrUnsigned means that no checkpoint covers a record yet.
var ErrUnsigned = errors.New("no checkpoint covers the record yet")

// Evidence is the log as the database alone shows it.
type Evidence struct{ Records }

// EvidenceIn returns the evidence in a database.
func EvidenceIn(reader *db.Reader) Evidence { return Evidence{Records{reader}} }

// Checkpoint returns the newest checkpoint; its Seq is zero if there is none.
func (r Evidence) Checkpoint(ctx context.Context) (Signed, error) { return r.newestCheckpoint(ctx) }

// PublicKey returns the public key that the log is signed with, "" if it never was.
func (r Evidence) PublicKey(ctx context.Context) (string, error) { return r.publicKey(ctx) }

// RootAt returns the root of the tree over the first records, or [db.ErrNotFound] if there are
// fewer.
func (r Evidence) RootAt(ctx context.Context, size uint64) (audit.Hash, error) {
	tree, err := r.wholeTree(ctx)
	if err != nil {
		return audit.Hash{}, err
	}
	return r.rootAt(ctx, size, &tree)
}

// CheckTail checks the chain of the last 256 records, or of those there are, and
// returns its end.
func (r Evidence) CheckTail(ctx context.Context) (audit.Head, error) {
	tombstone, err := r.Tombstone(ctx)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return audit.Head{}, err
	}
	last, err := r.LastSeq(ctx)
	if err != nil {
		return audit.Head{}, err
	}
	return r.verifyTail(ctx, tombstone, last)
}

// ProveRecord returns the receipt of a record, as [Log.ProveRecord] does.
func (r Evidence) ProveRecord(ctx context.Context, seq uint64) (audit.Receipt, error) {
	prove, err := r.Prover(ctx)
	if err != nil {
		return audit.Receipt{}, err
	}
	return prove(ctx, seq)
}

// Prover returns a function that makes receipts of many records. It reads the tree once, and all
// receipts are under the checkpoint that was the newest at that time.
func (r Evidence) Prover(ctx context.Context) (func(ctx context.Context, seq uint64) (audit.Receipt, error), error) {
	tree, err := r.wholeTree(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := r.newestCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, seq uint64) (audit.Receipt, error) { return r.prove(ctx, seq, &tree, newest) }, nil
}

// ProveExtension returns the path that shows that the log of size old is the beginning of the one
// of another size, or [db.ErrNotFound] if there are fewer records.
func (r Evidence) ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error) {
	tree, err := r.wholeTree(ctx)
	if err != nil {
		return nil, err
	}
	return r.extension(ctx, old, size, &tree)
}

func (r Evidence) wholeTree(ctx context.Context) (audit.Tree, error) {
	last, err := r.LastSeq(ctx)
	if err != nil {
		return audit.Tree{}, err
	}
	return r.tree(ctx, last)
}

// newestCheckpoint returns the last plain checkpoint; its Seq is zero if there is none.
func (r Records) newestCheckpoint(ctx context.Context) (newest Signed, err error) {
	value, err := r.db.Named(ctx, checkpointName)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return Signed{}, nil
	case err != nil:
		return Signed{}, err
	}
	if err := json.Unmarshal(value, &newest); err != nil {
		return Signed{}, fmt.Errorf("cannot read the newest checkpoint: %w", err)
	}
	return newest, nil
}

func (r Records) publicKey(ctx context.Context) (string, error) {
	key, err := r.db.Named(ctx, publicKeyName)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return string(key), err
}

func (r Records) rootAt(ctx context.Context, size uint64, tree *audit.Tree) (audit.Hash, error) {
	if size > tree.Size() {
		return audit.Hash{}, db.ErrNotFound
	}
	f, err := tree.Frontier(size, r.tiles(ctx))
	if err != nil {
		return audit.Hash{}, err
	}
	return f.Root(), nil
}

func (r Records) prove(ctx context.Context, seq uint64, tree *audit.Tree, newest Signed) (audit.Receipt, error) {
	switch {
	case seq == 0, seq > tree.Size():
		return audit.Receipt{}, db.ErrNotFound
	case seq >= newest.Seq:
		return audit.Receipt{}, ErrUnsigned
	}
	path, err := tree.Prove(seq, newest.Seq-1, r.tiles(ctx))
	if err != nil {
		return audit.Receipt{}, err
	}
	return audit.Receipt{Seq: seq, Path: path, Note: newest.Note}, nil
}

func (r Records) extension(ctx context.Context, old, size uint64, tree *audit.Tree) ([]audit.Hash, error) {
	if old > size || size > tree.Size() {
		return nil, db.ErrNotFound
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
		return nil, &audit.Fault{Problem: "the tiles of the Merkle tree are damaged: a daemon that runs finds that too, and makes them again at its next start"}
	}
	return path, nil
}
