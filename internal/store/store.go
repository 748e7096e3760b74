// Package store is the one database: what the daemon knows and the evidence of
// what it decided, in the same file and the same transactions.
//
// All writing goes through [Store.Commit]. A commit returns only when its
// change and its audit records are on disk together (WAL with
// synchronous=FULL), or with an error when neither is. Many callers share one
// fsync; a caller alone does not wait for company. What a change allows to
// happen is run from [Change.Durable], after the fsync and in commit order.
//
// The database is the record. Whatever else holds records, such as the JSONL
// mirror, follows it through Head, WaitAfter and LinesAfter, so a copy that lags
// or is lost costs no evidence.
//
// After an input/output error nothing more is accepted until a restart has
// checked the file: an fsync that failed once says nothing about what is on
// the disk.
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
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/diskspace"
	"github.com/openclawos/ocipd/internal/fileintegrity"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/quota"
	"github.com/openclawos/ocipd/internal/walfile"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks the file as ours ("ocip" in ASCII), so that some other
// program's database is never taken for it.
const applicationID = 0x6f636970

// Errors of the store. A caller may act on each of them.
var (
	// ErrClosed means that the store is closing or closed.
	ErrClosed = errors.New("the store is closed")
	// ErrFull means that the disk is full. Nothing was written; the store goes
	// on when there is space.
	ErrFull = diskspace.ErrFull
	// ErrLow means that the disk is nearly full, so that nothing new is taken up;
	// what ends something is still written. Nothing was written of the change.
	ErrLow = diskspace.ErrLow
	// ErrLatched means that an input/output error, or the loss of a file (see
	// [fileintegrity.LostError]), closed the store for writing until a restart has verified it.
	ErrLatched = errors.New("the store is closed until a restart has verified it")
	// ErrMirrorLost means that [Options.Alive] reported a loss. Nothing was
	// written; the store goes on when it reports none.
	ErrMirrorLost = errors.New("a copy of the log that must be there is lost")
	// ErrInUse means that another daemon has the database open.
	ErrInUse = errors.New("cannot start: another daemon is using the database")
	// ErrRunning means that a daemon has the database open, which has to be asked.
	ErrRunning = errors.New("a daemon is using the database")
	// ErrQuota means that too much waits already of what an app sent. Nothing was
	// written of the change; it goes on when receivers have taken some of it.
	ErrQuota = quota.ErrExceeded
	// ErrBusy means that the change waited too long for its turn.
	ErrBusy = errors.New("the store did not take the change in time")
	// ErrNotFound means that there is no such row.
	ErrNotFound = errors.New("not found")
)

// Options say where the database is and what the store is given from outside.
type Options struct {
	// Path of the database file. Its directory is made with mode 0700.
	Path string
	// Clock returns the time for records.
	Clock func() time.Time
	Log   *zap.Logger
	// Wait bounds how long a change waits for its turn; zero is 10 s.
	Wait time.Duration
	// Space says what a filling disk leads to.
	Space diskspace.Options
	// DiskChanged, where set, returns what is to be recorded where the disk fills up
	// or is freed.
	DiskChanged func(was, now diskspace.Disk) *Change
	// Quota bounds what may wait of one app's messages.
	Quota quota.Limit
	// Alive, where set, reports that a copy of the log is lost without which
	// nothing may be released. It is called for every batch and must be fast.
	Alive func() error
	// Signing is with what checkpoints are signed; nil makes none.
	Signing *Signing
	// Redact, where set, takes out of a record what must not be written down,
	// before it is encoded. It is called by the callers of Commit, side by side.
	Redact func(*audit.Record)
	// Metrics, where set, counts what is made durable.
	Metrics *metrics.Set
	// Unreadable, where set, words the error of a query that failed in a store that
	// is closed for writing.
	Unreadable func(*UnreadableError) error
	// Claimed, where set, is called once the database is this store's alone and
	// before anything is read or written: what belongs to it may be touched from
	// then on. Made says that there was no file, or one without anything in it. An
	// error ends the opening.
	Claimed func(made bool) error
}

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	clock func() time.Time
	log   *zap.Logger
	path  string
	// claim keeps other stores off the file while it is open.
	claim *os.File
	// keyed is set when a key was asked for.
	keyed bool

	reader
	queue   commitQueue
	writer  *writer
	touches touches
	watch   *fileintegrity.Watch
	space   *diskspace.Monitor
	quotas  quota.Counts
	alive   func() error
	redact  func(*audit.Record)
	// unreadable is [Options.Unreadable].
	unreadable func(*UnreadableError) error
	metrics    *metrics.Set

	// end is where the log ends. It is replaced by the writer alone.
	end     atomic.Pointer[end]
	recent  recent
	signing *Signing
	// unsigned is what the start found behind the last checkpoint.
	unsigned Unsigned
	// digestsFrom is the first record from which on messages have digests.
	digestsFrom uint64
	news        news
	// signings lets the next checkpoint be waited for.
	signings news
	latched  atomic.Pointer[error]
	// removed says what was removed since it was last taken out of the files: see
	// [Store.Clean].
	removed atomic.Uint32
	// copying is full while a copy is being made: see [Store.Snapshot].
	copying chan struct{}

	closing   context.Context
	startStop context.CancelFunc
	tasks     sync.WaitGroup
}

