// Package logstore keeps the audit log in a database: its records, the Merkle tree over them, the
// signed checkpoints and the tombstones of retired records.
//
// [Records] reads the records of any database, [Evidence] everything that the database alone shows.
// A [Log] is the log of a database in use: it remembers the log's end, and the newest lines. Its
// [Writer] adds to it, within transactions that internal/store begins and ends; its tests are
// there.
package logstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// Signing is a store's means to sign its log.
type Signing struct {
	// Open returns the signer for a log of a name, and its public key in the form of a signed
	// note's verifier. inForce is the public key that the log was last signed with, "" if it never
	// was.
	Open func(name, inForce string) (signer note.Signer, public string, err error)
	// NewID returns a fresh id, for a checkpoint's record or a log's name.
	NewID func() string
	// Every is how long a record waits at most for a checkpoint; zero is a
	// minute.
	Every time.Duration
}

// Signed is a checkpoint with its position.
type Signed struct {
	// Seq is the record that holds it; it covers the records before.
	Seq  uint64
	Note string
}

// end is the end of the log, and everything that the next record is made from. The writer replaces
// it with every commit; it never changes.
type end struct {
	head audit.Head
	tree audit.Tree
	// signer has the key in force, nil if nothing is signed.
	signer note.Signer
	// newest is the last plain checkpoint.
	newest Signed
	// stated is the last record that holds a checkpoint of all records before it, and unsigned is
	// the time of the first record after it, zero without one.
	stated   uint64
	unsigned time.Time
	retired  uint64
}

// Log is the log of a database in use. It is safe for concurrent use.
type Log struct {
	Records
	// end is the end of the log. Only the writer replaces it.
	end    atomic.Pointer[end]
	recent recent
	// unsigned are the records that the start found after the last checkpoint.
	unsigned Unsigned
	grown    news
	// closing ends all waiting.
	closing <-chan struct{}
}

// Options configure the opening of a log.
type Options struct {
	// Signing signs checkpoints; nil makes none.
	Signing *Signing
	// Mark makes the seal of a record, by its number and its hash.
	Mark func(seq uint64, hash audit.Hash) []byte
	// State, if set, returns the content of the daemon's tables, at the time of the record that
	// will state it.
	State func(at time.Time) []audit.TableState
	// Restored, set with State, returns the id of the newest state_restored record, "" for none.
	Restored func() string
	// Newest, set with State, returns the values that must never go back, by name.
	Newest func() map[string]string
	// All has every record verified, not only the last ones.
	All bool
	Log *zap.Logger
	// Closing, closed, ends all waiting for records.
	Closing <-chan struct{}
}

// The names of the values for the newest checkpoint, the log's name and the public key in force.
const (
	checkpointName = "checkpoint"
	logName        = "log-name"
	publicKeyName  = "checkpoint-key"
)

// Open finds the end of the log and checks the records before it: a few of them, or all. It makes
// the Merkle tree if it is missing or damaged, names the log on its first start and opens its
// signing key.
func Open(ctx context.Context, reader *db.Reader, w *db.Writer, o Options) (*Log, *Writer, error) {
	l := &Log{Records: Records{reader}, closing: o.Closing}
	last, err := l.takeUp(ctx, w, o)
	if err != nil {
		return nil, nil, err
	}
	l.end.Store(&last)
	return l, newWriter(l, w, &o), nil
}

func (l *Log) takeUp(ctx context.Context, w *db.Writer, o Options) (end, error) {
	damaged := func(err error) (end, error) {
		return end{}, fmt.Errorf("cannot start on a damaged audit log: %w", err)
	}
	last, err := l.LastSeq(ctx)
	if err != nil {
		return end{}, err
	}
	tombstone, err := l.Tombstone(ctx)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return end{}, err
	}
	log := end{retired: tombstone.Head.Seq}
	if err := l.noStrayRecords(ctx); err != nil {
		return damaged(err)
	}
	if o.All {
		report, err := l.Verify(ctx, audit.Proof{})
		if err != nil {
			return damaged(err)
		}
		log.head = report.Head
	} else if log.head, err = l.verifyTail(ctx, tombstone, last); err != nil {
		return damaged(err)
	}
	if log.head.Seq != last {
		return damaged(&audit.Fault{Problem: fmt.Sprintf("it ends at record %d, want %d", log.head.Seq, last)})
	}
	if log.newest, err = l.newestCheckpoint(ctx); err != nil {
		return end{}, err
	}
	if log.newest.Seq > last {
		return damaged(&audit.Fault{Problem: fmt.Sprintf("it ends at record %d, and record %d holds its newest checkpoint; put the right database back, such as a backup", last, log.newest.Seq)})
	}
	if log.tree, err = l.growTree(ctx, w, last, tombstone, o.All, o.Log); err != nil {
		return end{}, err
	}
	log.stated = log.newest.Seq
	if o.Signing == nil {
		return log, nil
	}
	var public string
	if log.signer, public, err = l.openSigner(ctx, w, o.Signing); err != nil {
		return end{}, err
	}
	key, err := note.NewVerifier(public)
	if err != nil {
		return end{}, fmt.Errorf("cannot use the public key of the log: %w", err)
	}
	return log, l.findUnsigned(ctx, &log, key)
}

