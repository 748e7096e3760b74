package kernel

import (
	"slices"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
)

// ours are the members of a message's metadata that the daemon writes. What a
// caller puts there never leaves.
var ours = [...]string{"ocip", "ocipChain", exchange.LogHeadName, "aiDisclosure", dispatchIDName}

// dispatchIDName is the member of a message's metadata by which its receiver
// tells a message that comes again.
const dispatchIDName = "dispatchId"

func isOurs(member string) bool { return slices.Contains(ours[:], member) }

// passages lists every string of a message's metadata that would leave with it. Known
// reports the members that the daemon itself knows: addresses that were decided about.
func passages(metadata api.Object, known func(member string) bool) []ocip.Passage {
	list, _ := media.Read(metadata, func(member string) bool { return isOurs(member) || known(member) })
	return list
}
