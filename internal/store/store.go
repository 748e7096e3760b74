package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/diskspace"
	"github.com/openclawos/ocipd/internal/store/fileintegrity"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/internal/store/quota"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

//go:embed migrations/*.sql
var migrations embed.FS

// tables is what the migrations make.
//
//go:embed migrations/tables.json
var tables []byte

// applicationID marks the file as ocipd's ("ocip" in ASCII), so that another program's database is
// never mistaken for it. A copy has copyID.
const (
	applicationID = 0x6f636970
	copyID        = applicationID + 1
)

// Errors of the store. A caller may act on each of them.
var (
	// ErrClosed means that the store is closing or closed.
	ErrClosed = db.ErrClosed
	// ErrFull means that the disk is full. Nothing was written; the store goes
	// on when there is space.
	ErrFull = diskspace.ErrFull
	// ErrLow means that the disk is nearly full: nothing new is accepted, and changes that end
	// something are still written. Nothing was written of the change.
	ErrLow = diskspace.ErrLow
	// ErrLatched means that an input/output error, or the loss of a file (see
	// [fileintegrity.LostError]), closed the store for writing until a restart has verified it.
	ErrLatched = errors.New("the store is closed until a restart has verified it")
	// ErrMirrorLost means that [Options.Alive] reported a loss. Nothing was written; the store goes
	// on when it reports none.
	ErrMirrorLost = errors.New("a copy of the log that must be there is lost")
	// ErrInUse means that another daemon has the database open.
	ErrInUse = db.ErrInUse
	// ErrRunning means that a daemon has the database open; ask it instead.
	ErrRunning = db.ErrRunning
	// ErrQuota means that too many of an app's messages wait already. Nothing was written of the
	// change; it goes on when receivers have taken some of them.
	ErrQuota = quota.ErrExceeded
	// ErrBusy means that the change waited too long for its turn.
	ErrBusy = errors.New("the store did not take the change in time")
	// ErrNotFound means that there is no such row.
	ErrNotFound = db.ErrNotFound
)

// Options configure the store: the database and its dependencies.
type Options struct {
	// Path of the database file. Its directory is made with mode 0700.
	Path string
	// Clock returns the time for records.
	Clock func() time.Time
	Log   *zap.Logger
	// Wait bounds how long a change waits for its turn; zero is 10 s.
	Wait time.Duration
	// Space sets the limits of a filling disk.
	Space diskspace.Options
	// DiskChanged, if set, returns the change that records a new level of the disk.
	DiskChanged func(was, now diskspace.Disk) *Change
	// Quota bounds one app's waiting messages.
	Quota quota.Limit
	// Alive, if set, reports the loss of a copy of the log without which nothing may be released.
	// It is called for every batch and must be fast.
	Alive func() error
	// Signing signs checkpoints; nil makes none.
	Signing *logstore.Signing
	// Redact, if set, removes secrets from a record before it is encoded. The callers of Commit
	// call it in parallel.
	Redact func(*audit.Record)
	// Metrics, if set, counts durable changes.
	Metrics *metrics.Set
	// Unreadable, if set, words the error of a query that failed in a store that is closed for
	// writing.
	Unreadable func(*UnreadableError) error
	// RowKey returns the key that rows are sealed with. Nil is for tests: everybody knows the key
	// then.
	RowKey func() (*rowseal.Key, error)
	// Altered, if set, returns the change that records that somebody other than the daemon changed
	// a row. Row is that of [AlteredError].
	Altered func(table, row string) *Change
	// UnreadableRow, if set, words the error of a query that met an altered row.
	UnreadableRow func(*AlteredError) error
	// Claimed, if set, is called once this store has claimed the database and before anything is
	// read or written. From then on the caller may touch the files that belong to it. Made says
	// that there was no file, or an empty one. An error ends the opening.
	Claimed func(made bool) error
}

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	// Log is the audit log in the database.
	*logstore.Log
	// State reads all else.
	State

	path string
	// claim keeps other stores off the file while it is open.
	claim *db.File

	commits  commits
	cleaning cleaning
	touches  touches
	health   health
	redact   func(*audit.Record)

	// newID is that of [logstore.Signing].
	newID func() string
	// sealedFrom is the number of the first record that must have a seal.
	sealedFrom  uint64
	alterations rowseal.Altered
	// onAltered is [Options.Altered].
	onAltered func(table, row string) *Change

	// copying is full while a copy is being made: see [Store.Snapshot].
	copying chan struct{}

	closing   context.Context
	startStop context.CancelFunc
	tasks     sync.WaitGroup
}

