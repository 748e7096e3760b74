package daemon

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/diskspace"
)

// space is the configured reaction to a filling disk.
func space(c *config.Store) diskspace.Options {
	return diskspace.Options{
		WarnFree: int64(c.WarnFreeBytes), MinFree: int64(c.MinFreeBytes), Reserve: int64(c.ReserveBytes),
	}
}

// diskChanged is the record of a disk that fills up or has space again. It later explains
// why messages were refused.
func diskChanged(id string, was, now diskspace.Disk) *store.Change {
	event := "disk_low"
	switch now.Level {
	case diskspace.OK:
		event = "disk_ok"
	case diskspace.Full:
		event = "disk_full"
	case diskspace.Warn, diskspace.Refuse:
	}
	return &store.Change{Alarm: true, Records: []*audit.Record{{
		ID: id, ActionType: audit.ActionSecurity, Event: event,
		Details: map[string]any{"disk": now.Level, "was": was.Level, "freeBytes": now.Free, "reserve": now.Reserve},
	}}}
}

// storeStatus is the state of the disk, for operators.
func storeStatus(s *store.Store) api.StoreStatus {
	disk := s.Disk()
	return api.StoreStatus{Disk: string(disk.Level), FreeBytes: disk.Free, Reserve: disk.Reserve}
}
