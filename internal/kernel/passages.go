package kernel

import (
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/hints"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
)

// passages lists every string of a message's metadata that would leave with it. Known
// reports the members that the daemon itself knows: addresses that were decided about.
func passages(metadata api.Object, known func(member string) bool) []ocip.Passage {
	list, _ := media.Read(metadata, func(member string) bool { return hints.IsOwn(member) || known(member) })
	return list
}