// readerCount bounds the queries that run side by side.
const readerCount = 3

// Open opens the database, migrates it and checks the end of its chain. A store
// that was latched by an earlier process is verified from its first record to
// its last, which takes time in proportion.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the store's directory: %w", err)
	}
	if err := refuseForeign(o.Path); err != nil {
		return nil, err
	}
	claim, made, ours, err := claimFile(o.Path)
	if err != nil {
		return nil, err
	}
	// What was made here holds nothing. An empty file that was there is somebody's.
	abandon := func(err error, names ...string) error {
		if ours {
			for _, name := range names {
				err = errors.Join(err, removeIfThere(name))
			}
		}
		return errors.Join(err, claim.Close())
	}
	if !made {
		if made, err = blank(o.Path); err != nil {
			return nil, abandon(err)
		}
	}
	if o.Claimed != nil {
		if err := o.Claimed(made); err != nil {
			// SQLite's files are none of what was made.
			return nil, abandon(err, o.Path)
		}
	}
	files := []string{o.Path, o.Path + "-wal"}
	space := diskspace.New(o.Space, o.Path, o.Log)
	space.MakeRoom()
	if err := space.MayStart(); err != nil {
		return nil, abandon(err, o.Path)
	}
	conn, err := openWriter(o.Path)
	if err != nil {
		return nil, abandon(space.Explain(err), files...)
	}
	s := &Store{clock: o.Clock, log: o.Log, path: o.Path, claim: claim, space: space, signing: o.Signing, reader: newReader(readerCount), alive: o.Alive, redact: o.Redact, unreadable: o.Unreadable, metrics: o.Metrics}
	s.queue.wait, s.copying = o.Wait, make(chan struct{}, 1)
	s.closing, s.startStop = context.WithCancel(context.WithoutCancel(ctx))
	fail := func(err error) (*Store, error) {
		s.startStop()
		if _, other := errors.AsType[otherLog](err); s.keyed && !other {
			// A key may have been made for the log by its name, which is in there.
			files = nil
		}
		return nil, abandon(errors.Join(space.Explain(err), s.close(), conn.Close(), s.watch.Close()), files...)
	}
	if err := dropLeftovers(o.Path); err != nil {
		return fail(err)
	}
	discard, err := s.backUp(ctx, conn)
	if err != nil {
		return fail(err)
	}
	if err := migrate(conn); err != nil {
		if !isIO(err) {
			err = errors.Join(err, discard())
		}
		return fail(err)
	}
	if err := sqlitex.ExecuteTransient(conn, "PRAGMA secure_delete=ON", nil); err != nil {
		return fail(fmt.Errorf("cannot open the store: %w", err))
	}
	if err := s.makeMovable(ctx, conn); err != nil {
		return fail(err)
	}
	for range readerCount {
		reading, err := openAlone(o.Path, readerSettings)
		if err != nil {
			return fail(err)
		}
		s.add(reading)
	}
	last, err := s.takeUp(ctx, conn)
	if err != nil {
		return fail(err)
	}
	if err := s.quotas.Begin(ctx, o.Quota, o.Clock, s.Waiting); err != nil {
		return fail(err)
	}
	s.end.Store(&last)
	if s.writer, err = newWriter(s, conn); err != nil {
		return fail(err)
	}
	// From here on nothing waits for a lock with everybody behind it.
	conn.SetBusyTimeout(0)
	if err := s.findRemoved(conn); err != nil {
		return fail(err)
	}
	if s.watch, err = fileintegrity.New(o.Path, journalLimit); err != nil {
		return fail(err)
	}
	s.failed = s.readFailed
	if o.Space.On() {
		s.tasks.Go(func() {
			s.space.Run(s.closing, func(was, now diskspace.Disk) error {
				if o.DiskChanged == nil {
					return nil
				}
				_, err := s.Commit(o.DiskChanged(was, now))
				return err
			})
		})
	}
	s.tasks.Go(s.leadUnderLoad)
	if s.signing != nil {
		s.tasks.Go(func() { s.signInTime(cmp.Or(s.signing.Every, time.Minute)) })
	}
	return s, nil
}

