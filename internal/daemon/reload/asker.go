package reload

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
)

// asker is the origin of a reload. The peer is an operator's process, or nil.
type asker struct {
	by   string
	peer api.Peer
}

// details starts the details of a record.
func (a asker) details() map[string]any {
	d := map[string]any{}
	if a.peer != nil {
		d = caller.Details(a.peer)
	}
	d["by"] = a.by
	return d
}
