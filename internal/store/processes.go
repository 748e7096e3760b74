package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// AppProcess is a process that is or was an app's. As a part it replaces the one of the same name,
// and deletes those of another boot.
type AppProcess struct {
	// Boot is the id of the system's boot in which the process was seen.
	Boot string
	// Name is unique within the boot: the process's pid and start time.
	Name string
	App  string
	At   time.Time
}

// EndedProcesses are the names of app processes that have ended, as a part.
type EndedProcesses []string

// countProcesses is the number of new ones after which they are counted again.
const countProcesses = 64

// maxAppProcesses bounds the stored app processes. Beyond it the ones first seen are deleted.
const maxAppProcesses = 65536

func (p AppProcess) prepare() (int, error) { return bounded("an app's process", p.Boot, p.Name, p.App) }

func (p AppProcess) put(tx *transaction) error {
	const what = "an app's process"
	if tx.boot != p.Boot {
		if err := tx.Exec(what, `DELETE FROM main.app_processes WHERE boot <> ?`, db.Text(p.Boot)); err != nil {
			return err
		}
		tx.boot = p.Boot
	}
	no, err := tx.Scalar(what, `SELECT coalesce((SELECT no FROM app_processes WHERE name = ? AND boot = ?), (SELECT max(no) + 1 FROM main.app_processes), 1)`, db.Text(p.Name), db.Text(p.Boot))
	if err == nil {
		err = tx.Put(what, "app_processes", db.Int(no), db.Text(p.Boot), db.Text(p.Name), db.Text(p.App), db.Int(p.At.UnixMilli()))
	}
	// They are counted now and then: with numbers alone, many processes started one after the other
	// would push out a running one.
	if tx.noted++; err != nil || tx.noted%countProcesses != 0 {
		return err
	}
	return tx.Exec(what, `DELETE FROM main.app_processes WHERE no <= (SELECT no FROM app_processes ORDER BY no DESC LIMIT 1 OFFSET ?)`, db.Int(maxAppProcesses))
}

func (EndedProcesses) prepare() (int, error) { return 0, nil }

func (p EndedProcesses) put(tx *transaction) error {
	for _, name := range p {
		if err := tx.Exec("that a process ended", `DELETE FROM main.app_processes WHERE name = ?`, db.Text(name)); err != nil {
			return err
		}
	}
	return nil
}

// AppProcesses returns the stored app processes of a boot, in the order in which they were first
// seen.
func (s *Store) AppProcesses(ctx context.Context, boot string) ([]AppProcess, error) {
	return db.Rows(ctx, s.db, "the apps' processes", `SELECT boot, name, app, at FROM app_processes WHERE boot = ? ORDER BY no`, []any{boot},
		func(stmt *sqlite.Stmt) (AppProcess, error) {
			return AppProcess{Boot: stmt.ColumnText(0), Name: stmt.ColumnText(1), App: stmt.ColumnText(2), At: db.TimeOf(stmt.ColumnInt64(3))}, nil
		})
}