// otherLog is an error of [Signing] that says that there is a key, and it is of
// another log: none was made for this one.
type otherLog interface {
	error
	OtherLog()
}

// readerSettings bound what a reading connection may do and take.
var readerSettings = []string{"cache_size=-2048", "query_only=ON"}

// claimFile takes the file for this store alone: two that write one log would fork
// it, whatever SQLite's own locks allow. Made says that there is no log in it, which
// is told by its length once it is claimed: whoever made it may have ended, or may
// have lost it to another, before that was looked at. Ours says that this call made
// the file. The lock is on the file, whatever name it was opened by, and ends with
// the process. It is apart from SQLite's locks, which closing the file drops:
// whoever claimed it closes it last.
func claimFile(path string) (f *os.File, made, ours bool, err error) {
	for {
		// SQLite makes files by the umask; evidence is for its owner alone.
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if ours = err == nil; errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		}
		if err != nil {
			return nil, false, false, fmt.Errorf("cannot open the store: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s; stop it, or give this daemon a database of its own (store.url)", ErrInUse, path)
		} else if err != nil {
			err = fmt.Errorf("cannot lock the store: %w", err)
		}
		var info, named fs.FileInfo
		if err == nil {
			info, err = f.Stat()
		}
		if err == nil {
			named, err = os.Stat(path)
		}
		switch {
		case err == nil && os.SameFile(info, named):
			return f, info.Size() == 0, ours, nil
		case err == nil, errors.Is(err, fs.ErrNotExist):
			// Another that had made the file has given it up meanwhile.
			if err := f.Close(); err != nil {
				return nil, false, false, fmt.Errorf("cannot open the store: %w", err)
			}
		default:
			return nil, false, false, errors.Join(err, f.Close())
		}
	}
}

// blank reports whether a database has nothing in it and no write-ahead log, as
// where that was lost before any of it was in the file. Where there is a log, a
// first start may have ended while it made the tables.
func blank(path string) (bool, error) {
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return false, nil
	}
	conn, _, err := openBeside(path)
	if err != nil {
		return false, err
	}
	version, err := identify(conn)
	return version == 0, errors.Join(err, conn.Close())
}

// journalLimit is the size that SQLite cuts the write-ahead log back to.
const journalLimit = 64 << 20

// openWriter opens the connection that writes.
func openWriter(path string) (*sqlite.Conn, error) {
	conn, err := openAlone(path, []string{
		// Stores are kept apart by claimFile: who is in the way is no daemon.
		"busy_timeout=1000",
		// Before anything is written: SQLite's own limit is 1000, and the next line's
		// write would bring a longer log into the file at every start.
		"wal_autocheckpoint=4000",
		// For a file that is made here. Another is written anew: see [Store.makeMovable].
		// SQLite writes the file's header in either case.
		fmt.Sprintf("auto_vacuum=%d", autoVacuum),
		"journal_mode=WAL",
		"synchronous=FULL",
		fmt.Sprintf("journal_size_limit=%d", journalLimit),
		"cache_size=-8192",
		"trusted_schema=OFF",
	})
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultBusy {
		err = fmt.Errorf("cannot open the store: another program has %s open; end it (fuser -v names it), and start again", path)
	}
	return conn, err
}

