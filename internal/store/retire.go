package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// retirement removes records from the beginning of the log: first it says so,
// signed, and then it takes them away a few at a time.
type retirement struct {
	// head is the last record that a tombstone is written for, and leaves are
	// the leaf hashes of its tile up to it: they are part of the tree's edge
	// until the tile is complete.
	head     audit.Head
	frontier audit.Frontier
	leaves   []audit.Hash
	// prune removes up to this many records that a tombstone stands for.
	prune int
	upTo  uint64
}

// pruneRecords is how many records one commit removes: so few that nobody
// waits for it.
const pruneRecords = 512

// Tombstone returns what stands for the records that were retired, or
// [ErrNotFound] where none were.
func (r *reader) Tombstone(ctx context.Context) (t audit.Tombstone, err error) {
	signed, err := row(ctx, r, "what was retired", `SELECT note FROM retired ORDER BY upto DESC LIMIT 1`, nil, scanText)
	if err != nil {
		return audit.Tombstone{}, err
	}
	if t, err = audit.OpenTombstone(signed); !errors.Is(err, audit.ErrUnsigned) {
		return audit.Tombstone{}, fmt.Errorf("cannot read what was retired: %w", err)
	}
	return t, nil
}

// Retire removes the records up to seq for good, leaving a signed tombstone in
// their place, and returns it. The newest checkpoint must cover seq, and the
// log must be signed. It takes time in proportion and is in nobody's way;
// [Store.Prune] finishes what a crash interrupts.
func (s *Store) Retire(ctx context.Context, seq uint64) (audit.Tombstone, error) {
	end := s.end.Load()
	switch {
	case end.signer == nil:
		return audit.Tombstone{}, errors.New("cannot retire records of a log that is not signed")
	case seq <= end.retired:
		return s.Tombstone(ctx)
	case seq >= end.newest.Seq:
		return audit.Tombstone{}, fmt.Errorf("cannot retire record %d: %w", seq, ErrUnsigned)
	}
	line, err := s.Line(ctx, seq)
	if err != nil {
		return audit.Tombstone{}, err
	}
	head, err := audit.HeadOf(line)
	if err != nil {
		return audit.Tombstone{}, fmt.Errorf("cannot read audit record %d: %w", seq, err)
	}
	tiles := s.tiles(ctx)
	frontier, err := end.tree.Frontier(seq, tiles)
	if err != nil {
		return audit.Tombstone{}, err
	}
	leaves, err := end.tree.Leaves(seq&^(audit.TileWidth-1), seq, tiles)
	if err != nil {
		return audit.Tombstone{}, err
	}
	if _, err := s.Commit(&Change{retire: &retirement{head: head, frontier: frontier, leaves: leaves}, Alarm: true}); err != nil {
		return audit.Tombstone{}, err
	}
	if err := s.Prune(ctx); err != nil {
		return audit.Tombstone{}, err
	}
	return s.Tombstone(ctx)
}

// Prune removes what is left of the records that a tombstone stands for, and with them
// the exchanges that have ended before, and leaves nothing of either in the files.
func (s *Store) Prune(ctx context.Context) error {
	upTo := s.end.Load().retired
	for pruned := false; upTo > 0; pruned = true {
		first, err := s.firstSeq(ctx)
		if err != nil {
			return err
		}
		if first == 0 || first > upTo {
			if !pruned {
				return nil
			}
			t, err := s.Tombstone(ctx)
			if err == nil {
				err = s.removeExchanges(ctx, t.Head.Time)
			}
			if err != nil {
				return err
			}
			s.removed.Or(removedTexts | removedPages)
			return s.Clean(ctx)
		}
		if _, err := s.Commit(&Change{retire: &retirement{prune: pruneRecords, upTo: upTo}, Alarm: true}); err != nil {
			return err
		}
	}
	return nil
}

// retiredLeaves returns the leaf hashes from an index on that retention took out
// of the tile that begins there.
func (r *reader) retiredLeaves(ctx context.Context, from uint64) ([]audit.Hash, error) {
	leaves, err := row(ctx, r, "what was retired", `SELECT leaves FROM retired WHERE upto > ? ORDER BY upto DESC LIMIT 1`, []any{int64(from)}, scanHashes)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return leaves, err
}

func (r *reader) firstSeq(ctx context.Context) (uint64, error) {
	return r.seqOf(ctx, `SELECT coalesce(min(seq), 0) FROM records`)
}

// entomb writes a tombstone, or removes some of what one stands for.
func (w *writer) entomb(lines []byte, log *end, at time.Time, p *pending) ([]byte, error) {
	r := p.retire
	if r.prune > 0 {
		return lines, w.exec("that records are retired", `DELETE FROM records WHERE seq IN (SELECT seq FROM records WHERE seq <= ? ORDER BY seq LIMIT ?)`,
			number(int64(r.upTo)), number(int64(r.prune)))
	}
	if r.head.Seq <= log.retired {
		return lines, nil
	}
	t, err := audit.SignTombstone(log.signer.Name(), r.head, r.frontier, log.signer)
	if err != nil {
		return nil, err
	}
	if lines, err = w.state(lines, log, at, p, audit.EventRetired, t.Signed); err != nil {
		return nil, err
	}
	log.retired = r.head.Seq
	return lines, w.exec("the tombstone", `INSERT INTO retired (upto, note, leaves) VALUES (?, ?, ?)`,
		number(int64(r.head.Seq)), text(t.Signed), bytesOf(hashBytes(r.leaves)))
}
