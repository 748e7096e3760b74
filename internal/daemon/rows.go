package daemon

import (
	"context"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// alteredRow is the record of a row that something other than the daemon changed.
func alteredRow(id, table, row string) *store.Change {
	return &store.Change{Alarm: true, Records: []*audit.Record{{
		ID: id, ActionType: audit.ActionSecurity, Event: "altered_row", Details: map[string]any{"table": table, "row": row},
	}}}
}

// sealedRows records that rows were sealed in the state in which they were found.
func sealedRows(ctx context.Context, s *store.Store, id string, c *store.Change) error {
	why, recorded, err := s.SealedRows(ctx)
	if err != nil || why == "" {
		return err
	}
	c.Add(recorded)
	c.Records = append(c.Records, &audit.Record{ID: id, ActionType: audit.ActionSecurity, Event: "rows_sealed", Details: map[string]any{"why": why}})
	return nil
}

// checkRows reads all sealed rows in the background. The daemon never uses an altered row,
// but this finds altered rows that nobody asks for.
func (d *Daemon) checkRows(ctx context.Context) error {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := d.store.CheckRows(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("cannot check the rows of the database", zap.Error(err))
		}
	}()
	d.ends.add("the check of the rows", func() error {
		stop()
		<-done
		return nil
	})
	return nil
}
