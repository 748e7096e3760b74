// Package logreader reads a log for commands that run beside a daemon or without one. If no daemon
// uses the database, it reads the database itself. Otherwise it reads through the daemon, since no
// other process can then read the file.
//
// [Open] is for a few records and facts. [OpenWhole] is for callers that read everything and trust
// nobody: it copies the database.
package logreader

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
)

// Log is an open log. Its methods are those of [store.Reader].
type Log interface {
	LastSeq(ctx context.Context) (uint64, error)
	Line(ctx context.Context, seq uint64) ([]byte, error)
	EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error
	Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error)
	ProveRecord(ctx context.Context, seq uint64) (audit.Receipt, error)
	Tombstone(ctx context.Context) (audit.Tombstone, error)
	Checkpoint(ctx context.Context) (logstore.Signed, error)
	PublicKey(ctx context.Context) (string, error)
	RootAt(ctx context.Context, size uint64) (audit.Hash, error)
	ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error)
	CheckTail(ctx context.Context) (audit.Head, error)
	Close() error
}

// Socket returns the socket for operators of a daemon that may be using the database.
type Socket func() (string, error)

// Open opens a database to read its log.
func Open(ctx context.Context, database string, socket Socket) (Log, error) {
	r, err := store.OpenReader(ctx, database)
	if err == nil {
		return r, nil
	}
	if !errors.Is(err, store.ErrRunning) {
		return nil, err
	}
	c, at, err := dial(ctx, database, socket)
	if err != nil {
		return nil, err
	}
	l := &live{client: c}
	found, err := l.ask(ctx, api.AuditInspectParams{})
	if err == nil {
		err = sameFile(database, found.Database, at)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return l, nil
}

// Whole is an open database: the file itself, or a copy of it that is deleted when it is closed.
type Whole struct {
	*store.Reader
	client *client.Client
}

// OpenWhole opens a database. If a daemon uses it, it opens a copy of the present state.
func OpenWhole(ctx context.Context, database string, socket Socket) (*Whole, error) {
	r, err := store.OpenReader(ctx, database)
	if err == nil || !errors.Is(err, store.ErrRunning) {
		return &Whole{Reader: r}, err
	}
	path, c, err := Copy(ctx, database, socket)
	if err != nil {
		return nil, err
	}
	if r, err = store.OpenReader(ctx, path); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Whole{Reader: r, client: c}, nil
}

// Close closes the database.
func (w *Whole) Close() error {
	err := w.Reader.Close()
	if w.client != nil {
		err = errors.Join(err, w.client.Close())
	}
	return err
}

// Copy makes a daemon copy its database. The copy is deleted when the connection is closed.
func Copy(ctx context.Context, database string, socket Socket) (path string, c *client.Client, err error) {
	c, at, err := dial(ctx, database, socket)
	if err != nil {
		return "", nil, err
	}
	var made api.StoreSnapshot
	stream, err := c.Stream(ctx, "store.snapshot", nil)
	if err == nil {
		var chunk []byte
		if chunk, err = stream.Next(ctx); err == nil {
			err = json.Unmarshal(chunk, &made)
		}
	}
	if err == nil {
		err = sameFile(database, made.Database, at)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("cannot read %s, which a daemon is using: %w", database, err), c.Close())
	}
	return made.Path, c, nil
}

// dial connects to the daemon that may be using a database.
func dial(ctx context.Context, database string, socket Socket) (c *client.Client, at string, err error) {
	if at, err = socket(); err != nil {
		return nil, "", fmt.Errorf("cannot ask the daemon that is using %s: %w", database, err)
	}
	c, err = client.Dial(ctx, at)
	if errors.Is(err, client.ErrNotRunning) {
		return nil, "", fmt.Errorf("cannot read %s: a daemon is using it, and none answers at %s; name that daemon by its configuration (--config) or its socket (--socket)", database, at)
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot ask the daemon that is using %s: %w", database, err)
	}
	return c, at, nil
}

