package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/plainfile"
)

// fileSink appends OCSF events to a file, one a line, and syncs them before it confirms them. If
// another program renames or removes the file, as logrotate does, it begins a new one.
type fileSink struct {
	path    string
	mapping *Mapping
	file    *os.File
	buf     []byte
}

// eventStart is the beginning of every line of this sink.
const eventStart = `{"class_uid":6003,`

// Send writes a page and syncs it.
func (s *fileSink) Send(_ context.Context, batch []Record) (Ack, error) {
	if err := s.open(); err != nil {
		return Ack{}, fmt.Errorf("cannot write to %s: %w", s.path, err)
	}
	s.buf = s.buf[:0]
	for i := range batch {
		s.buf = append(append(s.buf, s.mapping.OCSF(&batch[i])...), '\n')
	}
	_, err := s.file.Write(s.buf)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		// The next attempt opens the file again, and checks its end.
		return Ack{}, fmt.Errorf("cannot write to %s: %w", s.path, errors.Join(err, s.Close()))
	}
	return Ack{}, nil
}

// Close closes the file.
func (s *fileSink) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// open makes sure that the open file is the one at the path, and ends in a whole line.
func (s *fileSink) open() error {
	if s.file != nil {
		have, err := s.file.Stat()
		if err != nil {
			return errors.Join(err, s.Close())
		}
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(have, now) {
			return nil
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	// A file that others put there must not be written to.
	f, err := plainfile.Append(s.path, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size() == 0:
		err = durable.SyncDir(filepath.Dir(s.path))
	default:
		err = endLine(f, info.Size())
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.file = f
	return nil
}

// maxTorn bounds the search for the beginning of an incomplete line, in bytes: an event holds a
// record of at most 1 MiB twice, escaped once.
const maxTorn = 16 << 20

// endLine repairs a file whose last line has no end, as after a crash. It removes an incomplete
// line of this sink, since the record comes again. It keeps a line that others wrote, and ends it.
func endLine(f *os.File, size int64) error {
	from := max(0, size-maxTorn)
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	start := bytes.LastIndexByte(tail, '\n') + 1
	whole := start > 0 || from == 0
	if torn := tail[start:]; whole && (bytes.HasPrefix(torn, []byte(eventStart)) || bytes.HasPrefix([]byte(eventStart), torn)) {
		return f.Truncate(from + int64(start))
	}
	_, err := f.Write([]byte{'\n'})
	return err
}
