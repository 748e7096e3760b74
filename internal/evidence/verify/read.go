package verify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/evidence/digestkeys"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/rowseal"
)

// begin makes the verifier once all its inputs are known.
func (c *check) begin() (err error) {
	if c.unsound != nil {
		return c.unsound
	}
	if c.verifier, err = audit.NewVerifier(c.proof); err != nil {
		return err
	}
	c.progress = func(bool) {}
	if c.Progress != nil {
		size := int64(0)
		if info, err := os.Stat(c.Path); err == nil && info.Mode().IsRegular() && !c.InDatabase {
			size = info.Size()
		}
		tell := c.Progress(size)
		c.progress = func(end bool) { tell(c.verifier.Head().Seq, c.bytes, end) }
	}
	return nil
}

func (c *check) add(line []byte) error {
	c.bytes += int64(len(line)) + 1
	c.progress(false)
	before := c.verifier.Head()
	if before.Seq == c.retired() && before.Seq > 0 {
		if old, err := c.remnant(line); old || err != nil {
			return err
		}
	}
	if err := c.verifier.Add(line); err != nil {
		return err
	}
	if c.keys != "" {
		if key, name, listed, ok := audit.WitnessOf(line); ok && listed {
			c.witnesses[key] = name
		} else if ok {
			delete(c.witnesses, key)
		}
	}
	if c.Checkpoints != "" && before.Seq > c.ownSize && audit.IsCheckpoint(line) {
		c.beyond++
	}
	if c.files != nil {
		c.files.Record(len(line), before, c.verifier.Head())
	}
	return nil
}

// remnant reports whether a line is a record that the tombstone covers. While retention runs, some
// of these are still there. remnant checks that they are the retired ones.
func (c *check) remnant(line []byte) (old bool, err error) {
	head, err := audit.HeadOf(line)
	if err != nil || head.Seq > c.retired() {
		// The verifier reports the fault.
		return false, c.rested()
	}
	if c.left.Seq == 0 {
		e, err := audit.Parse(line)
		if err != nil {
			return true, &audit.Fault{Seq: head.Seq, Problem: err.Error()}
		}
		c.left = audit.Head{Seq: e.Seq - 1, Hash: e.Prev}
	}
	c.left, err = c.left.Check(line)
	return true, err
}

// rested checks that the remnants end with the last record that the tombstone covers.
func (c *check) rested() error {
	if c.left.Seq == 0 {
		return nil
	}
	if end := c.proof.Tombstone.Head; c.left.Seq != end.Seq || c.left.Hash != end.Hash {
		return &audit.Fault{Seq: c.left.Seq, Problem: fmt.Sprintf("it is not one of the %d records that the tombstone stands for", end.Seq)}
	}
	return nil
}

