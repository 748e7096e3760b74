package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// Files compares the files of a mirror with its manifest, and with each other. A walk reads every
// record once, so it would miss a second file with another version of a record. The caller opens it
// before a [Walk], passes it every verified record, and asks [Files.Check] at the end.
type Files struct {
	layout layout
	listed []Segment
	// got describes the part of listed[at] that was read.
	at    int
	got   Segment
	fault error
}

// OpenFiles reads the manifest of a mirror, with a path as for [Walk]; there may be none. A
// manifest that this program did not write is an [*audit.Fault].
func OpenFiles(path string) (*Files, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, liveName)
	}
	f := &Files{layout: newLayout(path)}
	var broken *manifestError
	var err error
	if f.listed, err = f.layout.readManifest(); errors.As(err, &broken) {
		return nil, &audit.Fault{Problem: broken.Error()}
	}
	return f, err
}

// Record adds the next record: its length in bytes without the newline, and the heads before and
// after it.
func (f *Files) Record(length int, before, after audit.Head) {
	for f.at < len(f.listed) && (f.listed[f.at].Retired || f.listed[f.at].Last < after.Seq) {
		f.at++
	}
	if f.at == len(f.listed) || after.Seq < f.listed[f.at].First {
		return
	}
	s := &f.listed[f.at]
	if after.Seq == s.First {
		f.got = Segment{First: after.Seq, Prev: before.Hash, FirstTime: after.Time, PackedBytes: s.PackedBytes, Sum: s.Sum}
	}
	f.got.Records++
	f.got.Bytes += int64(length) + 1
	f.got.Last, f.got.Hash, f.got.LastTime = after.Seq, after.Hash, after.Time
	// A segment whose beginning is gone cannot be checked further.
	if after.Seq == s.Last && f.got.First == s.First && !f.got.same(*s) && f.fault == nil {
		f.fault = f.differs(s.File)
	}
}

func (f *Files) differs(name string) error {
	return &audit.Fault{Problem: fmt.Sprintf("%s is not what %s says of it: one of the two was changed", name, filepath.Base(f.layout.manifest()))}
}

// Check returns the fault of the files, an [*audit.Fault], or a read error. Last is the last record
// that was read.
func (f *Files) Check(ctx context.Context, last uint64) error {
	for i := range f.listed {
		// A segment that was removed on purpose is not there.
		if err := f.listedFile(ctx, &f.listed[i], last); err != nil {
			return err
		}
	}
	if f.fault != nil {
		return f.fault
	}
	return f.doubled(ctx)
}

// listedFile compares a segment's file with the manifest.
func (f *Files) listedFile(ctx context.Context, s *Segment, last uint64) error {
	file, err := durable.Open(f.layout.path(s.File))
	if errors.Is(err, fs.ErrNotExist) {
		if f.retired(s) {
			return nil
		}
		fault := &audit.Fault{Problem: fmt.Sprintf("the segment %s is listed and is not there", s.File)}
		if s.First > last {
			fault.Seq = last + 1
		}
		return fault
	}
	if err != nil {
		return fmt.Errorf("cannot read the mirror: %w", err)
	}
	defer file.Close()
	c := &counter{from: file, ctx: ctx, sum: sha256.New()}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("cannot read the mirror: %w", err)
	}
	if c.n != s.PackedBytes || audit.Hash(c.sum.Sum(nil)) != s.Sum {
		return f.differs(s.File)
	}
	return nil
}

// retired reports whether a segment was removed on purpose since the manifest was read.
func (f *Files) retired(s *Segment) bool {
	now, err := f.layout.readManifest()
	if err != nil {
		return false
	}
	for i := range now {
		if now[i].First == s.First {
			return now[i].Retired
		}
	}
	return len(now) > 0 && now[0].First > s.First
}

// doubled looks for records that are in two files. The same records exist uncompressed and
// compressed for a moment, and must then be equal.
func (f *Files) doubled(ctx context.Context) error {
	entries, err := os.ReadDir(f.layout.dir)
	if err != nil {
		return fmt.Errorf("cannot read the mirror: %w", err)
	}
	found := make(map[span]files)
	for _, e := range entries {
		r, packed, ok := f.layout.parse(e.Name())
		if !ok && f.layout.poses(e.Name()) {
			return &audit.Fault{Problem: fmt.Sprintf("%s has a name like a segment's, and is none", e.Name())}
		}
		if ok {
			had := found[r]
			had.packed, had.plain = had.packed || packed, had.plain || !packed
			found[r] = had
		}
	}
	var before span
	for _, r := range sorted(found) {
		if r.first <= before.last {
			return &audit.Fault{Seq: r.first, Problem: fmt.Sprintf("it stands in two files, one of the records %d to %d and one of %d to %d", before.first, before.last, r.first, r.last)}
		}
		before = r
		if !found[r].plain || !found[r].packed {
			continue
		}
		plain, err := examine(ctx, f.layout.path(f.layout.plain(r)), false)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		packed, packedErr := examine(ctx, f.layout.path(f.layout.packed(r)), true)
		if err = errors.Join(err, packedErr); err != nil && (ctx.Err() != nil || isIO(err)) {
			return err
		}
		if err != nil || plain.Prev != packed.Prev || plain.Hash != packed.Hash || plain.span() != packed.span() {
			return &audit.Fault{Problem: fmt.Sprintf("%s and %s hold the same records and differ", f.layout.plain(r), f.layout.packed(r))}
		}
	}
	return nil
}
