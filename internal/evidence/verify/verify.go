// Package verify checks an audit log on a disk against all other evidence of it: its chain and
// Merkle tree, the checkpoints in it, the public keys, checkpoints and receipts outside it, the
// tombstone of retired records, and for a daemon's own log also the database and the index from
// which the daemon answers.
//
// The caller fills a [Log], which trusts only its inputs, and calls [Log.Verify]. It changes
// nothing, and needs no daemon.
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
	"strings"
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

// Log is an audit log, and the evidence to compare it with.
type Log struct {
	// Path is a directory with a mirror, a mirror's live file, or a copy of either; with InDatabase
	// it is a database.
	Path       string
	InDatabase bool
	// Socket returns the socket of a daemon that may be using a database.
	Socket logreader.Socket
	// Proof has the keys of the log, and the checkpoints outside it.
	Proof audit.Proof
	// Against has those checkpoints again, by their source.
	Against []Evidence
	// Witnesses must have cosigned the log, except its last records. Within bounds the exception.
	Witnesses []*witness.Key
	Within    Within
	// Own marks a daemon's own mirror, which may be a moment behind. Database is its database, ""
	// if that is not there: it is checked too.
	Own      bool
	Database string
	// Gone is the path of the missing database of a daemon's own mirror.
	Gone string
	// Progress, if set, is called for each file that is read, with its size if known. The function
	// that it returns is called with the records and bytes so far.
	Progress func(size int64) func(seq uint64, bytes int64, end bool)

	// Checkpoints is the daemon's own file of checkpoints, "" if another was named. Verify reports
	// it if the file does not cover the whole log.
	Checkpoints string

	// keys is the directory of the daemon's own keys, "" if others were named.
	keys string
	// rowKey is the key that seals the rows of the database. It is nil if it cannot be read, for
	// example by another user.
	rowKey []byte
	// newest is the checkpoint beside the daemon's key, and newestIn its file.
	newest, newestIn string
	// keyless is the directory in which the daemon's public key is missing.
	keyless string
	// unsound is the fault of a file beside the log, and failed the reason that some evidence could
	// not be read.
	unsound *audit.Fault
	failed  error
}

// Evidence has the checkpoints from one source outside the log.
type Evidence struct {
	// From describes them and their source in words. Many is set if there are several.
	From string
	Many bool
	// File is the file of checkpoints that contains them, "" for another source.
	File string
	// Here is set for the daemon's own files: whoever can change the log can change them too.
	Here bool
	// Notes are the signed notes.
	Notes []string
	// UpTo is the number of records in the largest one that fits and that a known key signed, 0 if
	// there is none. Unproven counts those that fit and that no known key signed. Both are known
	// after [Log.Verify].
	UpTo     uint64
	Unproven int
}

// Within bounds the part of a log that the newest cosignature may lack: a number of records, and
// their age relative to the newest record.
type Within struct {
	Records uint64
	Age     time.Duration
}

// Cosigned is the extent to which a witness has cosigned a log.
type Cosigned struct {
	Witness string    `json:"witness"`
	UpTo    uint64    `json:"upTo"`
	At      time.Time `json:"at"`
}

// Findings are the result of a check.
type Findings struct {
	audit.Report
	// Fault is the fault, or nil.
	Fault *audit.Fault
	// Path is the subject of the findings: the log, or the database beside it if the fault is
	// there.
	Path string
	// Standing is the last record that the tombstone covers.
	Standing uint64
	// Derived is set if the fault is in the Merkle tree or the index. The fault then says how to
	// make it again from the records.
	Derived bool
	// Notices are observations about files beside the log that are no faults.
	Notices []string
	// Cosigned is the extent to which the witnesses have cosigned the log.
	Cosigned []Cosigned
	// Elsewhere and Here are the number of records that the largest checkpoint covers which a known
	// key signed: of evidence from elsewhere, a named witness's included, and of the daemon's own
	// files. From counts the checkpoints from elsewhere.
	Elsewhere, Here uint64
	From            int
	// Beside and Indexed are set if the database and its index were checked too. Behind is the
	// number of records that the mirror lacks.
	Beside, Indexed bool
	// Rows is set if the rows of the database beside the records were checked.
	Rows   bool
	Behind uint64
}

