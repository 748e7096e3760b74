// Package verify holds an audit log that lies on a disk against all that can be known
// of it: its chain and Merkle tree, the checkpoints in it, the public keys, checkpoints
// and receipts that stand outside it, the tombstone of what was retired, and where it
// is a daemon's own, the database and the index that the daemon answers from.
//
// The caller fills a [Log], which trusts nothing that it is not given, and calls
// [Log.Verify]. Nothing is changed, and no daemon is needed.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/checkpoints"
	"github.com/openclawos/ocipd/internal/durable"
	"github.com/openclawos/ocipd/internal/keyring"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/openclawos/ocipd/internal/witness"
	"golang.org/x/mod/sumdb/note"
)

// Log is an audit log, and what it is held against.
type Log struct {
	// Path is a directory with a mirror, a mirror's live file, or a copy of either;
	// with InDatabase it is a database.
	Path       string
	InDatabase bool
	// Socket says where a daemon that may be using a database answers.
	Socket logreader.Socket
	// Proof has the keys of the log, and the checkpoints that are held outside it.
	Proof audit.Proof
	// Against says in words where those checkpoints came from.
	Against []string
	// Witnesses must have cosigned one of the checkpoints.
	Witnesses []*witness.Key
	// Own marks a daemon's own mirror, which may be a moment behind, and Database is
	// what it is the mirror of, "" where that is not there: it is checked too.
	Own      bool
	Database string
	// Gone is where the database of a daemon's own mirror should be and is not.
	Gone string
	// Progress, where it is set, is called for each file that is read, with its size
	// where that is known, and what it returns with the records and bytes so far.
	Progress func(size int64) func(seq uint64, bytes int64, end bool)

	// newest is the checkpoint that is kept beside the daemon's key, in a file.
	newest, newestIn string
	// keyless is where the daemon's public key should be and is not.
	keyless string
	// unsound is what is wrong with what stands beside the log, and failed why
	// something that it is to be held against could not be read.
	unsound *audit.Fault
	failed  error
}

// Findings are how a log was found.
type Findings struct {
	audit.Report
	// Fault is what is wrong, nil for nothing.
	Fault *audit.Fault
	// Path is what the findings are about: the log, or the database beside it where
	// the fault is there.
	Path string
	// Standing is the last record that the tombstone stands for.
	Standing uint64
	// Derived says that the fault is of the Merkle tree or the index, and says itself how it
	// is made anew from the records.
	Derived bool
	// Cosigned says how far the witnesses have cosigned the log.
	Cosigned []string
	// Beside and Indexed say that the database was checked too, and its index, and
	// Behind is how many records the mirror lacks.
	Beside, Indexed bool
	Behind          uint64
}

// Records is how many records were read.
func (f *Findings) Records() uint64 { return f.Head.Seq - min(f.Standing, f.Head.Seq) }

// Unsigned reports that nothing in a log says that it was ever signed: then it is no
// news that no checkpoint stands between two of its records.
func (f *Findings) Unsigned() bool { return f.Checkpoints == 0 && f.Origin == "" }

// OwnKeys takes up the public keys of a daemon, of which the last is in force, with the
// newest checkpoint and those that witnesses cosigned, which are kept beside them.
func (l *Log) OwnKeys(dir string) error {
	keys, err := keyring.PublicKeys(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A log without checkpoints has none: it is of before there were any.
		l.keyless, keys, err = dir, nil, nil
	}
	if err != nil {
		return err
	}
	for i, k := range keys {
		key, err := note.NewVerifier(k.Verifier)
		if err != nil {
			return fmt.Errorf("cannot use the key in %s: %w", k.File, err)
		}
		if i == len(keys)-1 {
			l.Proof.Keys = append(l.Proof.Keys, key)
		} else {
			l.Proof.Former = append(l.Proof.Former, key)
		}
	}
	if l.newest, err = keyring.Newest(dir); err != nil {
		return err
	}
	l.newestIn = keyring.NewestPath(dir)
	notes, err := witness.Kept(dir)
	if err == nil && len(notes) > 0 {
		l.hold(notes, fmt.Sprintf("%s that witnesses cosigned", term.Count(len(notes), "checkpoint")))
	}
	return err
}

// Readable reports whether all that the log is held against could be read.
func (l *Log) Readable() bool { return l.failed == nil }

// hold holds the log against checkpoints.
func (l *Log) hold(notes []string, from string) {
	l.Proof.Held, l.Against = append(l.Proof.Held, notes...), append(l.Against, from)
}

// HoldCheckpoints holds the log against the checkpoints in a file, which may be empty
// where nobody named it. What cannot be read fails [Log.Verify].
func (l *Log) HoldCheckpoints(file string, named bool) {
	notes, err := checkpoints.Read(file)
	switch {
	case err != nil:
		l.failed = cmp.Or(l.failed, err)
	case len(notes) > 0:
		l.hold(notes, fmt.Sprintf("%s of %s", term.Count(len(notes), "checkpoint"), file))
	case named:
		l.failed = cmp.Or(l.failed, fmt.Errorf("cannot hold the log against %s: there is no whole checkpoint in it", file))
	}
}

