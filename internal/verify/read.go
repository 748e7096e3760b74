package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/durable"
	"github.com/openclawos/ocipd/internal/index"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/term"
)

// begin makes the verifier, once all that it is given is known.
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
	if c.files != nil {
		c.files.Record(len(line), before, c.verifier.Head())
	}
	return nil
}

// remnant reports whether a line is of a record that the tombstone stands for,
// and checks it: while retention goes on some are still there, and what is there
// must be what was retired.
func (c *check) remnant(line []byte) (old bool, err error) {
	head, err := audit.HeadOf(line)
	if err != nil || head.Seq > c.retired() {
		// The verifier says what is wrong with it.
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

// rested says whether the remnants are the end of what the tombstone stands for.
func (c *check) rested() error {
	if c.left.Seq == 0 {
		return nil
	}
	if end := c.proof.Tombstone.Head; c.left.Seq != end.Seq || c.left.Hash != end.Hash {
		return &audit.Fault{Seq: c.left.Seq, Problem: fmt.Sprintf("it is not one of the %d records that the tombstone stands for", end.Seq)}
	}
	return nil
}

// database checks the record itself.
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
	err = reader.EachStored(ctx, 0, func(seq uint64, line []byte) error {
		if err := c.add(line); err != nil || c.each == nil {
			return err
		}
		return c.each(seq, line)
	})
	if err != nil {
		return err
	}
	err = reader.CheckTree(ctx, c.verifier.Head().Seq, c.verifier.Root())
	c.derived = err != nil
	return err
}

// agree checks what else the daemon answers from, the database with its tiles and the
// index, and that it is the same log. Where it is not, the findings are about that.
func (c *check) agree(ctx context.Context, f *Findings) error {
	d := &check{Log: &Log{Path: c.Database, InDatabase: true, Socket: c.Socket, Progress: c.Progress}, proof: c.proof}
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
	f.Derived = d.derived
	if indexed != nil && err == nil {
		f.Indexed = true
		err = indexed.Finish()
		f.Derived = err != nil
	}
	err = cmp.Or(err, d.rested(), apart)
	if err == nil && found.Head.Seq < mirrored.Seq {
		err = &audit.Fault{Seq: found.Head.Seq + 1, Problem: fmt.Sprintf("the database ends before it, and the mirror goes on to record %d", mirrored.Seq)}
	}
	f.Beside, f.Behind = true, found.Head.Seq-min(mirrored.Seq, found.Head.Seq)
	if err != nil {
		f.Report, f.Path, f.Standing = found, d.Path, d.retired()
	}
	return err
}

const (
	// behindTries and behindWait bound how long a mirror that is a moment
	// behind, or whose last line is just being written, is waited for.
	behindTries = 100
	behindWait  = 20 * time.Millisecond
)

// copy checks a mirror or a copy of one.
func (c *check) copy(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	// Where there should be a log, one that is gone is a fault of it.
	expected := len(c.proof.Keys)+len(c.proof.Held) > 0
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
	want := uint64(0)
	for _, signed := range c.proof.Held {
		// What is no checkpoint was refused when the verifier was made.
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

// retired is the last record that the tombstone stands for.
func (c *check) retired() uint64 {
	if c.proof.Tombstone == nil {
		return 0
	}
	return c.proof.Tombstone.Head.Seq
}

// walk reads on from where the verifier is.
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
	// What cannot be read as lines, or be decompressed, was changed.
	return &audit.Fault{Seq: c.verifier.Head().Seq + 1, Problem: err.Error()}
}
