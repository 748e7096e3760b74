package ipc

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// unrecorded reports whether an error says that a decision could not be recorded, as on a full disk.
// The store has logged the reason once; a line for each refused request would say nothing new, and
// take more of the disk.
func unrecorded(failure *api.Error) bool {
	details, _ := failure.Details.(map[string]any)
	verdict, _ := details["ocip"].(map[string]any)
	return verdict["code"] == ocip.AuditWriteFailed
}
