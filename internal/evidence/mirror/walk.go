package mirror

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// liveName is the live file's name if the path is a directory.
const liveName = "audit.jsonl"

// Walk visits the lines of a mirror in order, from a record on: first those of the segments and
// then those of the live file. It needs no database and changes nothing, and a daemon may be
// writing meanwhile. The path is the live file's, or its directory's if the file is audit.jsonl. A
// line is valid during the visit only, and has no newline.
//
// An error names its file. If a file cannot be decompressed, or records are missing between files,
// it is an [*audit.Fault]. [ErrTorn] comes after all whole lines. An error of visit ends the walk.
func Walk(path string, from uint64, visit func(line []byte) error) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, liveName)
	}
	w := &walk{layout: newLayout(path), lines: newLineReader(), from: from, next: from, visit: visit}
	defer w.lines.close()
	// The next look finds a file that is renamed or compressed meanwhile.
	for range looks {
		if done, err := w.look(); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot read the mirror %s: its files change faster than they are read", path)
}

// looks bounds the number of times that a walk lists the files.
const looks = 100

// walk is the state of a walk.
type walk struct {
	layout layout
	lines  *lineReader
	// from is the first wanted record, and next the one that follows, zero before the first.
	from, next uint64
	visit      func(line []byte) error
}

// segmentFile is one file that holds a span.
type segmentFile struct {
	span
	name   string
	packed bool
}

// list returns the files of segments, oldest first, one for each segment.
func (w *walk) list() ([]segmentFile, error) {
	entries, err := os.ReadDir(w.layout.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the mirror: %w", err)
	}
	found := make(map[span]files)
	for _, e := range entries {
		if r, packed, ok := w.layout.parse(e.Name()); ok {
			f := found[r]
			f.packed, f.plain = f.packed || packed, f.plain || !packed
			found[r] = f
		}
	}
	list := make([]segmentFile, 0, len(found))
	for _, r := range sorted(found) {
		// While both exist, only the uncompressed one is sure to be complete.
		if found[r].plain {
			list = append(list, segmentFile{r, w.layout.plain(r), false})
		} else {
			list = append(list, segmentFile{r, w.layout.packed(r), true})
		}
	}
	return list, nil
}

// look continues from the next record with the files that exist now, and reports whether it reached
// the end.
func (w *walk) look() (done bool, err error) {
	list, err := w.list()
	if err != nil {
		return false, err
	}
	for _, s := range list {
		if s.last < w.next {
			continue
		}
		if w.next > 0 && s.first > w.next {
			return false, w.missing(s.first)
		}
		err := w.segment(s)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return w.live()
}

// missing is the fault of a gap before a record.
func (w *walk) missing(before uint64) error {
	problem := fmt.Sprintf("the records up to %d are missing: no file holds them", before-1)
	if listed, err := w.layout.readManifest(); err == nil {
		for i := range listed {
			if s := &listed[i]; s.First <= w.next && w.next <= s.Last {
				problem = fmt.Sprintf("the segment %s is listed and is not there", s.File)
			}
		}
	}
	return fmt.Errorf("%s: %w", w.layout.dir, &audit.Fault{Seq: w.next, Problem: problem})
}

// segment visits the lines of a segment from the next record on.
func (w *walk) segment(s segmentFile) error {
	path := w.layout.path(s.name)
	f, err := durable.Open(path)
	if err != nil {
		return fmt.Errorf("cannot read the mirror: %w", err)
	}
	defer f.Close()
	err = w.lines.open(f, s.packed)
	for seq := s.first; err == nil; seq++ {
		var line []byte
		line, err = w.lines.next()
		switch {
		case errors.Is(err, io.EOF) && seq <= s.last:
			err = &audit.Fault{Seq: seq, Problem: "the segment ends before it"}
		case err == nil && seq > s.last:
			err = &audit.Fault{Seq: seq, Problem: "the segment continues after its last record"}
		case err == nil && seq >= w.next:
			if err = w.visit(line); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			w.next = seq + 1
		case err != nil && !errors.Is(err, io.EOF) && !isIO(err):
			err = &audit.Fault{Seq: seq, Problem: "the segment cannot be read: " + err.Error()}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// live visits the lines of the live file. It returns false if the file was rotated meanwhile, so
// that a segment holds the next record.
func (w *walk) live() (done bool, err error) {
	f, err := durable.Open(w.layout.live)
	if errors.Is(err, fs.ErrNotExist) && w.next > 0 {
		// The file is being renamed, or was never made: the segments tell.
		again, err := w.behind()
		return !again, err
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the mirror: %w", err)
	}
	defer f.Close()
	if err := w.lines.open(f, false); err != nil {
		return false, err
	}
	for first := true; ; first = false {
		line, err := w.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			if first {
				again, err := w.behind()
				return !again, err
			}
			return true, nil
		case errors.Is(err, ErrTorn), err != nil && isIO(err):
			return false, fmt.Errorf("%s: %w", w.layout.live, err)
		case err != nil:
			return false, fmt.Errorf("%s: %w", w.layout.live, &audit.Fault{Seq: w.next, Problem: err.Error()})
		}
		seq, ok := seqOf(line)
		if first && ok && seq > max(w.next, 1) {
			// The file may have been rotated since the segments were listed.
			if again, err := w.behind(); again || err != nil {
				return false, err
			}
			if w.next > 0 {
				return false, w.missing(seq)
			}
		}
		if ok && seq < w.from && w.next == w.from {
			continue
		}
		if err := w.visit(line); err != nil {
			return false, fmt.Errorf("%s: %w", w.layout.live, err)
		}
		if ok {
			w.next = seq + 1
		}
	}
}

// behind reports whether a segment with the next record has appeared. At the beginning of a walk,
// any segment counts.
func (w *walk) behind() (bool, error) {
	list, err := w.list()
	if err != nil {
		return false, err
	}
	for _, s := range list {
		if w.next == 0 || s.first <= w.next && w.next <= s.last {
			return true, nil
		}
	}
	return false, nil
}
