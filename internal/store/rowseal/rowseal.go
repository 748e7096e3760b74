// Package rowseal decides which rows of the database are sealed, with which key, and when unsealed
// rows are accepted: once, when an older database is migrated, and when the operator says so.
// internal/store/db makes and checks the seals.
package rowseal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// The schema versions that introduced the seals of rows, and the seals that cover the names of
// columns and the seals of records.
const (
	rowsSealed    = 19
	recordsSealed = 20
	// lanesMade is the version that introduced the tables of lanes.
	lanesMade = 24
	// signaturesMade is the version that introduced the table of used signatures.
	signaturesMade = 25
)

// Tables returns the tables with sealed rows: all except those of the log. Each of its records has
// a seal too, see [Record].
func Tables() []db.SealedTable {
	return append(tablesBefore(signaturesMade), db.SealedTable{Name: "used_signatures"})
}

// tablesBefore returns the sealed tables of the schema before a version.
func tablesBefore(version int) []db.SealedTable {
	if version <= recordsSealed {
		return earlierTables()
	}
	tables := append(earlierTables(), db.SealedTable{Name: "outbox"}, db.SealedTable{Name: "queues"}, db.SealedTable{Name: "releases"})
	if version > lanesMade {
		tables = append(tables, db.SealedTable{Name: "lanes"}, db.SealedTable{Name: "lane_sent"}, db.SealedTable{Name: "lane_taken"})
	}
	return tables
}

// earlierTables returns the tables whose rows were sealed before records were.
func earlierTables() []db.SealedTable {
	return []db.SealedTable{
		{Name: "app_processes"},
		{Name: "approvals"},
		{Name: "brought"},
		{Name: "commitment_grants"},
		{Name: "current_exchanges"},
		{Name: "effects"},
		{Name: "escalations"},
		{Name: "exchanges"},
		{Name: "grants"},
		{Name: "heard"},
		{Name: "meta"},
		{Name: "owed"},
		{Name: "paused"},
		{Name: "request_keys"},
		{Name: "runs"},
		{Name: "seen_agents"},
		{Name: "sessions", Counters: []string{"last_active_at", "message_count"}},
		{Name: "speakers"},
		{Name: "spent", Counters: []string{"count"}},
		{Name: "task_deps"},
		{Name: "task_parts"},
		{Name: "tasks", Counters: []string{"blocked"}},
	}
}

// Key is the key that seals rows. It is kept outside the database.
type Key struct {
	// Key has 32 bytes.
	Key []byte
	// Sealed says that rows of a database were sealed with it.
	Sealed bool
	// Accept says that the operator accepts the rows as they are, regardless of their seals.
	Accept bool
	// HowToAccept is the operator's command for that.
	HowToAccept string
	// Done, if set, remembers that rows are sealed with the key.
	Done func() error
}

// seals returns the seals for a database at a version of the schema.
func (k *Key) seals(conn *sqlite.Conn, version int) (*db.Seals, error) {
	if version < recordsSealed {
		return db.NewSeals(conn, k.Key, earlierTables(), true)
	}
	tables := Tables()
	if version < signaturesMade {
		tables = tablesBefore(version + 1)
	}
	return db.NewSeals(conn, k.Key, tables, false)
}

// KnownToAll returns a key for tests.
func KnownToAll() (*Key, error) { return &Key{Key: make([]byte, sha256.Size)}, nil }

// id identifies the key, and reveals nothing else about it.
func (k *Key) id() string {
	sum := sha256.Sum256(append([]byte("ocipd row key\x00"), k.Key...))
	return hex.EncodeToString(sum[:8])
}

// keyName is the named value for the id of the key that the rows are sealed with.
const keyName = "row-key"

// Unrecorded is the named value for the reason why rows were accepted, until that is on record:
// [First] or [Accepted].
const Unrecorded = "rows-sealed"

const (
	// First means that the database is older than the seals of rows.
	First = "first"
	// Accepted means that the operator accepts the rows.
	Accepted = "accepted"
)

// Settle makes sure that all rows of a database are sealed with the key, and returns the seals. If
// the schema is to be migrated or rows are to be sealed, it calls migrate, which calls seal in the
// transaction of the migration. Settle returns an error if rows may have been changed since the
// daemon wrote them.
func (k *Key) Settle(ctx context.Context, w *db.Writer, version, newest int, migrate func(seal func() error) error) (*db.Seals, error) {
	why, err := k.mayTake(ctx, w, version, newest)
	if err != nil {
		return nil, err
	}
	if version != newest || why != "" {
		if err := migrate(func() error { return k.sealAll(w, why, version, newest) }); err != nil {
			return nil, err
		}
	}
	if k.Done != nil && (!k.Sealed || k.Accept) {
		if err := k.Done(); err != nil {
			return nil, err
		}
	}
	return k.seals(w.Conn, newest)
}