// database checks the database itself.
func (c *check) database(ctx context.Context) error {
	if info, err := os.Stat(c.Path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", c.Path, durable.ErrNoFile)
	}
	reader, err := logreader.OpenWhole(ctx, c.Path, c.Socket)
	if err != nil {
		return err
	}
	defer reader.Close()
	tomb, err := reader.Tombstone(ctx)
	switch {
	case err == nil:
		c.proof.Tombstone = &tomb
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	if n, err := reader.Misplaced(ctx); err != nil || n > 0 {
		return cmp.Or(err, error(&audit.Fault{Seq: 1, Problem: fmt.Sprintf("%s with no number of a record stand before it", term.Count(int(n), "row"))}))
	}
	if err := c.schema(ctx, reader.Reader); err != nil {
		return err
	}
	waits, err := reader.Waits(ctx)
	if err != nil {
		return err
	}
	replay := fold.NewReplay()
	err = reader.EachStored(ctx, 0, func(seq uint64, line []byte) error {
		if err := c.add(line); err != nil {
			return err
		}
		if err := replay.Add(seq, line); err != nil {
			return &audit.Fault{Seq: seq, Problem: err.Error()}
		}
		if err := c.putBack(waits, seq, line); err != nil {
			return err
		}
		if c.each == nil {
			return nil
		}
		return c.each(seq, line)
	})
	if err != nil {
		return err
	}
	err = reader.CheckTree(ctx, c.verifier.Head().Seq, c.verifier.Root())
	if c.derived = err != nil; err != nil {
		return err
	}
	if err := c.rowsBeside(ctx, reader.Reader, replay); err != nil {
		return err
	}
	return c.digestKeys(ctx, reader.Reader)
}

// putBack notes a waiting message that a record ended.
func (c *check) putBack(waits store.Waits, seq uint64, line []byte) error {
	if len(waits) == 0 || !bytes.Contains(line, []byte(`"decidedBy":`)) {
		return nil
	}
	e, err := audit.Parse(line)
	if err != nil {
		return &audit.Fault{Seq: seq, Problem: err.Error()}
	}
	if waits.EndedBy(&e.Record) && len(c.aside) < maxNamed {
		c.aside = append(c.aside, fmt.Sprintf("message %s waits again in the outbox, and record %d ended it: somebody has put its row back", e.DispatchID, seq))
	}
	return nil
}

// digestKeys compares the daemon's digest keys with the database's notes about them.
func (c *check) digestKeys(ctx context.Context, database *store.Reader) error {
	if c.keys == "" {
		return nil
	}
	have, err := keyring.DigestIDs(c.keys)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		// No key was made yet, or all are lost.
	case err != nil:
		return &audit.Fault{Problem: fmt.Sprintf("the digest keys: %v", err)}
	}
	values, err := database.MetaUnder(ctx, digestkeys.Prefix())
	if err != nil {
		return err
	}
	others, err := digestkeys.Others(have, values)
	if err != nil || len(others) == 0 {
		return err
	}
	for i, tenant := range others {
		others[i] = cmp.Or(tenant, "agents without a tenant")
	}
	return &audit.Fault{Problem: fmt.Sprintf("the digest key in %s of %s is not there, or is not the one that the database remembers: digests on record cannot be compared with it", c.keys, strings.Join(others, ", "))}
}

// schema notes a table, index, trigger or view that the daemon has not made, or not like that.
func (c *check) schema(ctx context.Context, database *store.Reader) error {
	err := database.CheckSchema(ctx)
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		c.aside = append(c.aside, fault.Problem)
		return nil
	}
	return err
}

// rowsBeside checks the rows beside the records, by their seals and by the records.
func (c *check) rowsBeside(ctx context.Context, database *store.Reader, replay *fold.Replay) error {
	err := c.sealedRows(ctx, database)
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		c.aside, err = append(c.aside, fault.Problem), nil
	}
	if err != nil {
		return err
	}
	differences, err := database.UnlikeTheLog(ctx, replay)
	if err == nil && len(differences) > 0 {
		c.unlike = term.Count(len(differences), "difference") + " between rows and records: " + foldrows.Words(differences)
	}
	return err
}

// maxNamed bounds the altered rows that a fault names.
const maxNamed = 10

// sealedRows checks the rows beside the records, if the key is there.
func (c *check) sealedRows(ctx context.Context, database *store.Reader) error {
	if c.rowKey == nil {
		return nil
	}
	altered, err := database.AlteredRows(ctx, c.rowKey, true)
	if errors.Is(err, rowseal.ErrOther) {
		return &audit.Fault{Problem: fmt.Sprintf("%s: its rows are not sealed with the daemon's key, so a change of them cannot be detected", c.Path)}
	}
	if c.rows = err == nil; err != nil || len(altered) == 0 {
		return err
	}
	var names []string
	for _, row := range altered[:min(len(altered), maxNamed)] {
		names = append(names, fmt.Sprintf("%s %s (%.120q)", row.Table, row.Row, row.Key))
	}
	more := ""
	if len(altered) > maxNamed {
		more = " and more"
	}
	return &audit.Fault{Problem: fmt.Sprintf("%s changed by somebody else than the daemon: %s%s", term.Count(len(altered), "row"), strings.Join(names, ", "), more)}
}

