package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/evidence/backup"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task/taskservice"
	"go.uber.org/zap"
)

// restored returns the function to call after the record of the first start on a restored state.
// It records the restoration, pauses all sending until a person resumes, takes back everything that
// lets something go, and removes the mark of the restoration.
func (d *Daemon) restored(ctx context.Context) (settle func() error, err error) {
	mark, err := backup.Marked(d.places.database)
	if err != nil {
		return nil, err
	}
	copied, err := store.IsCopy(ctx, d.store)
	if err != nil {
		return nil, err
	}
	switch {
	case mark == nil && !copied:
		return func() error { return nil }, nil
	case mark == nil:
		// Somebody put a backup into place without `ocipd restore`.
		head := d.store.Head().Seq
		mark = &backup.Mark{At: d.started, Records: head, Witnessed: head}
	}
	what := "a copy of the state was restored, and nothing is known of what was decided since"
	if mark.Former != nil {
		what = "a new log begins after a former one, of which nothing waits or counts any more"
	}
	d.log.Warn(what+": sending is paused until a person resumes, and approvals, grants and tokens from before are taken back",
		zap.Uint64("records", mark.Records), zap.Uint64("witnessed", mark.Witnessed), zap.Time("at", mark.At))
	return func() error {
		details := map[string]any{"records": int(mark.Records), "witnessed": int(mark.Witnessed), "at": mark.At.Format("2006-01-02T15:04:05Z")}
		if mark.Former != nil {
			details["former"] = mark.Former
		}
		var takes []func(context.Context) error
		for _, t := range fold.Tables() {
			if take := takesBack(d, t); take != nil {
				takes, details[t.Name()] = append(takes, take), len(store.OpenRows(d.store, t))
			}
		}
		own, err := peer.NameOf(os.Getpid())
		if err != nil {
			return fmt.Errorf("cannot tell which process this is: %w", err)
		}
		details["appsKnown"] = mark.Known
		if err := kernel.HaltRestored(d.kernel, &audit.Record{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "state_restored", Details: details}, mark.Processes, mark.Known, own); err != nil {
			return fmt.Errorf("cannot record a restoration: %w", err)
		}
		for _, take := range takes {
			if err := take(ctx); err != nil {
				return fmt.Errorf("cannot take back what was approved before a restoration: %w", err)
			}
		}
		if copied {
			if _, err := d.store.Commit(&store.Change{Parts: []store.Part{store.NoCopy{}}, Drains: true}); err != nil {
				return fmt.Errorf("cannot record that a restoration is settled: %w", err)
			}
		}
		if err := os.Remove(backup.MarkPath(d.places.database)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot take away the mark of a restoration: %w", err)
		}
		return nil
	}, nil
}

// takesBack returns what a restoration does with the open rows of a table by which something goes
// without a further decision, or for which people may have signed one: they may have taken it back,
// or it was used, after the copy was made. It is nil for other rows.
func takesBack(d *Daemon, t fold.Table) func(context.Context) error {
	switch t {
	case fold.Exchanges, fold.Escalations, fold.Paused, fold.UsedSignatures, fold.Owed, fold.AppProcesses:
		return nil
	case fold.Lanes:
		// The other host refuses a number that ran back, until this one joins again with new keys.
		return nil
	case fold.Approvals:
		return func(ctx context.Context) error { return kernel.RestoredRequests(ctx, d.kernel) }
	case fold.CommitmentGrants:
		return func(ctx context.Context) error { return kernel.RestoredGrants(ctx, d.kernel) }
	case fold.Releases:
		return func(ctx context.Context) error { return kernel.RestoredReleases(ctx, d.kernel) }
	case fold.Tasks:
		return d.tasks.Load().Restored
	case fold.TaskGrants:
		return func(ctx context.Context) error {
			return taskservice.RestoredGrants(ctx, d.tasks.Load(), store.OpenRows(d.store, t))
		}
	}
	panic("daemon: nothing says what a restoration does with the rows of " + t.Name())
}
