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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/openclawos/ocipd/internal/store"
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
	// Against are those checkpoints again, by where they came from.
	Against []Evidence
	// Witnesses must have cosigned the log, up to its last records: Within says how many.
	Witnesses []*witness.Key
	Within    Within
	// Own marks a daemon's own mirror, which may be a moment behind, and Database is
	// what it is the mirror of, "" where that is not there: it is checked too.
	Own      bool
	Database string
	// Gone is where the database of a daemon's own mirror should be and is not.
	Gone string
	// Progress, where it is set, is called for each file that is read, with its size
	// where that is known, and what it returns with the records and bytes so far.
	Progress func(size int64) func(seq uint64, bytes int64, end bool)

	// Checkpoints is the daemon's own file of checkpoints, "" where another was named: it is
	// said if it does not reach as far as the log.
	Checkpoints string

	// keys is the directory of the daemon's own keys, "" where others were named.
	keys string
	// rowKey is the key that the rows of the database are sealed with; nil where it cannot
	// be read, as by another user.
	rowKey []byte
	// newest is the checkpoint that is kept beside the daemon's key, in a file.
	newest, newestIn string
	// keyless is where the daemon's public key should be and is not.
	keyless string
	// unsound is what is wrong with what stands beside the log, and failed why
	// something that it is to be held against could not be read.
	unsound *audit.Fault
	failed  error
}

// Evidence are checkpoints from one place outside the log.
type Evidence struct {
	// From says in words what they are and where they came from, and Many that there are
	// several.
	From string
	Many bool
	// File is the file of checkpoints that they are from, "" for what is none.
	File string
	// Notes are the signed notes.
	Notes []string
	// UpTo is how many records the largest is of that fits and that a known key signed, 0
	// where there is none, and Unproven counts those that fit and that none signed. Both are
	// known after [Log.Verify].
	UpTo     uint64
	Unproven int
}

// Within is how much of a log the newest cosignature may lack: so many records at most, and
// none that is so much older than the newest one.
type Within struct {
	Records uint64
	Age     time.Duration
}