// mayTake returns an error if the rows may have been changed since the daemon wrote them, and
// otherwise the reason to seal them as they are: "" if they are sealed already.
func (k *Key) mayTake(ctx context.Context, w *db.Writer, version, newest int) (why string, err error) {
	if k.Accept {
		return Accepted, nil
	}
	migrated := version == newest
	id, records, err := sealedWith(w.Conn)
	switch {
	case err != nil:
		return "", err
	case id == "" && records && (k.Sealed || migrated):
		return "", fmt.Errorf("cannot use the rows of the store: they have no seals, and once they had: the database is of before that, or somebody has changed it; "+
			"put back a backup, or go on with the rows as they are: %s", k.HowToAccept)
	case id == "":
		return First, nil
	case id != k.id():
		return "", fmt.Errorf("cannot use the rows of the store: they were sealed with another key than the one that is there; "+
			"put the key back from a backup, or go on with the rows as they are: %s", k.HowToAccept)
	case migrated:
		return "", nil
	}
	// Rows must fit their seals before they are sealed again.
	seals, err := k.seals(w.Conn, version)
	if err != nil {
		return "", err
	}
	found, err := seals.Check(ctx, w.Conn, 1)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("cannot migrate the store: %w", found[0])
	}
	return "", err
}

// sealedWith returns the id of the key that the rows of a database are sealed with, "" if they are
// not, and whether there is any record.
func sealedWith(conn *sqlite.Conn) (id string, records bool, err error) {
	has, err := db.QueryInt(conn, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'`)
	if err != nil || has == 0 {
		return "", false, err
	}
	err = sqlitex.ExecuteTransient(conn, `SELECT coalesce(CAST((SELECT value FROM main.meta WHERE key = '`+keyName+`') AS TEXT), ''), EXISTS (SELECT 1 FROM records)`,
		&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			id, records = stmt.ColumnText(0), stmt.ColumnBool(1)
			return nil
		}})
	if err != nil {
		return "", false, fmt.Errorf("cannot read the store: %w", err)
	}
	return id, records, nil
}

