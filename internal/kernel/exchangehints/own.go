package exchangehints

import (
	"maps"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/text"
)

// own lists the members of metadata that only the daemon writes. A caller's values for them are
// never sent on.
var own = [...]string{"ocip", "ocipChain", "ocipLog", "aiDisclosure", "dispatchId"}

// Own lists the members that the daemon writes.
func Own() []string { return slices.Clone(own[:]) }

// IsOwn reports whether the daemon writes a member.
func IsOwn(member string) bool { return slices.Contains(own[:], member) }

// read maps the skeleton of each member that receivers read to the member.
var read = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range append(Own(), "exchange", "task", proto) {
		names[text.Skeleton(name)] = name
	}
	return names
})

const (
	// proto can stand for any other member in JavaScript.
	proto = "__proto__"
	// maxName bounds, in bytes, the names that are compared: longer ones resemble no member.
	maxName = 64
)

// WithoutOwn returns a copy of the metadata without the daemon's members, and the removed names,
// for the record. They are removed before anybody sees the message, and again after interceptors
// may have changed it.
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

// WithoutLookalikes returns a copy of the metadata without members whose names resemble those that
// receivers read, in other capitals or letters, and lists the resembled names. Some programs ignore
// capitals, and would take such a member for the daemon's.
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