// openAlone opens a connection of a store. All of them use SQLite's unix-excl VFS, as
// [walfile] extends it:
// the first one locks the file for this process until the last is closed, so that
// no other process that heeds SQLite's locks reads or writes it, and the index of
// the write-ahead log is in this process's memory. So there is no -shm file that
// somebody could take away, and no transaction makes a system call for a lock. Each
// connection opens the file for writing, since one for reading alone would lock by
// itself and weaken the lock.
//
// POSIX locks belong to the process and are lost when it closes any descriptor of the
// file: nothing else in the process may open it.
func openAlone(path string, settings []string) (*sqlite.Conn, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	vfs, err := walfile.VFS()
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	return openConn("file:"+uriEscaper.Replace(whole)+"?vfs="+vfs, sqlite.OpenReadWrite|sqlite.OpenURI, settings)
}

func openConn(name string, flags sqlite.OpenFlags, settings []string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(name, flags)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	for _, setting := range append([]string{"busy_timeout=5000", "temp_store=MEMORY"}, settings...) {
		err := sqlitex.ExecuteTransient(conn, "PRAGMA "+setting, nil)
		if sqlite.ErrCode(err) == sqlite.ResultNotADB {
			return nil, errors.Join(errForeign, conn.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot open the store: PRAGMA %s: %w", setting, err), conn.Close())
		}
	}
	return conn, nil
}

// migrate brings the schema to the newest version, each step in its own
// transaction. A database of a newer daemon, or of another program, is
// refused and left as it is.
func migrate(conn *sqlite.Conn) error {
	steps, err := migrationSteps()
	if err != nil {
		return err
	}
	version, err := identify(conn)
	if err != nil {
		return err
	}
	for i := version; i < len(steps); i++ {
		script, err := migrations.ReadFile(steps[i])
		if err != nil {
			return fmt.Errorf("cannot read migration %s: %w", steps[i], err)
		}
		text := fmt.Sprintf("%s\nPRAGMA application_id=%d;\nPRAGMA user_version=%d;", script, applicationID, i+1)
		if err := sqlitex.ExecuteScript(conn, text, nil); err != nil {
			return fmt.Errorf("cannot apply migration %s: %w", steps[i], err)
		}
	}
	return nil
}

func migrationSteps() ([]string, error) {
	steps, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("cannot list migrations: %w", err)
	}
	return steps, nil
}

// tailCheck is how many records at the chain's end are checked at every start.
const tailCheck = 256

// takeUp finds the end of the log and checks the records before it: a few of
// them, or all where the last process left the store latched.
func (s *Store) takeUp(ctx context.Context, conn *sqlite.Conn) (end, error) {
	last, err := s.LastSeq(ctx)
	if err != nil {
		return end{}, err
	}
	tombstone, err := s.Tombstone(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return end{}, err
	}
	log := end{retired: tombstone.Head.Seq}
	if err := s.noStrayRecords(ctx); err != nil {
		return end{}, fmt.Errorf("cannot start on a damaged audit log: %w", err)
	}
	damaged := func(err error) (end, error) {
		return end{}, fmt.Errorf("cannot start on a damaged audit log: %w", err)
	}
	if _, err := os.Stat(s.latchFile()); err == nil {
		s.log.Warn("the store was closed for writing: verifying every record", zap.Uint64("records", last))
		if err := s.integrity(ctx); err != nil {
			return end{}, err
		}
		report, err := s.Verify(ctx, audit.Proof{})
		if err != nil {
			return damaged(err)
		}
		log.head = report.Head
	} else if log.head, err = s.verifyTail(ctx, tombstone, last); err != nil {
		return damaged(err)
	}
	if log.head.Seq != last {
		return damaged(fmt.Errorf("it ends at record %d, want %d", log.head.Seq, last))
	}
	if log.newest, err = s.newestCheckpoint(ctx); err != nil {
		return end{}, err
	}
	if log.newest.Seq > last {
		return damaged(fmt.Errorf("it ends at record %d, and record %d holds its newest checkpoint; put the right database back, such as a backup", last, log.newest.Seq))
	}
	if log.tree, err = s.growTree(ctx, conn, last, tombstone); err != nil {
		return end{}, err
	}
	if s.digestsFrom, err = s.readDigestsFrom(ctx); err != nil {
		return end{}, err
	}
	log.stated = log.newest.Seq
	if s.signing != nil {
		var public string
		if log.signer, public, err = s.openSigner(ctx, conn); err != nil {
			return end{}, err
		}
		key, err := note.NewVerifier(public)
		if err != nil {
			return end{}, fmt.Errorf("cannot use the public key of the log: %w", err)
		}
		if err := s.findUnsigned(ctx, &log, key); err != nil {
			return end{}, err
		}
	}
	if err := s.matchMark(ctx, last); err != nil {
		return end{}, err
	}
	if err := os.Remove(s.latchFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return end{}, fmt.Errorf("cannot clear the store's latch: %w", err)
	}
	return log, nil
}

