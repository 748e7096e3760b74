package daemon

import (
	"fmt"
	"os"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/backup"
	"go.uber.org/zap"
)

// restored is the record of a start on an older state that somebody restored
// knowingly, and forget takes the mark away that says so.
func (d *Daemon) restored() (records []*audit.Record, forget func() error, err error) {
	mark, err := backup.Marked(d.database)
	if err != nil || mark == nil {
		return nil, func() error { return nil }, err
	}
	d.log.Warn("an older state was restored: what was decided since is not in it",
		zap.Uint64("records", mark.Records), zap.Uint64("witnessed", mark.Witnessed), zap.Time("at", mark.At))
	records = []*audit.Record{{ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "state_restored", Details: map[string]any{
		"records": int(mark.Records), "witnessed": int(mark.Witnessed), "at": mark.At.Format("2006-01-02T15:04:05Z"),
	}}}
	return records, func() error {
		if err := os.Remove(backup.MarkPath(d.database)); err != nil {
			return fmt.Errorf("cannot take away the mark of a restoration: %w", err)
		}
		return nil
	}, nil
}