// schema is the schema of this daemon's database.
var schema = sync.OnceValue(func() *db.Schema {
	return &db.Schema{
		Application: applicationID, Copy: copyID, Steps: migrations, Result: tables,
		Rows: `INSERT INTO meta (key, value) VALUES ('digests-from', CAST('1' AS BLOB));`,
	}
})

// readerCount bounds the queries that run side by side.
const readerCount = 3

// Open opens the database, migrates it and checks the end of its chain. If an earlier process
// latched the store, Open verifies every record, which takes time in proportion.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the store's directory: %w", err)
	}
	claim, err := schema().Claim(o.Path)
	if errors.Is(err, ErrInUse) {
		err = fmt.Errorf("%w; stop it, or give this daemon a database of its own (store.url)", err)
	}
	if err != nil {
		return nil, err
	}
	if o.Claimed != nil {
		if err := o.Claimed(claim.Made); err != nil {
			// Abandon must not remove SQLite's files.
			return nil, errors.Join(err, claim.Abandon(false))
		}
	}
	space := diskspace.New(o.Space, o.Path, o.Log)
	space.MakeRoom()
	if err := space.MayStart(); err != nil {
		return nil, errors.Join(err, claim.Abandon(false))
	}
	w, err := db.OpenWriter(o.Path)
	if err != nil {
		return nil, errors.Join(space.Explain(err), claim.Abandon(true))
	}
	s := newStore(ctx, &o, claim, space)
	adopt, keep, err := s.open(ctx, w, o)
	if err != nil {
		s.startStop()
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		err = errors.Join(space.Explain(err), w.Close(), s.health.files.Close())
		if keep {
			return nil, errors.Join(err, claim.Close())
		}
		return nil, errors.Join(err, claim.Abandon(true))
	}
	s.run(&o)
	if adopt && o.Signing != nil {
		if err := s.adoptState(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// newStore connects the parts of a store.
func newStore(ctx context.Context, o *Options, claim *db.File, space *diskspace.Monitor) *Store {
	s := &Store{
		State: State{state: fold.NewSet(), clock: o.Clock, logger: o.Log}, path: o.Path, claim: claim, redact: o.Redact,
		health:    health{path: o.Path, logger: o.Log, alive: o.Alive, unreadable: o.Unreadable},
		onAltered: o.Altered, copying: make(chan struct{}, 1),
	}
	s.closing, s.startStop = context.WithCancel(context.WithoutCancel(ctx))
	s.commits = commits{
		queue: commitQueue{wait: o.Wait, relay: make(chan struct{}, 1)}, health: &s.health, space: space, metrics: o.Metrics,
		clock: o.Clock, logger: o.Log, altered: s.altered, closing: s.closing,
	}
	s.between = s.commits.exclusively
	s.cleaning.health, s.cleaning.between, s.cleaning.closing = &s.health, s.between, s.closing
	return s
}

// run starts the tasks in the background.
func (s *Store) run(o *Options) {
	if o.Space.On() {
		s.tasks.Go(func() {
			s.commits.space.Run(s.closing, func(was, now diskspace.Disk) error {
				if o.DiskChanged == nil {
					return nil
				}
				_, err := s.Commit(o.DiskChanged(was, now))
				return err
			})
		})
	}
	s.tasks.Go(s.commits.leadUnderLoad)
	if o.Signing != nil {
		s.tasks.Go(func() { s.signInTime(cmp.Or(o.Signing.Every, time.Minute)) })
	}
}

// open makes the database ready. Keep says after a failure that a key may have been made for the
// log by its name, which is in the file. Adopt says that the log knows nothing of the open rows
// yet.
func (s *Store) open(ctx context.Context, w *db.Writer, o Options) (adopt, keep bool, err error) {
	if err := db.DropLeftovers(o.Path); err != nil {
		return false, false, err
	}
	seals, accepted, err := s.settleSeals(ctx, w, o)
	if err != nil {
		return false, false, err
	}
	s.seals = seals
	if err := w.Overwrite(); err != nil {
		return false, false, err
	}
	if err := makeMovable(ctx, w, s.path, s.commits.space, s.logger); err != nil {
		return false, false, err
	}
	if err := w.Seal(s.seals); err != nil {
		return false, false, err
	}
	if s.db, err = db.NewReader(o.Path, readerCount, s.seals); err != nil {
		return false, false, err
	}
	s.cleaning.db = s.db
	keyed := false
	log, err := s.takeUp(ctx, w, o, func() { keyed = true })
	if err != nil {
		_, other := errors.AsType[otherLog](err)
		return false, keyed && !other, err
	}
	if adopt, err = foldrows.TakeUp(ctx, s.db, s.Log, s.state, s.clock(), accepted, s.logger); err != nil {
		return false, keyed, err
	}
	if adopt {
		if err := takeUpSignatures(ctx, s, w); err != nil {
			return false, keyed, err
		}
	}
	if err := s.commits.quotas.Begin(ctx, o.Quota, o.Clock, s.Waiting); err != nil {
		return false, keyed, err
	}
	if s.commits.writer, err = newWriter(s, w, log); err != nil {
		return false, keyed, err
	}
	// From here on a lock fails at once, since everybody would wait behind it.
	w.Conn.SetBusyTimeout(0)
	if err := s.cleaning.findRemoved(w); err != nil {
		return false, keyed, err
	}
	if s.health.files, err = fileintegrity.New(o.Path, db.JournalLimit); err != nil {
		return false, keyed, err
	}
	s.db.Unmoved, s.db.Failed = s.health.files.Check, s.health.readFailed
	s.db.Altered = func(found *AlteredError) error {
		s.altered(found)
		if o.UnreadableRow == nil {
			return found
		}
		return o.UnreadableRow(found)
	}
	return adopt, keyed, nil
}

// otherLog is an error of [Signing] for a key that exists and belongs to another log: none was made
// for this one.
type otherLog interface {
	error
	OtherLog()
}

// takeUp opens the log, and verifies it if the last process latched the store. It calls keyed
// before it asks for a key.
func (s *Store) takeUp(ctx context.Context, w *db.Writer, o Options, keyed func()) (*logstore.Writer, error) {
	log := logstore.Options{
		Log: o.Log, Closing: s.closing.Done(),
		Mark: func(seq uint64, hash audit.Hash) []byte { return rowseal.OfRecord(s.seals, seq, hash) },
		State: func(at time.Time) []audit.TableState {
			s.state.List(0)
			return s.state.State(at)
		},
		Restored: s.state.Restored, Newest: s.state.Newest,
	}
	if _, err := os.Stat(s.health.latchFile()); err == nil {
		s.logger.Warn("the store was closed for writing: verifying every record")
		if err := integrity(ctx, s.db); err != nil {
			return nil, err
		}
		log.All = true
	}
	var err error
	if o.Signing != nil {
		signing := *o.Signing
		s.newID = signing.NewID
		signing.Open = func(name, inForce string) (note.Signer, string, error) {
			keyed()
			return o.Signing.Open(name, inForce)
		}
		log.Signing = &signing
	}
	var writer *logstore.Writer
	if s.Log, writer, err = logstore.Open(ctx, s.db, w, log); err != nil {
		return nil, err
	}
	s.health.log = s.Log
	if err := s.health.matchMark(ctx); err != nil {
		return nil, err
	}
	if s.sealedFrom, err = rowseal.SealedFrom(ctx, s.db); err != nil {
		return nil, err
	}
	if err := s.checkTail(ctx); err != nil {
		return nil, err
	}
	if err := os.Remove(s.health.latchFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot clear the store's latch: %w", err)
	}
	return writer, nil
}

// Latched returns the error that closed the store for writing, or nil.
func (s *Store) Latched() error { return s.health.closed() }

// integrity has SQLite check its own structures.
func integrity(ctx context.Context, database *db.Reader) error {
	said, err := db.Rows(ctx, database, "the structure of the store", `PRAGMA quick_check`, nil, db.ScanText)
	if err == nil && !slices.Equal(said, []string{"ok"}) {
		err = fmt.Errorf("cannot start on a damaged store: %w", &audit.Fault{Problem: strings.Join(said, "; ")})
	}
	return err
}

// Tables reads the tables of packages that write [Rows].
func (s *Store) Tables() *db.Reader { return s.db }

// Close writes the waiting changes and closes the database. Later changes get [ErrClosed]. Close
// the followers of the log first.
func (s *Store) Close() error {
	s.alterations.Settle()
	s.touches.rush()
	last := &pending{Change: &Change{}, done: make(chan struct{})}
	lead, first := s.commits.queue.close(last)
	if !first {
		return nil
	}
	// Changes are committed in the order they came, so when the last one is done, nobody waits any
	// more. It waits without a limit: the connection must not be closed during a commit.
	s.commits.finish(last, lead)
	s.startStop()
	s.tasks.Wait()
	s.copying <- struct{}{}
	return errors.Join(last.err, s.db.Close(), s.commits.writer.Close(), s.health.files.Close(), s.claim.Close())
}