// Records returns the number of records that were read.
func (f *Findings) Records() uint64 { return f.Head.Seq - min(f.Standing, f.Head.Seq) }

// Unsigned reports whether nothing in a log indicates that it was ever signed. Then it is expected
// that there is no checkpoint between two of its records.
func (f *Findings) Unsigned() bool { return f.Checkpoints == 0 && f.Origin == "" }

// OwnKeys adds the public keys of a daemon, of which the last is in force, and the newest
// checkpoint and the cosigned ones, which are kept beside them.
func (l *Log) OwnKeys(dir string) error {
	keys, err := keyring.PublicKeys(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A log without checkpoints has no keys: it is older than checkpoints.
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
	// If another user may not read the row key, the rest can still be checked.
	if rows, err := keyring.ReadRows(dir); err == nil {
		l.rowKey = rows.Key()
	}
	if l.newest, err = keyring.Newest(dir); err != nil {
		return err
	}
	l.newestIn = keyring.NewestPath(dir)
	notes, err := witness.Kept(dir)
	if err == nil && len(notes) > 0 {
		l.hold(notes, fmt.Sprintf("%s that witnesses cosigned", term.Count(len(notes), "checkpoint")), true)
	}
	return err
}

// Readable reports whether all evidence could be read.
func (l *Log) Readable() bool { return l.failed == nil }

// hold adds checkpoints as evidence. Here says that they are of a file of the daemon.
func (l *Log) hold(notes []string, from string, here bool) {
	l.Proof.Held = append(l.Proof.Held, notes...)
	l.Against = append(l.Against, Evidence{From: from, Many: len(notes) > 1, Here: here, Notes: notes})
}

// HoldCheckpoints adds the checkpoints in a file as evidence. The file may be empty if the caller
// did not name it. Here says that it is the daemon's own file. If it cannot be read, [Log.Verify]
// fails.
func (l *Log) HoldCheckpoints(file string, named, here bool) {
	notes, err := checkpoints.Read(file)
	switch {
	case err != nil:
		l.failed = cmp.Or(l.failed, err)
	case len(notes) > 0:
		l.hold(notes, fmt.Sprintf("%s of %s", term.Count(len(notes), "checkpoint"), file), here)
		l.Against[len(l.Against)-1].File = file
	case named:
		l.failed = cmp.Or(l.failed, fmt.Errorf("cannot hold the log against %s: there is no whole checkpoint in it", file))
	}
}

// HoldReceipts adds the checkpoints of counterparties as evidence, see [Held]. If they cannot be
// read, [Log.Verify] fails.
func (l *Log) HoldReceipts(path string) {
	notes, err := Held(path)
	if err != nil {
		l.failed = cmp.Or(l.failed, err)
		return
	}
	l.hold(notes, fmt.Sprintf("%s of %s", term.Count(len(notes), "receipt"), path), false)
}

// Tombstone adds the tombstone in a file, or the one beside the log if no file is named. If it
// cannot be read, [Log.Verify] fails.
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
	// left is the last of the retired records that still exist.
	left audit.Head
	// files are the mirror's, nil if one file is checked alone.
	files    *mirror.Files
	bytes    int64
	verifier *audit.Verifier
	progress func(end bool)
	// witnesses are the names, by their keys, of the witnesses that the records list. beyond counts
	// the checkpoints in the log after the newest one in its own file of them.
	witnesses map[string]string
	beyond    int
	ownSize   uint64
	// derived is set if the records are correct and the Merkle tree is not.
	derived bool
	// rows is [Findings.Rows].
	rows bool
	// aside are the problems of the database beside its records: they neither hide a fault of the
	// records nor are hidden by one. unlike is the problem of rows that differ from the log, "" for
	// none: with other records, others differ.
	aside  []string
	unlike string
	// each, if set, receives every correct line of the database.
	each func(seq uint64, line []byte) error
}

