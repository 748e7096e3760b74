package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// AppProcess is a process that is or was an app's. It is written as a part: one
// that is known by its name is written over, and those of another boot go.
type AppProcess struct {
	// Boot is the id of the system's boot that the process was seen in.
	Boot string
	// Name is what no other process of that boot is called: its pid and when it
	// began.
	Name string
	App  string
	At   time.Time
}

// EndedProcesses are the names of app processes that are no more, as a part.
type EndedProcesses []string

// countProcesses is after how many they are counted again.
const countProcesses = 64

// maxAppProcesses bounds the app processes that are remembered. Beyond it those
// that were seen first are forgotten.
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
	// They are counted now and then: numbers alone would let whoever starts many
	// processes, one after the other, push out one that runs.
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

// AppProcesses returns the remembered app processes of a boot, in the order in
// which they were first seen.
func (s *Store) AppProcesses(ctx context.Context, boot string) ([]AppProcess, error) {
	return db.Rows(ctx, s.db, "the apps' processes", `SELECT boot, name, app, at FROM app_processes WHERE boot = ? ORDER BY no`, []any{boot},
		func(stmt *sqlite.Stmt) (AppProcess, error) {
			return AppProcess{Boot: stmt.ColumnText(0), Name: stmt.ColumnText(1), App: stmt.ColumnText(2), At: db.TimeOf(stmt.ColumnInt64(3))}, nil
		})
}