// verifyTail checks the last records.
func (r *reader) verifyTail(ctx context.Context, tombstone audit.Tombstone, last uint64) (audit.Head, error) {
	head := tombstone.Head
	if last > head.Seq+tailCheck {
		from := last - tailCheck
		line, err := r.Line(ctx, from)
		if err != nil {
			return head, fmt.Errorf("record %d: %w", from, err)
		}
		if head, err = audit.HeadOf(line); err != nil {
			return head, fmt.Errorf("record %d: %w", from, err)
		}
	}
	err := r.EachStored(ctx, head.Seq, func(_ uint64, line []byte) (err error) {
		head, err = head.Check(line)
		return err
	})
	return head, err
}

// Verify reads the whole log and holds it against what is known of it; the
// tombstone is the log's own. Where it finds a [*audit.Fault] the report says how
// far the log is good.
func (r *reader) Verify(ctx context.Context, p audit.Proof) (audit.Report, error) {
	tombstone, err := r.Tombstone(ctx)
	switch {
	case err == nil:
		p.Tombstone = &tombstone
	case !errors.Is(err, ErrNotFound):
		return audit.Report{}, err
	}
	v, err := audit.NewVerifier(p)
	if err != nil {
		return audit.Report{Retired: tombstone.Head.Seq}, err
	}
	if err := r.EachStored(ctx, tombstone.Head.Seq, func(_ uint64, line []byte) error { return v.Add(line) }); err != nil {
		return audit.Report{Head: v.Head(), Retired: tombstone.Head.Seq}, err
	}
	return v.Finish()
}

// latchFile marks a store that must be verified before it is used again.
func (s *Store) latchFile() string { return s.path + ".latched" }

// latch closes the store for writing.
func (s *Store) latch(cause error) {
	if !s.latched.CompareAndSwap(nil, &cause) {
		return
	}
	s.log.Error("the store is closed for writing", zap.Error(cause))
	if err := s.mark(cause); err != nil {
		s.log.Error("cannot mark the store as latched", zap.Error(err))
	}
}

// Latched returns the error that closed the store for writing, or nil.
func (s *Store) Latched() error {
	if cause := s.latched.Load(); cause != nil {
		return *cause
	}
	return nil
}

// integrity lets SQLite check its own structures.
func (s *Store) integrity(ctx context.Context) error {
	said, err := rows(ctx, &s.reader, "the structure of the store", `PRAGMA quick_check`, nil, scanText)
	if err == nil && !slices.Equal(said, []string{"ok"}) {
		err = fmt.Errorf("cannot start on a damaged store: %s", strings.Join(said, "; "))
	}
	return err
}

// Head returns the last durable record's place in the chain.
func (s *Store) Head() audit.Head { return s.end.Load().head }

// Close writes what is still waiting and closes the database. Changes that come
// later get [ErrClosed]. Whoever follows the log is closed before.
func (s *Store) Close() error {
	s.touches.rush()
	last := &pending{Change: &Change{}, done: make(chan struct{})}
	lead, first := s.queue.close(last)
	if !first {
		return nil
	}
	// Changes are committed in the order they came, so when the last one is
	// done nobody waits any more. It waits without a limit: while somebody
	// still commits, the connection must not be closed.
	s.finish(last, lead)
	s.startStop()
	s.tasks.Wait()
	s.copying <- struct{}{}
	return errors.Join(last.err, s.close(), s.writer.close(), s.watch.Close(), s.claim.Close())
}