// Verify reads every byte of the log. A problem with the log, or with a file beside it, is a fault
// in the findings. An error means that the log could not be read.
func (l *Log) Verify(ctx context.Context) (*Findings, error) {
	if l.newest != "" && !slices.Contains(l.Proof.Held, l.newest) {
		l.hold([]string{l.newest}, "1 checkpoint of "+l.newestIn, true)
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
		err = c.outside(f)
	}
	err = c.withAside(err)
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
		// The fault belongs to no record. The surrounding text names the file.
		f.Fault = &audit.Fault{Problem: err.Error()}
	}
	return f, nil
}

// withAside adds the problems of the database beside its records to a fault of the records, or to
// none.
func (c *check) withAside(err error) error {
	fault, isFault := errors.AsType[*audit.Fault](err)
	if err != nil && !isFault {
		return err
	}
	problems, seq := c.aside, uint64(0)
	if isFault {
		problems, seq = slices.Concat([]string{fault.Problem}, c.aside), fault.Seq
	} else if c.unlike != "" {
		problems = append(slices.Clone(c.aside), c.unlike)
	}
	if len(problems) == 0 || isFault && len(problems) == 1 {
		return err
	}
	return &audit.Fault{Seq: seq, Problem: strings.Join(problems, "; ")}
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

// outside determines for each kind of evidence how much of the log it covers. It requires that each
// of the named witnesses has cosigned everything except the last records.
func (c *check) outside(f *Findings) error {
	held := c.verifier.HeldOutside()
	fits := make(map[string]audit.HeldCheckpoint, len(held))
	for _, h := range held {
		fits[h.Note] = h
	}
	elsewhere := make(map[string]bool)
	for i := range c.Against {
		e := &c.Against[i]
		e.UpTo, e.Unproven = 0, 0
		for _, signed := range e.Notes {
			switch h, ok := fits[signed]; {
			case ok && h.Proven:
				e.UpTo = max(e.UpTo, h.Size)
				elsewhere[signed] = elsewhere[signed] || !e.Here
			case ok:
				e.Unproven++
			}
		}
	}
	for signed, from := range elsewhere {
		if from {
			f.Elsewhere, f.From = max(f.Elsewhere, fits[signed].Size), f.From+1
		} else {
			f.Here = max(f.Here, fits[signed].Size)
		}
	}
	for _, k := range c.Witnesses {
		cosigned, err := c.cosigned(k, held, &f.Report)
		if err != nil {
			return err
		}
		f.Cosigned, f.Elsewhere = append(f.Cosigned, cosigned), max(f.Elsewhere, cosigned.UpTo)
	}
	return nil
}

// cosigned returns the extent to which a witness has cosigned the log. A witness signs only
// checkpoints that a key of the log has signed, so its own signature is enough.
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

// damaged turns errors about wrong content of a file into faults, and keeps errors about files that
// could not be read.
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

// around checks the files beside a log whose records are correct.
func (c *check) around(ctx context.Context, report *audit.Report) error {
	switch {
	case c.unsound != nil:
		return c.unsound
	case c.keyless != "" && report.Checkpoints > 0:
		return &audit.Fault{Problem: fmt.Sprintf("its %s cannot be checked: there is no public key in %s; name it with --key", term.Count(report.Checkpoints, "checkpoint"), c.keyless)}
	}
	if c.files != nil {
		if err := c.files.Check(ctx, report.Head.Seq); err != nil {
			return err
		}
	}
	return c.ownKeys()
}

// ownKeys checks the daemon's own key and its list of witnesses.
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

// noticed reports if the daemon's own file of checkpoints does not cover the whole log. After a
// crash, one checkpoint may be missing.
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

// ownNewest returns the number of records that the newest checkpoint covers in the daemon's own
// file, and the number of checkpoints there.
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
