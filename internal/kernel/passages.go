package kernel

import (
	"maps"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/media"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/text"
)

// ours are the members of a message's metadata that the daemon writes. What a
// caller puts there never leaves.
var ours = [...]string{"ocip", "ocipChain", exchange.LogHeadName, "aiDisclosure", dispatchIDName}

// dispatchIDName is the member of a message's metadata by which its receiver
// tells a message that comes again.
const dispatchIDName = "dispatchId"

func isOurs(member string) bool { return slices.Contains(ours[:], member) }

// posed are the members that receivers go by, by what they look like.
var posed = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range append(ours[:], "exchange", "task") {
		names[text.Skeleton(name)] = name
	}
	return names
})

// unposed returns the metadata without the members that are none that receivers go by and
// read as one, in other capitals or letters, and which those are: some programs do not
// heed capitals, so that what anybody wrote would stand in the place of what the daemon
// says. What is given is not changed.
func unposed(metadata api.Object) (left api.Object, as []string) {
	for member := range metadata {
		name := posed()[text.Skeleton(member)]
		if name == "" || name == member {
			continue
		}
		if as == nil {
			left = maps.Clone(metadata)
		}
		as = append(as, name)
		delete(left, member)
	}
	if as == nil {
		return metadata, nil
	}
	slices.Sort(as)
	return left, slices.Compact(as)
}

// passages lists every string of a message's metadata that would leave with it. Known
// reports the members that the daemon itself knows: addresses that were decided about.
func passages(metadata api.Object, known func(member string) bool) []ocip.Passage {
	list, _ := media.Read(metadata, func(member string) bool { return isOurs(member) || known(member) })
	return list
}