// sealAll seals all rows of a database that was at an older version. It does not seal records:
// those without a seal are marked as older.
func (k *Key) sealAll(w *db.Writer, why string, version, newest int) error {
	const put = `INSERT INTO main.meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`
	err := w.Exec("which key rows are sealed with", put, db.Text(keyName), db.Bytes([]byte(k.id())))
	if err == nil && why != "" && version > 0 {
		err = w.Exec("that rows are sealed", put, db.Text(Unrecorded), db.Bytes([]byte(why)))
	}
	if err == nil && (why != "" || version < recordsSealed) {
		err = w.Exec("which records have seals", `INSERT INTO main.meta (key, value) SELECT ?, CAST(CAST(max(seq) + 1 AS TEXT) AS BLOB) FROM records HAVING count(*) > 0
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, db.Text(sealedFromName))
	}
	if err != nil {
		return err
	}
	seals, err := k.seals(w.Conn, newest)
	if err != nil {
		return err
	}
	return seals.SealAll(w)
}

// sealedFromName is the named value for the number of the first record that has a seal, absent if
// all have one.
const sealedFromName = "records-sealed-from"

// SealedFrom returns the number of the first record that must have a seal.
func SealedFrom(ctx context.Context, r *db.Reader) (uint64, error) {
	text, err := r.Named(ctx, sealedFromName)
	if errors.Is(err, db.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	seq, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read which records have seals: %w", err)
	}
	return seq, nil
}

// ErrUnsealed means that a record is older than the seals of records.
var ErrUnsealed = errors.New("the record is of before records had seals")

// markOfRecord distinguishes the seals of records from others.
const markOfRecord = "record"

// OfRecord returns the seal of a record, from its number and the hash of its line.
func OfRecord(seals *db.Seals, seq uint64, hash audit.Hash) []byte {
	return seals.Mark(markOfRecord, seq, hash[:])
}

// Record reads a record that a decision depends on, with its line and its seal from the database.
// Sealed is [SealedFrom]. It returns [ErrUnsealed], or a [*db.AlteredError] if the daemon has not
// written the line under that number.
func Record(seals *db.Seals, sealed, seq uint64, line, seal []byte) (audit.Entry, error) {
	if !Wrote(seals, seq, line, seal) {
		if seq < sealed {
			return audit.Entry{}, ErrUnsealed
		}
		return audit.Entry{}, db.NewAltered("records", strconv.FormatUint(seq, 10))
	}
	return audit.Parse(line)
}

// Wrote reports whether a line and a number are those of a record that the daemon has sealed.
func Wrote(seals *db.Seals, seq uint64, line, seal []byte) bool {
	head, _, err := audit.Sealed(seq, line)
	return err == nil && seals.Marked(markOfRecord, seq, head.Hash[:], seal)
}

// maxAltered bounds the altered rows that one process records.
const maxAltered = 1000

// Altered are the altered rows that were found since the database was opened. The zero value has
// none.
type Altered struct {
	mu    sync.Mutex
	known map[[2]string]bool
	// reports are the reports in progress.
	reports sync.WaitGroup
	closed  bool
}

// Report reports a row in the background, unless it was reported before.
func (a *Altered) Report(found *db.AlteredError, report func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	row := [2]string{found.Table, found.Row}
	if a.closed || a.known[row] || len(a.known) >= maxAltered {
		return
	}
	if a.known == nil {
		a.known = make(map[[2]string]bool)
	}
	a.known[row] = true
	// The reader may be in a commit, so do not wait.
	a.reports.Go(report)
}

// Settle waits until all reports are made, and accepts no more.
func (a *Altered) Settle() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.reports.Wait()
}

// Check reads all sealed rows of a database, and returns the altered ones, up to a limit that
// nobody reads to the end.
func Check(ctx context.Context, seals *db.Seals, reader *db.Reader) (found []*db.AlteredError, err error) {
	err = reader.Scan(ctx, func(conn *sqlite.Conn) (err error) {
		found, err = seals.Check(ctx, conn, maxAltered)
		return err
	})
	return found, err
}

// ErrOther means that the rows of a database are sealed with another key or with none.
var ErrOther = errors.New("its rows are not sealed with this key")

// Inspect is [Check] for a database that nobody uses, at a version of the schema. It returns
// [ErrOther] if the rows are not sealed with the key. If records is set, it checks each of them
// too.
func Inspect(ctx context.Context, reader *db.Reader, key []byte, version int, records bool) (found []*db.AlteredError, err error) {
	sealed := uint64(math.MaxInt64)
	if records && version >= recordsSealed {
		if sealed, err = SealedFrom(ctx, reader); err != nil {
			return nil, err
		}
	}
	err = reader.Scan(ctx, func(conn *sqlite.Conn) error {
		id, _, err := sealedWith(conn)
		if err != nil {
			return err
		}
		if id != (&Key{Key: key}).id() {
			return ErrOther
		}
		seals, err := (&Key{Key: key}).seals(conn, version)
		if err != nil {
			return err
		}
		if found, err = seals.Check(ctx, conn, maxAltered); err != nil || sealed == math.MaxInt64 {
			return err
		}
		altered, err := recordsNotOf(conn, seals, max(sealed, 1), maxAltered)
		found = append(found, altered...)
		return err
	})
	return found, err
}

// Tail returns an error for the first record from a number on that the daemon has not written.
func Tail(ctx context.Context, reader *db.Reader, seals *db.Seals, from uint64) error {
	return reader.Scan(ctx, func(conn *sqlite.Conn) error {
		altered, err := recordsNotOf(conn, seals, from, 1)
		if err == nil && len(altered) > 0 {
			err = altered[0]
		}
		return err
	})
}

// recordsNotOf returns the records from a number on that the daemon has not written, up to a limit.
func recordsNotOf(conn *sqlite.Conn, seals *db.Seals, from uint64, limit int) (altered []*db.AlteredError, err error) {
	enough := errors.New("enough")
	err = sqlitex.Execute(conn, `SELECT seq, line, seal FROM records WHERE seq >= ? ORDER BY seq`, &sqlitex.ExecOptions{Args: []any{int64(from)}, ResultFunc: func(stmt *sqlite.Stmt) error {
		if seq := uint64(stmt.ColumnInt64(0)); !Wrote(seals, seq, db.ColumnBytes(stmt, 1), db.ColumnBytes(stmt, 2)) {
			if altered = append(altered, db.NewAltered("records", strconv.FormatUint(seq, 10))); len(altered) == limit {
				return enough
			}
		}
		return nil
	}})
	if err != nil && !errors.Is(err, enough) {
		return nil, fmt.Errorf("cannot check the records of the store: %w", err)
	}
	return altered, nil
}
