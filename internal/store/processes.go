package store

import (
	"context"
	"time"

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

func (p AppProcess) put(w *writer, _ *pending) error {
	const what = "an app's process"
	if w.boot != p.Boot {
		if err := w.exec(what, `DELETE FROM app_processes WHERE boot <> ?`, text(p.Boot)); err != nil {
			return err
		}
		w.boot = p.Boot
	}
	err := w.exec(what, `INSERT INTO app_processes (boot, name, app, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (name, boot) DO UPDATE SET app = excluded.app, at = excluded.at`, text(p.Boot), text(p.Name), text(p.App), number(p.At.UnixMilli()))
	// They are counted now and then: numbers alone would let whoever starts many
	// processes, one after the other, push out one that runs.
	if w.noted++; err != nil || w.noted%countProcesses != 0 {
		return err
	}
	return w.exec(what, `DELETE FROM app_processes WHERE no <= (SELECT no FROM app_processes ORDER BY no DESC LIMIT 1 OFFSET ?)`, number(maxAppProcesses))
}

func (EndedProcesses) prepare() (int, error) { return 0, nil }

func (p EndedProcesses) put(w *writer, _ *pending) error {
	for _, name := range p {
		if err := w.exec("that a process ended", `DELETE FROM app_processes WHERE name = ?`, text(name)); err != nil {
			return err
		}
	}
	return nil
}

// AppProcesses returns the remembered app processes of a boot, in the order in
// which they were first seen.
func (s *Store) AppProcesses(ctx context.Context, boot string) ([]AppProcess, error) {
	return rows(ctx, &s.reader, "the apps' processes", `SELECT boot, name, app, at FROM app_processes WHERE boot = ? ORDER BY no`, []any{boot},
		func(stmt *sqlite.Stmt) (AppProcess, error) {
			return AppProcess{Boot: stmt.ColumnText(0), Name: stmt.ColumnText(1), App: stmt.ColumnText(2), At: fromMilli(stmt.ColumnInt64(3))}, nil
		})
}