// HoldReceipts holds the log against what counterparties hold, see [Held]. What cannot
// be read fails [Log.Verify].
func (l *Log) HoldReceipts(path string) {
	notes, err := Held(path)
	if err != nil {
		l.failed = cmp.Or(l.failed, err)
		return
	}
	l.hold(notes, fmt.Sprintf("%s of %s", term.Count(len(notes), "receipt"), path))
}

// Tombstone takes up the tombstone in a file, or the one that stands beside the log
// where none is named. One that cannot be read fails [Log.Verify].
func (l *Log) Tombstone(file string) {
	if file == "" {
		dir := filepath.Dir(l.Path)
		if info, err := os.Stat(l.Path); err == nil && info.IsDir() {
			dir = l.Path
		}
		file = filepath.Join(dir, checkpoints.TombstoneFile)
		if _, err := os.Stat(file); err != nil {
			return
		}
	}
	text, err := durable.ReadFile(file)
	if err != nil {
		l.failed = cmp.Or(l.failed, fmt.Errorf("cannot read the tombstone: %w", err))
		return
	}
	t, err := audit.OpenTombstone(string(text))
	if err != nil && !errors.Is(err, audit.ErrUnsigned) {
		l.unsound = &audit.Fault{Seq: 1, Problem: fmt.Sprintf("the tombstone in %s cannot be read: %v", file, err)}
		return
	}
	l.Proof.Tombstone = &t
}

// check is one reading of a log.
type check struct {
	*Log
	proof audit.Proof
	// left is the last of the retired records that are still there.
	left audit.Head
	// files are the mirror's, nil where one file is checked alone.
	files    *mirror.Files
	bytes    int64
	verifier *audit.Verifier
	progress func(end bool)
	// derived is set once the records are good and the Merkle tree is not.
	derived bool
	// each, where set, is given every line of the database that was found good.
	each func(seq uint64, line []byte) error
}

// Verify reads every byte of the log. What is wrong with the log, or with what stands
// beside it, is a fault of the findings; the error says that it could not be read.
func (l *Log) Verify(ctx context.Context) (*Findings, error) {
	if l.newest != "" && !slices.Contains(l.Proof.Held, l.newest) {
		l.hold([]string{l.newest}, "1 checkpoint of "+l.newestIn)
	}
	c := &check{Log: l, proof: l.Proof}
	err := l.failed
	switch {
	case err != nil:
	case l.InDatabase:
		err = c.database(ctx)
	default:
		err = c.copy(ctx)
	}
	f := &Findings{Path: l.Path}
	f.Report, err = c.finish(err)
	if f.Standing = c.retired(); err == nil {
		err = cmp.Or(c.rested(), c.around(ctx, &f.Report))
	}
	if err == nil {
		f.Cosigned, err = l.witnessed()
	}
	if err == nil && l.Database != "" {
		err = c.agree(ctx, f)
	}
	if err == nil && l.Gone != "" {
		f.Path, err = l.Gone, &audit.Fault{Problem: fmt.Sprintf("the database is not there, and %s of it are in the mirror %s", term.Count(int(f.Records()), "record"), l.Path)}
	}
	if err = damaged(err); err != nil && !errors.As(err, &f.Fault) {
		return nil, err
	}
	if f.Fault != nil && f.Fault.Seq == 0 {
		// Of no record: what is around it says which file it is of.
		f.Fault = &audit.Fault{Problem: err.Error()}
	}
	return f, nil
}

// finish ends a reading, which may have failed.
func (c *check) finish(err error) (report audit.Report, _ error) {
	if c.verifier != nil {
		c.progress(true)
		report.Head = c.verifier.Head()
	}
	if err == nil {
		return c.verifier.Finish()
	}
	return report, err
}

// witnessed wants each of the witnesses that were named to have cosigned a checkpoint
// that the log fits.
func (l *Log) witnessed() (said []string, err error) {
	for _, k := range l.Witnesses {
		size, at := k.Largest(l.Proof.Held)
		if size == 0 {
			return nil, &audit.Fault{Problem: fmt.Sprintf("nothing that is held outside is cosigned by the witness %s: it may have been shown another log", k.Name())}
		}
		said = append(said, fmt.Sprintf("cosigned by the witness %s up to record %d, at %s", k.Name(), size, at.Local().Format(time.DateTime)))
	}
	return said, nil
}

// damaged makes faults of errors that say that a file does not hold what it should,
// and leaves those that say that it could not be read.
func damaged(err error) error {
	var fault *audit.Fault
	if err == nil || errors.As(err, &fault) {
		return err
	}
	switch err = store.Damaged(err); {
	case errors.Is(err, store.ErrDamaged), errors.Is(err, durable.ErrNoFile):
		return &audit.Fault{Problem: err.Error()}
	}
	return err
}

// around checks what stands beside a log whose records are good.
func (c *check) around(ctx context.Context, report *audit.Report) error {
	switch {
	case c.unsound != nil:
		return c.unsound
	case c.keyless != "" && report.Checkpoints > 0:
		return &audit.Fault{Problem: fmt.Sprintf("nothing can be said of its %s: there is no public key in %s; name it with --key", term.Count(report.Checkpoints, "checkpoint"), c.keyless)}
	case c.files != nil:
		return c.files.Check(ctx, report.Head.Seq)
	}
	return nil
}
