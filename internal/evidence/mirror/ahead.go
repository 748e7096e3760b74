package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/durable"
	"golang.org/x/sys/unix"
)

// AheadError reports that the mirror continues after the end of the database: the database has lost
// records that were durable, and that may have allowed the release of something. It does not apply
// to the mirror of another log.
type AheadError struct {
	// Database is [Options.Database], and Mirror the file of the last record.
	Database, Mirror string
	// Head is the last record of the database, and Last that of the mirror.
	Head, Last uint64
	// aside names the files to move away in order to continue without the records.
	aside string
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("cannot start: the database %s ends at record %d, and the audit mirror %s goes on from that very record to %d, so that the database lacks %d; "+
		"put the right database back; or, to continue without these records on purpose, move %s aside and keep it, since the records are nowhere else",
		e.Database, e.Head, e.Mirror, e.Last, e.Last-e.Head, e.aside)
}

// ahead returns an [*AheadError] if the files continue the chain of the database after its head. It
// changes nothing. It reads files only if one goes further than the database.
func (m *Mirror) ahead(ctx context.Context, head audit.Head) error {
	if head.Seq == 0 {
		// Any file that begins with the first record continues an empty log.
		return nil
	}
	parts, err := m.behind(head.Seq)
	if err != nil || len(parts) == 0 {
		return err
	}
	t := trail{ctx: ctx, from: head.Seq, head: audit.Head{Seq: head.Seq, Hash: head.Hash}}
	file := ""
	for _, p := range parts {
		before := t.head.Seq
		err := t.follow(p.path, p.packed)
		if t.head.Seq > before {
			file = p.path
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, broken := errors.AsType[*unsound](err); err != nil && !broken {
			return fmt.Errorf("cannot read the audit mirror: %w", err)
		}
		if t.other {
			return nil
		}
	}
	if t.head.Seq == head.Seq {
		return nil
	}
	e := &AheadError{Database: m.o.Database, Mirror: file, Head: head.Seq, Last: t.head.Seq, aside: m.layout.live}
	if file != m.layout.live || len(parts) > 1 {
		e.aside = fmt.Sprintf("%s and the files %s-* beside it", m.layout.live, m.layout.path(m.layout.base))
	}
	return e
}

// part is a file of the mirror.
type part struct {
	span
	path   string
	packed bool
}

// behind lists the files that may hold records after seq, oldest first, with the live file last.
func (m *Mirror) behind(seq uint64) ([]part, error) {
	entries, err := os.ReadDir(m.layout.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit mirror's directory: %w", err)
	}
	var parts []part
	for _, e := range entries {
		if r, packed, ok := m.layout.parse(e.Name()); ok && r.last > seq && e.Type().IsRegular() {
			parts = append(parts, part{r, m.layout.path(e.Name()), packed})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return bySpan(a.span, b.span) })
	f, err := os.OpenFile(m.layout.live, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return parts, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the audit mirror: %w", err)
	}
	defer f.Close()
	line, _, err := lastLine(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit mirror: %w", err)
	}
	// A line that is no record says nothing about the lines before it.
	if last, err := audit.HeadOf(line); len(line) > 0 && (err != nil || last.Seq > seq) {
		parts = append(parts, part{path: m.layout.live})
	}
	return parts, nil
}

// trail follows a chain through files.
type trail struct {
	ctx context.Context
	// from is the start of the chain, and head its end so far.
	from uint64
	head audit.Head
	// other is set if a file begins with another record than the chain.
	other bool
}

// follow reads a file as far as it continues the chain. An [*unsound] error says that it ends
// before the file does.
func (t *trail) follow(path string, packed bool) error {
	f, err := durable.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := newLineReader()
	defer r.close()
	if err := r.open(f, packed); err != nil {
		return &unsound{path, err}
	}
	for t.ctx.Err() == nil {
		line, err := r.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrTorn):
			return nil
		case err != nil && isIO(err):
			return err
		case err != nil:
			return &unsound{path, err}
		}
		seq, ok := seqOf(line)
		switch {
		case !ok:
			return &unsound{path, errors.New("a line is no record")}
		case seq < t.from:
		case seq == t.from:
			here, err := audit.HeadOf(line)
			if err != nil {
				return &unsound{path, err}
			}
			if t.other = t.head.Seq == t.from && here.Hash != t.head.Hash; t.other {
				return nil
			}
		case seq <= t.head.Seq:
			// While a segment is being compressed, it exists twice.
		default:
			next, err := t.head.Check(line)
			if err != nil {
				return &unsound{path, err}
			}
			t.head = next
		}
	}
	return t.ctx.Err()
}
