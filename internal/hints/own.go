package hints

import (
	"maps"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/text"
)

// own are the members of a message's metadata that the daemon writes. What a caller
// puts there never leaves.
var own = [...]string{"ocip", "ocipChain", "ocipLog", "aiDisclosure", "dispatchId"}

// Own lists the members that the daemon writes.
func Own() []string { return slices.Clone(own[:]) }

// IsOwn reports whether the daemon writes a member.
func IsOwn(member string) bool { return slices.Contains(own[:], member) }

// read are the members that receivers go by, by what they look like.
var read = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range append(Own(), "exchange", "task", proto) {
		names[text.Skeleton(name)] = name
	}
	return names
})

const (
	// proto is a member that can stand for any other in JavaScript.
	proto = "__proto__"
	// maxPosing bounds, in bytes, the names that are looked at: longer ones read as no
	// other.
	maxPosing = 64
)

// WithoutOwn returns a copy of the metadata without what the daemon writes, and what was taken out, for the record. It is taken out before anybody sees the
// message, and once more after those who may change it.
func WithoutOwn(metadata api.Object) (left api.Object, changes []string) {
	posing, as := Unposed(metadata)
	left = make(api.Object, len(posing)+len(own))
	maps.Copy(left, posing)
	for _, name := range as {
		changes = append(changes, "kernel: what reads as metadata."+name+" removed")
	}
	for _, name := range own {
		if _, forged := left[name]; forged {
			changes = append(changes, "kernel: metadata."+name+" replaced")
			delete(left, name)
		}
	}
	return left, changes
}

// Unposed returns the metadata without the members that are none that receivers go by and
// read as one, in other capitals or letters, and which those are: some programs do not
// heed capitals, so that what anybody wrote would stand in the place of what the daemon
// says, or would say if there were any. What is given is not changed.
func Unposed(metadata api.Object) (left api.Object, as []string) {
	for member := range metadata {
		if len(member) > maxPosing {
			continue
		}
		name := read()[text.Skeleton(member)]
		if name == "" || name == member && member != proto {
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