// Cosigned is how far a witness has cosigned a log.
type Cosigned struct {
	Witness string    `json:"witness"`
	UpTo    uint64    `json:"upTo"`
	At      time.Time `json:"at"`
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
	// Notices say what is not as it should be beside the log, and no fault.
	Notices []string
	// Cosigned says how far the witnesses have cosigned the log.
	Cosigned []Cosigned
	// Beside and Indexed say that the database was checked too, and its index, and
	// Behind is how many records the mirror lacks.
	Beside, Indexed bool
	// Rows says that the rows of the database beside the records were checked.
	Rows   bool
	Behind uint64
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
	l.keys = dir
	// What others may not read is no reason not to check the rest.
	if rows, err := keyring.ReadRows(dir); err == nil {
		l.rowKey = rows.Key()
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
	l.Proof.Held = append(l.Proof.Held, notes...)
	l.Against = append(l.Against, Evidence{From: from, Many: len(notes) > 1, Notes: notes})
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
		l.Against[len(l.Against)-1].File = file
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
	// witnesses are the names by their keys of those that are listed by the records, and beyond
	// counts the checkpoints in the log behind the newest one of its own file of them.
	witnesses map[string]string
	beyond    int
	ownSize   uint64
	// derived is set once the records are good and the Merkle tree is not.
	derived bool
	// rows is [Findings.Rows].
	rows bool
	// unlike says which rows are not as the log says, where that is so. A log that was cut is
	// told before it.
	unlike *audit.Fault
	// each, where set, is given every line of the database that was found good.
	each func(seq uint64, line []byte) error
}

// Verify reads every byte of the log. What is wrong with the log, or with what stands
// beside it, is a fault of the findings; the error says that it could not be read.
func (l *Log) Verify(ctx context.Context) (*Findings, error) {
	if l.newest != "" && !slices.Contains(l.Proof.Held, l.newest) {
		l.hold([]string{l.newest}, "1 checkpoint of "+l.newestIn)
	}
	c := &check{Log: l, proof: l.Proof, witnesses: make(map[string]string)}
	ownNewest, _ := c.ownNewest()
	c.ownSize = ownNewest
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
	f.Rows = c.rows
	if f.Standing = c.retired(); err == nil {
		err = cmp.Or(c.rested(), c.around(ctx, &f.Report))
	}
	if err == nil {
		f.Notices = c.noticed(&f.Report)
		f.Cosigned, err = c.outside(&f.Report)
	}
	if err == nil && c.unlike != nil {
		err = c.unlike
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

// outside says of each kind of evidence how far it holds the log, and wants each of the
// witnesses that were named to have cosigned all of it but the last records.
func (c *check) outside(report *audit.Report) (said []Cosigned, err error) {
	held := c.verifier.HeldOutside()
	fits := make(map[string]audit.HeldCheckpoint, len(held))
	for _, h := range held {
		fits[h.Note] = h
	}
	for i := range c.Against {
		e := &c.Against[i]
		e.UpTo, e.Unproven = 0, 0
		for _, signed := range e.Notes {
			switch h, ok := fits[signed]; {
			case ok && h.Proven:
				e.UpTo = max(e.UpTo, h.Size)
			case ok:
				e.Unproven++
			}
		}
	}
	for _, k := range c.Witnesses {
		cosigned, err := c.cosigned(k, held, report)
		if err != nil {
			return nil, err
		}
		said = append(said, cosigned)
	}
	return said, nil
}

// cosigned is how far a witness has cosigned the log. The witness signs what a key of the log
// has signed, so its own signature is enough.
func (c *check) cosigned(k *witness.Key, held []audit.HeldCheckpoint, report *audit.Report) (newest Cosigned, _ error) {
	newest.Witness = k.Name()
	var after time.Time
	for _, h := range held {
		if at, ok := k.Cosigned(h.Note); ok && (h.Size > newest.UpTo || at.After(newest.At)) {
			newest.UpTo, newest.At, after = h.Size, at, h.After
		}
	}
	head := report.Head
	fault := func(format string, args ...any) (Cosigned, error) {
		return newest, &audit.Fault{Problem: fmt.Sprintf(format, args...)}
	}
	behind := head.Seq - newest.UpTo
	cosigned := fmt.Sprintf("the witness %s has cosigned the log up to record %d alone, at %s", k.Name(), newest.UpTo, newest.At.Local().Format(time.DateTime))
	switch {
	case newest.UpTo == 0:
		return fault("nothing that is held outside is cosigned by the witness %s: it may have been shown another log", k.Name())
	case behind > c.Within.Records:
		return fault("%s: %s after it are not cosigned, more than %d (--within); the witness may have been shown others", cosigned, term.Count(int(behind), "record"), c.Within.Records)
	case behind > 0 && head.Time.Sub(after) > c.Within.Age:
		return fault("%s: record %d of %s is not cosigned, and is more than %s older than the newest one (--within); the witness may have been shown others",
			cosigned, newest.UpTo+1, after.Local().Format(time.DateTime), c.Within.Age)
	}
	return newest, nil
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
	}
	if c.files != nil {
		if err := c.files.Check(ctx, report.Head.Seq); err != nil {
			return err
		}
	}
	return c.ownKeys()
}

// ownKeys holds the daemon's own key and its list of witnesses against what they should be.
func (c *check) ownKeys() error {
	if c.keys == "" || c.keyless != "" {
		return nil
	}
	err := keyring.SignerFits(c.keys)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return &audit.Fault{Problem: fmt.Sprintf("the log's signing key: %v; the daemon cannot start with it", err)}
	}
	list, err := witness.Places(c.keys)
	if err != nil {
		return &audit.Fault{Problem: err.Error()}
	}
	for _, p := range list {
		delete(c.witnesses, p.Key.String())
	}
	for _, name := range slices.Sorted(maps.Values(c.witnesses)) {
		return &audit.Fault{Problem: fmt.Sprintf("the witness %s is on record, and %s does not list it: it was taken off the list, and no daemon has recorded that", name, witness.ListPath(c.keys))}
	}
	return nil
}

// noticed says where the daemon's own file of checkpoints does not reach as far as the log. One
// may be missing that a crash kept from it.
func (c *check) noticed(report *audit.Report) (notices []string) {
	if c.Checkpoints == "" || c.beyond < 2 {
		return nil
	}
	size, count := c.ownNewest()
	says := fmt.Sprintf("ends with the checkpoint of %s", term.Count(int(size), "record"))
	if count == 0 {
		says = "is not there, or holds none"
	}
	return []string{fmt.Sprintf("%s %s, and the log has %s behind that, up to record %d: the file was cut, put back or moved away, or could not be written",
		c.Checkpoints, says, term.Count(c.beyond, "checkpoint"), report.Signed)}
}

// ownNewest is how many records the newest checkpoint is of in the daemon's own file of them,
// and how many there are.
func (c *check) ownNewest() (size uint64, count int) {
	for i := range c.Against {
		if e := &c.Against[i]; e.File == c.Checkpoints {
			for _, signed := range e.Notes {
				if one, err := audit.OpenCheckpoint(signed); errors.Is(err, audit.ErrUnsigned) {
					size, count = max(size, one.Size), count+1
				}
			}
		}
	}
	return size, count
}