// agree checks the daemon's other sources of answers, the database with its tiles and the index,
// and that they belong to the same log. If they do not, the findings are about them.
func (c *check) agree(ctx context.Context, f *Findings) error {
	d := &check{Log: &Log{Path: c.Database, InDatabase: true, Socket: c.Socket, Progress: c.Progress, rowKey: c.rowKey, keys: c.keys}, proof: c.proof, witnesses: make(map[string]string)}
	d.proof.Tombstone = nil
	indexed, err := index.OpenCheck(index.Path(d.Path))
	if err != nil {
		return err
	}
	mirrored := f.Head
	var apart error
	d.each = func(seq uint64, line []byte) error {
		if seq == mirrored.Seq && d.verifier.Head().Hash != mirrored.Hash {
			apart = &audit.Fault{Seq: seq, Problem: "the database and the mirror have two records of this number"}
		}
		if indexed == nil {
			return nil
		}
		return indexed.Add(seq, line)
	}
	found, err := d.finish(d.database(ctx))
	f.Rows = d.rows
	if indexed != nil && err == nil {
		f.Indexed = true
		err = indexed.Finish()
		d.derived = err != nil
	}
	f.Derived = d.derived && len(d.aside) == 0
	err = cmp.Or(err, d.rested(), apart)
	if err == nil && found.Head.Seq < mirrored.Seq {
		err = &audit.Fault{Seq: found.Head.Seq + 1, Problem: fmt.Sprintf("the database ends before it, and the mirror continues to record %d", mirrored.Seq)}
	}
	err = d.withAside(err)
	f.Beside, f.Behind = true, found.Head.Seq-min(mirrored.Seq, found.Head.Seq)
	if err != nil {
		f.Report, f.Path, f.Standing = found, d.Path, d.retired()
	}
	return err
}

const (
	// behindTries and behindWait bound the wait for a mirror that is behind for a moment, or in the
	// middle of its last line.
	behindTries = 100
	behindWait  = 20 * time.Millisecond
)

// copy checks a mirror or a copy of one.
func (c *check) copy(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	// If a log is expected, its absence is a fault.
	expected := len(c.proof.Keys)+len(c.proof.Held) > 0
	if err := c.find(expected); err != nil {
		return err
	}
	want := uint64(0)
	for _, signed := range c.proof.Held {
		// The verifier has already refused notes that are no checkpoints.
		held, _ := audit.OpenCheckpoint(signed)
		want = max(want, held.Size)
	}
	for try := 0; ; try++ {
		err := c.walk(ctx)
		if expected && c.files != nil && errors.Is(err, fs.ErrNotExist) && c.verifier.Head().Seq == c.retired() {
			return nil
		}
		torn := errors.Is(err, mirror.ErrTorn)
		if err != nil && !torn {
			return err
		}
		if !c.Own || try == behindTries || !torn && c.verifier.Head().Seq >= want {
			if torn {
				return &audit.Fault{Seq: c.verifier.Head().Seq + 1, Problem: "cut short: no newline at the end"}
			}
			return nil
		}
		again := time.NewTimer(behindWait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

// find finds the files of the copy.
func (c *check) find(expected bool) error {
	info, err := os.Stat(c.Path)
	if c.Own && !expected && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot verify the audit log: there is none at %s yet; ocipd serve begins one, and a copy is verified by its path", c.Path)
	}
	if err != nil && (!c.Own || !expected || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("cannot verify the audit log: %w", err)
	}
	if c.Own || info.IsDir() {
		if c.files, err = mirror.OpenFiles(c.Path); err != nil && !errors.As(err, &c.unsound) {
			return err
		}
	}
	return nil
}

// retired returns the last record that the tombstone covers.
func (c *check) retired() uint64 {
	if c.proof.Tombstone == nil {
		return 0
	}
	return c.proof.Tombstone.Head.Seq
}

// walk continues reading after the verifier's last record.
func (c *check) walk(ctx context.Context) error {
	visit := func(line []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return c.add(line)
	}
	head := c.verifier.Head().Seq
	if head == c.retired() {
		head, c.left = 0, audit.Head{}
	}
	var err error
	if info, statErr := os.Stat(c.Path); statErr == nil && !info.IsDir() && !c.Own {
		err = mirror.WalkFile(c.Path, visit)
	} else {
		from := head
		if from > 0 {
			from++
		}
		err = mirror.Walk(c.Path, from, visit)
	}
	var fault *audit.Fault
	var inFile *fs.PathError
	if err == nil || errors.As(err, &fault) || errors.As(err, &inFile) || errors.Is(err, mirror.ErrTorn) || ctx.Err() != nil {
		return err
	}
	// A file that cannot be read as lines, or be decompressed, was changed.
	return &audit.Fault{Seq: c.verifier.Head().Seq + 1, Problem: err.Error()}
}
