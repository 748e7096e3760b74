package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/term"
)

// evidence is the record that a daemon left behind: its database, or the mirror
// of it.
type evidence interface {
	// Query returns up to limit records between two, newest first, and where to
	// go on. It looks at every record, and a page may be short.
	Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error)
	// EachLine visits every record after a number, oldest first.
	EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error
	Close() error
}

// openEvidence opens the record for reading where no daemon runs to be asked.
func (s *shell) openEvidence(ctx context.Context, notRunning error) (evidence, error) {
	cfg, err := s.Places("store.url", "audit.mirror")
	if err != nil {
		return nil, fmt.Errorf("%w, and %w", notRunning, err)
	}
	database := config.DatabasePath(cfg, s.Getenv)
	if database != "" {
		reader, err := store.OpenReader(ctx, database)
		if err == nil {
			fmt.Fprintf(s.Stderr, "no daemon is running: reading %s\n", term.Printable(database))
			return reader, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	path := config.MirrorPath(cfg, database)
	if path == "" {
		return nil, notRunning
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (and it left no record to read at %s)", notRunning, cmp.Or(database, path))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit mirror: %w", err)
	}
	fmt.Fprintf(s.Stderr, "no daemon is running: reading %s\n", term.Printable(path))
	return &mirrorFile{file: f}, nil
}

// operatorSocket is where a daemon answers operators.
func (s *shell) operatorSocket() (string, error) {
	path, err := s.KernelSocket()
	return config.OperatorPath(path), err
}

// mirrorFile reads a mirror without its database.
type mirrorFile struct{ file *os.File }

// Close closes the file.
func (m *mirrorFile) Close() error { return m.file.Close() }

// EachLine reads the file from its beginning. A last line that was torn by a
// crash is left out: the database has it, and the next start completes the
// mirror.
func (m *mirrorFile) EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	if _, err := m.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read the audit mirror: %w", err)
	}
	lines := bufio.NewReaderSize(m.file, 64<<10)
	var before audit.Head
	for ctx.Err() == nil {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the audit mirror: %w", err)
		}
		line = line[:len(line)-1]
		if before.Seq == 0 {
			// The first line says where the file begins.
			if e, err := audit.Parse(line); err == nil && e.Seq > 0 {
				before = audit.Head{Seq: e.Seq - 1, Hash: e.Prev}
			}
		}
		head, err := before.Check(line)
		if err != nil {
			return fmt.Errorf("cannot read the audit mirror %s: %w; ocipd audit verify says more", m.file.Name(), err)
		}
		if before = head; head.Seq <= after {
			continue
		}
		if err := visit(head.Seq, line); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Query reads the whole file and keeps the last records that match.
func (m *mirrorFile) Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	kept := lastLines{limit: limit}
	err = m.EachLine(ctx, after, func(seq uint64, line []byte) error {
		if (before == 0 || seq < before) && f.Match(line) {
			kept.add(line)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	lines = kept.ordered()
	slices.Reverse(lines)
	if kept.dropped && len(lines) > 0 {
		head, err := audit.HeadOf(lines[len(lines)-1])
		if err != nil {
			return nil, 0, err
		}
		next = head.Seq
	}
	return lines, next, nil
}

// lastLines keeps the last lines it is given.
type lastLines struct {
	limit   int
	ring    [][]byte
	next    int
	dropped bool
}

func (l *lastLines) add(line []byte) {
	switch {
	case l.limit == 0:
		l.dropped = true
	case len(l.ring) < l.limit:
		l.ring = append(l.ring, bytes.Clone(line))
	default:
		l.dropped = true
		l.ring[l.next] = append(l.ring[l.next][:0], line...)
		l.next = (l.next + 1) % l.limit
	}
}

// ordered returns the lines, oldest first.
func (l *lastLines) ordered() [][]byte {
	return append(l.ring[l.next:len(l.ring):len(l.ring)], l.ring[:l.next]...)
}
