// Package checkpoints keeps a log's checkpoints outside the log: in a file, possibly on another
// disk, and in the systemd journal if there is one. If a log was cut, emptied or replaced by an
// older copy, the log itself does not show it. These checkpoints do.
//
// The caller hands every checkpoint to [File.Keep]. At every start it asks [File.Newest], and
// checks that the log has all the records.
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
	// Time is the time of the line.
	Time time.Time `json:"time"`
	// Size is the number of records that the checkpoint covers, for people; the note contains it
	// too.
	Size uint64 `json:"size"`
	// Note is the signed note.
	Note string `json:"note"`
}

// Options configure a [File].
type Options struct {
	// Path is the file. Its directory is made with mode 0700.
	Path string
	// Journal, if set, also receives each checkpoint. [Journal] is the systemd journal.
	Journal func(e Entry, c *audit.Checkpoint) error
	Clock   func() time.Time
	Log     *zap.Logger
}

// File keeps checkpoints.
type File struct {
	o Options

	mu     sync.Mutex
	newest audit.Checkpoint
	// rotated are the sizes of the kept checkpoints that hand over to another key.
	rotated map[uint64]bool
}

// maxLine bounds a line of the file.
const maxLine = 2 * audit.MaxNoteBytes

// Open opens the file and reads the size of its newest checkpoint. It removes a last line that a
// crash left incomplete.
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

// Newest returns the largest checkpoint in the file, or the zero one.
func (w *File) Newest() audit.Checkpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// took remembers a checkpoint of the file.
func (w *File) took(c *audit.Checkpoint) {
	if c.HandsOver() {
		w.rotated[c.Size] = true
	}
	if c.Size > w.newest.Size {
		w.newest = *c
	}
}

// Keep writes one checkpoint durably and sends it to the journal. It skips a checkpoint that does
// not cover more records than the earlier ones, unless it hands over to another key: somebody who
// only has this file needs it to follow the keys. If Keep fails, the next checkpoint covers the
// same records.
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
	// The file is opened each time, which is rare. If a rotation has moved it away, this makes a
	// new one.
	f, err := os.OpenFile(w.o.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(append(line, '\n')); err != nil {
			// No part of a line may stay.
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
			w.o.Log.Warn("cannot send a checkpoint to the journal", zap.Error(err))
		}
	}
	return nil
}

// Journal sends a checkpoint to the systemd journal.
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

// HasJournal reports whether there is a systemd journal.
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

// read visits every whole line and returns the end of the last one.
func read(r io.Reader, visit func(Entry, *audit.Checkpoint) error) (whole int64, err error) {
	lines := bufio.NewReaderSize(r, maxLine)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			// A crash leaves the beginning of a line, or zeros without content. Any other text
			// comes from somebody else and is not removed.
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

// malformed is the fault for a line that this package did not write.
func malformed(number int, cause error) error {
	problem := fmt.Sprintf("line %d is not a checkpoint", number)
	if cause != nil {
		problem += ": " + cause.Error()
	}
	return &audit.Fault{Problem: problem}
}

// Missing is the fault for a log that is shorter than a checkpoint outside it.
func Missing(path string, have, kept uint64) error {
	return &audit.Fault{Problem: fmt.Sprintf("cannot go on with an audit log of %d records: %s holds a signed checkpoint of %d, so the log was cut or replaced by an older copy; put the newer one back, or, if you restored it knowingly, move that file aside",
		have, path, kept)}
}

// Differs is the fault for a log whose records differ from those of a checkpoint outside it.
func Differs(path string, size uint64) error {
	return &audit.Fault{Problem: fmt.Sprintf("cannot go on with an audit log whose first %d records are not those of the signed checkpoint in %s: it was rewritten or is another log", size, path)}
}

// TombstoneFile is the name of the file beside a mirror for the retired records.
const TombstoneFile = "audit-tombstone.note"

// WriteTombstone writes a tombstone's signed note beside a mirror, in place of the one before it.
func WriteTombstone(dir string, t *audit.Tombstone) error {
	if err := durable.Replace(filepath.Join(dir, TombstoneFile), ".tmp", 0o600, []byte(t.Signed)); err != nil {
		return fmt.Errorf("cannot write the tombstone: %w", err)
	}
	return nil
}