// openSigner names the log on its first start, and opens its signing key and public key.
func (l *Log) openSigner(ctx context.Context, w *db.Writer, s *Signing) (signer note.Signer, public string, err error) {
	name, err := l.db.Named(ctx, logName)
	if errors.Is(err, db.ErrNotFound) {
		name = []byte("ocipd/" + s.NewID())
		err = w.PutNamed(logName, name)
	}
	if err != nil {
		return nil, "", err
	}
	inForce, err := l.publicKey(ctx)
	if err != nil {
		return nil, "", err
	}
	signer, public, err = s.Open(string(name), inForce)
	if err == nil && public != inForce {
		err = w.PutNamed(publicKeyName, []byte(public))
	}
	return signer, public, err
}

// Head returns the position of the last durable record in the chain.
func (l *Log) Head() audit.Head { return l.end.Load().head }

// Origin returns the log's name, which its keys have too, "" if nothing is signed.
func (l *Log) Origin() string {
	if signer := l.end.Load().signer; signer != nil {
		return signer.Name()
	}
	return ""
}

// Checkpoint returns the newest checkpoint; its Seq is zero if there is none.
func (l *Log) Checkpoint() Signed { return l.end.Load().newest }

// Covered returns how many records the newest checkpoint covers.
func (l *Log) Covered() uint64 { return max(l.Checkpoint().Seq, 1) - 1 }

// AllSigned reports whether a checkpoint covers every record, or is the last.
func (l *Log) AllSigned() bool {
	end := l.end.Load()
	return end.head.Seq <= end.stated
}

// Retired returns the last record that was removed.
func (l *Log) Retired() uint64 { return l.end.Load().retired }

// Evidence returns the log as the database shows it, without the values in memory.
func (l *Log) Evidence() Evidence { return Evidence{l.Records} }

// LinesAfter returns a page of records after seq, oldest first, and the number of the last one, or
// seq if there is none. The newest are in memory.
func (l *Log) LinesAfter(ctx context.Context, seq uint64) (lines [][]byte, upTo uint64, err error) {
	if lines, upTo, ok := l.recent.after(seq); ok {
		return lines, upTo, nil
	}
	return l.Records.LinesAfter(ctx, seq)
}

// ForgetLines frees the memory of the newest lines.
func (l *Log) ForgetLines() { l.recent.forget() }

// ProveRecord returns the receipt of a record: its path to the newest checkpoint. [db.ErrNotFound]
// means that the record was removed or does not exist yet, and [ErrUnsigned] that no checkpoint
// covers it yet.
func (l *Log) ProveRecord(ctx context.Context, seq uint64) (audit.Receipt, error) {
	end := l.end.Load()
	return l.prove(ctx, seq, &end.tree, end.newest)
}

// RootAt returns the root of the tree over the first records.
func (l *Log) RootAt(ctx context.Context, size uint64) (audit.Hash, error) {
	return l.rootAt(ctx, size, &l.end.Load().tree)
}

// ProveExtension is [Evidence.ProveExtension] with the tree in memory.
func (l *Log) ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error) {
	return l.extension(ctx, old, size, &l.end.Load().tree)
}

// WaitAfter returns when there is a record after seq, or with the context's error, or
// [db.ErrClosed].
func (l *Log) WaitAfter(ctx context.Context, seq uint64) error {
	for {
		next := l.grown.wait()
		if l.Head().Seq > seq {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.closing:
			return db.ErrClosed
		}
	}
}

// news wakes waiting readers.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}