// sameFile checks that the daemon that answers uses the file.
func sameFile(wanted, used, at string) error {
	a, err := os.Stat(wanted)
	if err != nil {
		return err
	}
	if b, err := os.Stat(used); err == nil && os.SameFile(a, b) {
		return nil
	}
	return fmt.Errorf("cannot read %s: a daemon is using it, and the one that answers at %s uses %s; name its configuration (--config) or its socket (--socket)", wanted, at, used)
}

// live reads the log of a running daemon.
type live struct{ client *client.Client }

func (l *live) Close() error { return l.client.Close() }

func (l *live) ask(ctx context.Context, p api.AuditInspectParams) (found api.AuditInspection, err error) {
	return found, l.client.Call(ctx, "audit.inspect", p, &found)
}

func (l *live) LastSeq(ctx context.Context) (uint64, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{})
	return found.Last, err
}

func (l *live) Line(ctx context.Context, seq uint64) ([]byte, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{Seq: seq})
	if err == nil && found.Line == "" {
		err = store.ErrNotFound
	}
	return []byte(found.Line), err
}

func (l *live) ProveRecord(ctx context.Context, seq uint64) (r audit.Receipt, err error) {
	found, err := l.ask(ctx, api.AuditInspectParams{Seq: seq})
	switch {
	case err != nil:
		return r, err
	case found.Line == "":
		return r, store.ErrNotFound
	case found.Receipt == "":
		return r, logstore.ErrUnsigned
	}
	return r, r.UnmarshalText([]byte(found.Receipt))
}

func (l *live) Tombstone(ctx context.Context) (audit.Tombstone, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{})
	if err != nil {
		return audit.Tombstone{}, err
	}
	if found.Tombstone == "" {
		return audit.Tombstone{}, store.ErrNotFound
	}
	t, err := audit.OpenTombstone(found.Tombstone)
	if !errors.Is(err, audit.ErrUnsigned) {
		return audit.Tombstone{}, fmt.Errorf("cannot read the retired records: %w", err)
	}
	return t, nil
}

func (l *live) Checkpoint(ctx context.Context) (logstore.Signed, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{})
	return logstore.Signed{Seq: found.CheckpointSeq, Note: found.Checkpoint}, err
}

func (l *live) PublicKey(ctx context.Context) (string, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{})
	return found.Key, err
}

func (l *live) RootAt(ctx context.Context, size uint64) (root audit.Hash, err error) {
	found, err := l.ask(ctx, api.AuditInspectParams{Size: size})
	if err != nil {
		return root, err
	}
	if found.Root == "" {
		return root, store.ErrNotFound
	}
	return root, root.UnmarshalText([]byte(found.Root))
}

func (l *live) ProveExtension(ctx context.Context, old, size uint64) ([]audit.Hash, error) {
	found, err := l.ask(ctx, api.AuditInspectParams{Old: &old, Size: size})
	if err != nil {
		return nil, err
	}
	if found.Root == "" {
		return nil, store.ErrNotFound
	}
	path := make([]audit.Hash, len(found.Path))
	for i, text := range found.Path {
		if err := path[i].UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	}
	return path, nil
}

func (l *live) CheckTail(ctx context.Context) (head audit.Head, err error) {
	found, err := l.ask(ctx, api.AuditInspectParams{})
	if err != nil {
		return head, err
	}
	if found.Tail == nil {
		return head, errors.New(found.Fault)
	}
	head.Seq, head.Time = found.Tail.Seq, found.Tail.Time
	return head, head.Hash.UnmarshalText([]byte(found.Tail.Hash))
}

func (l *live) Query(ctx context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	var page api.AuditQueryResult
	if err := l.client.Call(ctx, "audit.query", api.AuditQueryParams{Filter: f, Limit: &limit, Before: before}, &page); err != nil {
		return nil, 0, err
	}
	for _, record := range page.Records {
		head, err := audit.HeadOf(record)
		if err != nil {
			return nil, 0, err
		}
		if head.Seq <= after {
			return lines, 0, nil
		}
		lines = append(lines, record)
	}
	return lines, page.NextBefore, nil
}

func (l *live) EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error {
	return l.client.Each(ctx, "audit.tail", api.AuditTailParams{After: &after}, func(line jsontext.Value) error {
		head, err := audit.HeadOf(line)
		if err != nil {
			return err
		}
		return visit(head.Seq, line)
	})
}
