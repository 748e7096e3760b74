package hints

import (
	"maps"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
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
	// maxName bounds, in bytes, the names that are looked at: longer ones read as no
	// other.
	maxName = 64
)

// WithoutOwn returns a copy of the metadata without what the daemon writes, and what was
// taken out, for the record. It is taken out before anybody sees the message, and once
// more after those who may change it.
func WithoutOwn(metadata api.Object) (left api.Object, changes []string) {
	plain, like := WithoutLookalikes(metadata)
	left = make(api.Object, len(plain)+len(own))
	maps.Copy(left, plain)
	for _, name := range like {
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

// WithoutLookalikes returns the metadata without the members whose names look like those
// that receivers go by, in other capitals or letters, and which names they look like: some
// programs do not heed capitals, and would take such a member for the daemon's. What is
// given is not changed.
func WithoutLookalikes(metadata api.Object) (left api.Object, like []string) {
	for member := range metadata {
		if len(member) > maxName {
			continue
		}
		name := read()[text.Skeleton(member)]
		if name == "" || name == member && member != proto {
			continue
		}
		if like == nil {
			left = maps.Clone(metadata)
		}
		like = append(like, name)
		delete(left, member)
	}
	if like == nil {
		return metadata, nil
	}
	slices.Sort(like)
	return left, slices.Compact(like)
}
