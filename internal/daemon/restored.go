package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/backup"
	"github.com/openclawos/ocipd/internal/kernel"
	"go.uber.org/zap"
)

// restored makes the record of the first start on a restored state. The caller then calls
// settle, which withdraws approvals of messages, tool calls and effects that may have been
// used since, and removes the mark of the restoration.
func (d *Daemon) restored(ctx context.Context) (records []*audit.Record, settle func() error, err error) {
	mark, err := backup.Marked(d.database)
	if err != nil || mark == nil {
		return nil, func() error { return nil }, err
	}
	d.log.Warn("a copy of the state was restored: what was decided since is not in it, and approvals of messages, tool calls and effects that it shows as not used are taken back",
		zap.Uint64("records", mark.Records), zap.Uint64("witnessed", mark.Witnessed), zap.Time("at", mark.At))
	records = []*audit.Record{{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "state_restored", Details: map[string]any{
		"records": int(mark.Records), "witnessed": int(mark.Witnessed), "at": mark.At.Format("2006-01-02T15:04:05Z"),
	}}}
	return records, func() error {
		if err := errors.Join(kernel.Restored(ctx, d.kernel), d.tasks.Load().Restored(ctx)); err != nil {
			return fmt.Errorf("cannot take back what was approved before a restoration: %w", err)
		}
		if err := os.Remove(backup.MarkPath(d.database)); err != nil {
			return fmt.Errorf("cannot take away the mark of a restoration: %w", err)
		}
		return nil
	}, nil
}
