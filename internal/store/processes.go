package store

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
)

// RestoringSession is the [AppProcess.App] of the processes from which somebody restored the state. No app's
// id has a blank.
const RestoringSession = "the restoring session"

// AppProcess is a process that is or was an app's. As a part it replaces the one of the same name. The
// log states each row: a process whose row somebody deletes could operate the daemon.
type AppProcess struct {
	// Boot is the id of the system's boot in which the process was seen.
	Boot string
	// Name is unique within the boot: the process's pid and start time.
	Name string
	App  string
	At   time.Time
}

// EndedProcess names an app's process that has ended, or is of an earlier boot.
type EndedProcess struct{ Boot, Name string }

// EndedProcesses are forgotten, as a part. The record of the change states each.
type EndedProcesses []EndedProcess

func (p AppProcess) prepare() (int, error) { return bounded("an app's process", p.Boot, p.Name, p.App) }

func (p AppProcess) fold(f *folding) {
	f.row(fold.AppProcesses, []string{p.Boot, p.Name}).now = fold.Row{fold.Int(p.At.UnixMilli())}
}

func (p AppProcess) put(tx *transaction) error {
	const what = "an app's process"
	no, err := tx.Scalar(what, `SELECT coalesce((SELECT no FROM app_processes WHERE name = ? AND boot = ?), (SELECT max(no) + 1 FROM main.app_processes), 1)`, db.Text(p.Name), db.Text(p.Boot))
	if err != nil {
		return err
	}
	return tx.Put(what, "app_processes", db.Int(no), db.Text(p.Boot), db.Text(p.Name), db.Text(p.App), db.Int(p.At.UnixMilli()))
}

func (EndedProcesses) prepare() (int, error) { return 0, nil }

func (p EndedProcesses) fold(f *folding) {
	for _, one := range p {
		f.row(fold.AppProcesses, []string{one.Boot, one.Name}).now = nil
	}
}

func (p EndedProcesses) put(tx *transaction) error {
	for _, one := range p {
		if err := tx.Exec("that a process ended", `DELETE FROM main.app_processes WHERE name = ? AND boot = ?`, db.Text(one.Name), db.Text(one.Boot)); err != nil {
			return err
		}
	}
	return nil
}

// AppProcesses returns the stored app processes of all boots, in the order in which they were first
// seen.
func (s *State) AppProcesses(ctx context.Context) ([]AppProcess, error) {
	return appProcesses(ctx, s.db)
}

// AppProcesses is [Store.AppProcesses] of a database without a daemon.
func (r *Reader) AppProcesses(ctx context.Context) ([]AppProcess, error) {
	return appProcesses(ctx, r.db)
}

func appProcesses(ctx context.Context, from *db.Reader) ([]AppProcess, error) {
	return db.Rows(ctx, from, "the apps' processes", `SELECT boot, name, app, at FROM app_processes ORDER BY no`, nil,
		func(stmt *sqlite.Stmt) (AppProcess, error) {
			return AppProcess{Boot: stmt.ColumnText(0), Name: stmt.ColumnText(1), App: stmt.ColumnText(2), At: db.TimeOf(stmt.ColumnInt64(3))}, nil
		})
}
