package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// mirror is the JSONL file that operators tail: the records' lines, each with
// its newline, nothing else. It follows the database and is never waited for.
// What it misses, by a crash, a full disk or a burst, it reads back from the
// database, so no line is ever lost, doubled or torn for good.
type mirror struct {
	store *Store
	path  string
	file  *os.File
	size  int64
	// have is the last record that is in the file.
	have atomic.Uint64

	mu    sync.Mutex
	first uint64
	last  uint64
	lines []byte
	wake  chan struct{}
}

const (
	// mirrorBuffer bounds the lines kept in memory for a file that is slow.
	mirrorBuffer = 8 << 20
	// mirrorRetry is how long the mirror waits after a failed write.
	mirrorRetry = time.Second
)

func openMirror(s *Store, path string) (*mirror, error) {
	m := &mirror{store: s, path: path, wake: make(chan struct{}, 1)}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the audit mirror's directory: %w", err)
	}
	if err := m.open(); err != nil {
		return nil, err
	}
	m.poke()
	return m, nil
}

// open takes up the file at its last whole line. A file whose last line is not
// a record of this database is set aside under a new name, never overwritten:
// it is somebody's evidence of something.
func (m *mirror) open() error {
	f, err := os.OpenFile(m.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the audit mirror: %w", err)
	}
	line, size, err := lastLine(f)
	if err != nil {
		return errors.Join(fmt.Errorf("cannot read the audit mirror: %w", err), f.Close())
	}
	var have uint64
	if line != nil {
		have = m.match(line)
	}
	if size == 0 && have == 0 {
		// Nothing but a piece of a line: ours only if a record begins so.
		if line, err = m.torn(f); err != nil {
			return errors.Join(fmt.Errorf("cannot read the audit mirror: %w", err), f.Close())
		}
	}
	if line != nil && have == 0 {
		aside := m.path + ".foreign-" + strconv.FormatInt(m.store.clock().UnixNano(), 10)
		m.store.log.Error("the audit mirror does not belong to this database: set aside", zap.String("file", aside))
		if err := errors.Join(f.Close(), os.Rename(m.path, aside)); err != nil {
			return fmt.Errorf("cannot set the audit mirror aside: %w", err)
		}
		return m.open()
	}
	if err := f.Truncate(size); err != nil {
		return errors.Join(fmt.Errorf("cannot repair the audit mirror: %w", err), f.Close())
	}
	m.file, m.size = f, size
	m.have.Store(have)
	return nil
}

// match returns the number of the record that line is, or zero.
func (m *mirror) match(line []byte) uint64 {
	head, err := audit.HeadOf(line)
	if err != nil {
		return 0
	}
	stored, err := m.store.Line(context.Background(), head.Seq)
	if err != nil || !bytes.Equal(stored, line) {
		return 0
	}
	return head.Seq
}

// torn returns the content of a file without a whole line, nil where it is the
// beginning of the first record or nothing at all.
func (m *mirror) torn(f *os.File) ([]byte, error) {
	piece, err := io.ReadAll(io.NewSectionReader(f, 0, 2*audit.MaxBodyBytes))
	if err != nil || len(piece) == 0 {
		return nil, err
	}
	first, err := m.store.Line(context.Background(), 1)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if bytes.HasPrefix(first, piece) {
		return nil, nil
	}
	return piece, nil
}

// lastLine returns the last line that has its newline and where it ends. What
// comes after it was torn by a crash.
func lastLine(f *os.File) (line []byte, size int64, err error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	const block = 64 << 10
	var tail []byte
	for start := end; start > 0; {
		n := min(int64(block), start)
		start -= n
		chunk := make([]byte, n, n+int64(len(tail)))
		if _, err := f.ReadAt(chunk, start); err != nil {
			return nil, 0, err
		}
		tail = append(chunk, tail...)
		last := bytes.LastIndexByte(tail, '\n')
		if last < 0 {
			continue
		}
		if before := bytes.LastIndexByte(tail[:last], '\n'); before >= 0 || start == 0 {
			return tail[before+1 : last], start + int64(last) + 1, nil
		}
	}
	return nil, 0, nil
}

// offer hands over lines that have just become durable. It does not wait.
func (m *mirror) offer(first, last uint64, lines []byte) {
	m.mu.Lock()
	switch {
	case len(m.lines) == 0:
		m.first, m.last = first, last
		m.lines = append(m.lines, lines...)
	case m.last+1 == first && len(m.lines)+len(lines) <= mirrorBuffer:
		m.last = last
		m.lines = append(m.lines, lines...)
	default:
		// Too much for memory: the database has it.
		m.lines = m.lines[:0]
	}
	m.mu.Unlock()
	m.poke()
}

func (m *mirror) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mirror) run() {
	for {
		select {
		case <-m.wake:
		case <-m.store.closing.Done():
			if err := m.follow(context.Background()); err != nil {
				m.store.log.Error("cannot finish the audit mirror; it is caught up at the next start", zap.Error(err))
			}
			if m.file != nil {
				if err := m.file.Close(); err != nil {
					m.store.log.Error("cannot close the audit mirror", zap.Error(err))
				}
			}
			return
		}
		if err := m.follow(m.store.closing); err != nil && m.store.closing.Err() == nil {
			m.store.log.Error("cannot write the audit mirror; trying again", zap.Error(err), zap.Uint64("have", m.have.Load()))
			time.AfterFunc(mirrorRetry, m.poke)
		}
	}
}

// follow brings the file up to the last record.
func (m *mirror) follow(ctx context.Context) error {
	if m.file == nil {
		if err := m.open(); err != nil {
			return err
		}
	}
	var spare []byte
	for m.have.Load() < m.store.Head().Seq {
		m.mu.Lock()
		first, last, lines := m.first, m.last, m.lines
		m.lines = spare[:0]
		m.mu.Unlock()
		spare = lines
		have := m.have.Load()
		if len(lines) == 0 || first > have+1 {
			if err := m.catchUp(ctx); err != nil {
				return err
			}
			continue
		}
		if last <= have {
			continue
		}
		for seq := first; seq <= have; seq++ {
			lines = lines[bytes.IndexByte(lines, '\n')+1:]
		}
		if err := m.append(lines, last); err != nil {
			return err
		}
	}
	return nil
}

// catchUp writes from the database what memory does not hold.
func (m *mirror) catchUp(ctx context.Context) error {
	var page []byte
	var last uint64
	err := m.store.EachLine(ctx, m.have.Load(), func(seq uint64, line []byte) error {
		page = append(append(page, line...), '\n')
		last = seq
		if len(page) < 1<<20 {
			return nil
		}
		err := m.append(page, last)
		page = page[:0]
		return err
	})
	if err == nil && len(page) > 0 {
		err = m.append(page, last)
	}
	return err
}

// append writes whole lines. Where that fails half way the file is cut back to
// its last whole line.
func (m *mirror) append(lines []byte, last uint64) error {
	if _, err := m.file.Write(lines); err != nil {
		err = fmt.Errorf("cannot write the audit mirror: %w", err)
		if cut := m.file.Truncate(m.size); cut != nil {
			err = errors.Join(err, cut, m.file.Close())
			m.file = nil
		}
		return err
	}
	m.size += int64(len(lines))
	m.have.Store(last)
	return nil
}
