// Package checkpoints keeps a log's checkpoints outside the log: in a file that may
// lie on another disk, and in the systemd journal where there is one. A log
// that was cut, emptied or replaced by an older copy says nothing of it; what
// is kept here does.
//
// The caller hands every checkpoint to [File.Keep] and asks [File.Newest]
// at every start whether the log has all that is kept of it.
package checkpoints

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"go.uber.org/zap"
)

// Entry is one line of a file of checkpoints.
type Entry struct {
	// Time is when it was written here.
	Time time.Time `json:"time"`
	// Size is the number of records it is of, for people; the note says it too.
	Size uint64 `json:"size"`
	// Note is the signed note.
	Note string `json:"note"`
}

// Options say where checkpoints are kept and what is given from outside.
type Options struct {
	// Path is the file. Its directory is made with mode 0700.
	Path string
	// Journal, where set, is told too. [Journal] is the systemd journal.
	Journal func(e Entry, c *audit.Checkpoint) error
	Clock   func() time.Time
	Log     *zap.Logger
}

// File keeps checkpoints.
type File struct {
	o Options

	mu     sync.Mutex
	newest audit.Checkpoint
	// rotated are the sizes of the checkpoints here that hand over to another key.
	rotated map[uint64]bool
}

// maxLine bounds a line of the file.
const maxLine = 2 * audit.MaxNoteBytes

// Open takes up the file, and reads how far the checkpoints go. A last
// line that a crash tore is cut off.
func Open(o Options) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the checkpoints: %w", err)
	}
	w := &File{o: o, rotated: make(map[uint64]bool)}
	f, err := os.OpenFile(o.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the checkpoints: %w", err)
	}
	whole, err := read(f, func(_ Entry, c *audit.Checkpoint) error {
		w.took(c)
		return nil
	})
	if err == nil {
		err = f.Truncate(whole)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot read the checkpoints in %s: %w", o.Path, err)
	}
	return w, nil
}

// Newest returns the largest checkpoint kept here, the zero one where there is
// none.
func (w *File) Newest() audit.Checkpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// took remembers a checkpoint that is here.
func (w *File) took(c *audit.Checkpoint) {
	if c.HandsOver() {
		w.rotated[c.Size] = true
	}
	if c.Size > w.newest.Size {
		w.newest = *c
	}
}

// Keep writes one checkpoint, durably, and tells the journal. One that is not
// of more records than those before it is left out, unless it hands over to another
// key: with it, whoever holds this file alone can follow. Where it fails, the next one
// says all that this would have said.
func (w *File) Keep(signed string) error {
	if signed == "" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.keepLocked(signed); err != nil {
		return fmt.Errorf("cannot keep a checkpoint outside the log, in %s: %w", w.o.Path, err)
	}
	return nil
}

func (w *File) keepLocked(signed string) error {
	c, err := audit.OpenCheckpoint(signed)
	if !errors.Is(err, audit.ErrUnsigned) {
		return err
	}
	if c.Size <= w.newest.Size && (!c.HandsOver() || w.rotated[c.Size]) {
		return nil
	}
	e := Entry{Time: w.o.Clock().UTC(), Size: c.Size, Note: signed}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("cannot encode the checkpoint: %w", err)
	}
	// Opened anew each time: it is rare, and a file that was moved away by a
	// rotation is then made again.
	f, err := os.OpenFile(w.o.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(append(line, '\n')); err != nil {
			// No part of a line stays behind.
			err = errors.Join(err, f.Truncate(info.Size()))
		} else {
			err = f.Sync()
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	w.took(&c)
	if w.o.Journal != nil {
		if err := w.o.Journal(e, &c); err != nil {
			w.o.Log.Warn("cannot tell the journal of a checkpoint", zap.Error(err))
		}
	}
	return nil
}

// Journal tells the systemd journal of a checkpoint.
func Journal(e Entry, c *audit.Checkpoint) error {
	err := journal.Send(fmt.Sprintf("audit log checkpoint: %d records of %s", c.Size, c.Origin), journal.PriNotice, map[string]string{
		"SYSLOG_IDENTIFIER":     "ocipd",
		"OCIPD_LOG":             c.Origin,
		"OCIPD_CHECKPOINT_SIZE": strconv.FormatUint(c.Size, 10),
		"OCIPD_CHECKPOINT":      e.Note,
	})
	if err != nil {
		return fmt.Errorf("cannot write to the journal: %w", err)
	}
	return nil
}

// HasJournal reports whether a systemd journal is there to be told.
func HasJournal() bool { return journal.Enabled() }

// Read returns the notes in a file of checkpoints.
func Read(path string) (notes []string, err error) {
	f, err := durable.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the checkpoints: %w", err)
	}
	_, err = read(f, func(e Entry, _ *audit.Checkpoint) error {
		notes = append(notes, e.Note)
		return nil
	})
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot read the checkpoints in %s: %w", path, err)
	}
	return notes, nil
}

// read visits every whole line and returns where the last of them ends.
func read(r io.Reader, visit func(Entry, *audit.Checkpoint) error) (whole int64, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			// What a crash tore is the beginning of a line, or zeros that never
			// got their content. Anything else is somebody's and is not cut off.
			if len(line) > 0 && line[0] != '{' && line[0] != 0 {
				return whole, malformed(number, nil)
			}
			return whole, nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return whole, malformed(number, err)
		}
		if err != nil {
			return whole, fmt.Errorf("line %d: %w", number, err)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return whole, malformed(number, err)
		}
		c, err := audit.OpenCheckpoint(e.Note)
		if !errors.Is(err, audit.ErrUnsigned) {
			return whole, malformed(number, err)
		}
		if err := visit(e, &c); err != nil {
			return whole, err
		}
		whole += int64(len(line))
	}
}

// malformed is the fault of a line that nobody wrote who keeps checkpoints here.
func malformed(number int, cause error) error {
	problem := fmt.Sprintf("line %d is not a checkpoint", number)
	if cause != nil {
		problem += ": " + cause.Error()
	}
	return &audit.Fault{Problem: problem}
}

// Missing is the fault of a log that does not reach as far as a checkpoint outside it.
func Missing(path string, have, kept uint64) error {
	return &audit.Fault{Problem: fmt.Sprintf("cannot go on with an audit log of %d records: %s holds a signed checkpoint of %d, so the log was cut or replaced by an older copy; put the newer one back, or, if you restored it knowingly, move that file aside",
		have, path, kept)}
}

// Differs is the fault of a log with other records than a checkpoint outside it is of.
func Differs(path string, size uint64) error {
	return &audit.Fault{Problem: fmt.Sprintf("cannot go on with an audit log whose first %d records are not those of the signed checkpoint in %s: it was rewritten or is another log", size, path)}
}

// TombstoneFile is the name of the file that stands beside a mirror for the
// records that were retired.
const TombstoneFile = "audit-tombstone.note"

// WriteTombstone puts a tombstone's signed note beside a mirror, in place of the
// one before it.
func WriteTombstone(dir string, t *audit.Tombstone) error {
	if err := durable.Replace(filepath.Join(dir, TombstoneFile), ".tmp", 0o600, []byte(t.Signed)); err != nil {
		return fmt.Errorf("cannot write the tombstone: %w", err)
	}
	return nil
}
