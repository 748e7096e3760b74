package logstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
)

// Tombstone returns the tombstone of the retired records, or [db.ErrNotFound] if there is none.
func (r Records) Tombstone(ctx context.Context) (t audit.Tombstone, err error) {
	signed, err := db.Row(ctx, r.db, "what was retired", `SELECT note FROM retired ORDER BY upto DESC LIMIT 1`, nil, db.ScanText)
	if err != nil {
		return audit.Tombstone{}, err
	}
	if t, err = audit.OpenTombstone(signed); !errors.Is(err, audit.ErrUnsigned) {
		return audit.Tombstone{}, fmt.Errorf("cannot read what was retired: %w", err)
	}
	return t, nil
}

// Entomb returns the step that writes a signed tombstone for the records up to seq, nil if there is
// one. The newest checkpoint must cover seq, and the log must be signed.
func Entomb(ctx context.Context, l *Log, seq uint64) (Step, error) {
	end := l.end.Load()
	switch {
	case end.signer == nil:
		return nil, errors.New("cannot retire records of a log that is not signed")
	case seq <= end.retired:
		return nil, nil
	case seq >= end.newest.Seq:
		return nil, fmt.Errorf("cannot retire record %d: %w", seq, ErrUnsigned)
	}
	line, err := l.Line(ctx, seq)
	if err != nil {
		return nil, err
	}
	head, err := audit.HeadOf(line)
	if err != nil {
		return nil, fmt.Errorf("cannot read audit record %d: %w", seq, err)
	}
	tiles := l.tiles(ctx)
	frontier, err := end.tree.Frontier(seq, tiles)
	if err != nil {
		return nil, err
	}
	// They are part of the tree's edge until their tile is complete.
	leaves, err := end.tree.Leaves(seq&^(audit.TileWidth-1), seq, tiles)
	if err != nil {
		return nil, err
	}
	return func(w *Writer) error {
		if head.Seq <= w.end.retired {
			return nil
		}
		t, err := audit.SignTombstone(w.end.signer.Name(), head, frontier, w.end.signer)
		if err != nil {
			return err
		}
		if err := w.state(audit.EventRetired, t.Signed); err != nil {
			return err
		}
		w.end.retired = head.Seq
		return w.tx.Exec("the tombstone", `INSERT INTO retired (upto, note, leaves) VALUES (?, ?, ?)`,
			db.Int(int64(head.Seq)), db.Text(t.Signed), db.Bytes(hashBytes(leaves)))
	}, nil
}

// removedAtOnce is the number of records that one commit removes, small enough not to delay other
// commits.
const removedAtOnce = 512

// Remove returns the step that removes the first few of the records that a tombstone stands for.
func Remove(upTo uint64) Step {
	return func(w *Writer) error {
		return w.tx.Exec("that records are retired", `DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE seq <= ? ORDER BY seq LIMIT ?)`,
			db.Int(int64(upTo)), db.Int(removedAtOnce))
	}
}

// retiredLeaves returns the leaf hashes from an index on that retention removed from the tile that
// begins there.
func (r Records) retiredLeaves(ctx context.Context, from uint64) ([]audit.Hash, error) {
	leaves, err := db.Row(ctx, r.db, "what was retired", `SELECT leaves FROM retired WHERE upto > ? ORDER BY upto DESC LIMIT 1`, []any{int64(from)}, scanHashes)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return leaves, err
}
