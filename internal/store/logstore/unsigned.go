package logstore

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/openclawos/ocipd/internal/audit"
	"golang.org/x/mod/sumdb/note"
)

// Unsigned are the records that a start found after the last checkpoint of the key in force. A
// daemon that stops leaves none, and a killed one at most a minute of them, or 1024. Anybody who
// can write the database can add more there.
type Unsigned struct {
	audit.Stretch
	// Long says that there are more than a daemon leaves.
	Long bool
}

// FoundUnsigned returns the records that this start found; its Last is zero if all were signed.
// Since then they are signed with everything else.
func (l *Log) FoundUnsigned() Unsigned { return l.unsigned }

// findUnsigned searches the log from its end for the last checkpoint, regardless of the position
// that the database names, and notes the records after it.
func (l *Log) findUnsigned(ctx context.Context, log *end, key note.Verifier) error {
	found, first, err := l.lastSigned(ctx, log, key)
	if err != nil {
		return err
	}
	if log.newest.Seq > found.Seq {
		log.newest = found
	}
	log.stated = max(found.Seq, log.retired)
	if len(first) == 0 {
		return nil
	}
	from, err := audit.HeadOf(first)
	if err != nil {
		return fmt.Errorf("cannot read audit record %d: %w", log.stated+1, err)
	}
	log.unsigned = from.Time
	l.unsigned.Stretch = audit.Stretch{First: from.Seq, Last: log.head.Seq, From: from.Time, To: log.head.Time}
	l.unsigned.Long = log.head.Seq-from.Seq > audit.CheckpointEvery || log.head.Time.Sub(from.Time) > audit.SignedLate
	return nil
}

// lastSigned returns the last checkpoint in the log that the key signed and that fits the records
// before it, and the line after it, nil if it is the last.
func (l *Log) lastSigned(ctx context.Context, log *end, key note.Verifier) (found Signed, first []byte, err error) {
	var p page
	for before := uint64(math.MaxInt64); ; before = p.seqs[len(p.seqs)-1] {
		if err := p.read(ctx, l.Records, newestFirst, log.retired, before); err != nil || len(p.seqs) == 0 {
			return Signed{}, first, err
		}
		for i, seq := range p.seqs {
			line := p.lines[i]
			if c, signed, ok := audit.CheckpointOf(line, key); ok {
				root, err := l.rootAt(ctx, c.Size, &log.tree)
				if err != nil {
					return Signed{}, nil, err
				}
				if root == c.Root && c.Origin == key.Name() {
					return Signed{Seq: seq, Note: signed}, first, nil
				}
			}
			first = bytes.Clone(line)
		}
	}
}
