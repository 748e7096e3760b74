package kernel

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// ours are the members of a message's metadata that the daemon writes. What a
// caller puts there never leaves.
var ours = [...]string{"ocip", "ocipChain", logHeadName, "aiDisclosure", dispatchIDName}

// dispatchIDName is the member of a message's metadata by which its receiver
// tells a message that comes again.
const dispatchIDName = "dispatchId"

// passages lists every string of a message's metadata that would leave with it,
// with the names of its members, in a fixed order. Known reports the members
// that the daemon itself knows: addresses that were decided about.
//
// Texts with white space may hold commitments. What has none is an id, an address
// or an entry of an enumeration: meeting_scheduling is no promise.
func passages(metadata api.Object, known func(member string) bool) (list []ocip.Passage) {
	for i, name := range slices.Sorted(maps.Keys(metadata)) {
		if slices.Contains(ours[:], name) || known(name) {
			continue
		}
		list = appendMember(list, "metadata", i, name, metadata[name])
	}
	return list
}

// appendMember adds what a member's name and its value say.
func appendMember(list []ocip.Passage, path string, i int, name string, value jsontext.Value) []ocip.Passage {
	if !plainName(name) {
		// A name can be the secret: then the record must not have it.
		list = appendPassage(list, fmt.Sprintf("%s (name %d)", path, i+1), name, false)
		name = "#" + strconv.Itoa(i+1)
	}
	return appendPassages(list, path+"."+name, value)
}

// plainName reports whether a member's name is a word that says nothing else: no
// secret is so short and has letters alone.
func plainName(name string) bool {
	return len(name) <= 24 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == ""
}

// longNumber is how many digits a number has that could say something by itself:
// fewer are no account and no card.
const longNumber = 12

func appendPassages(list []ocip.Passage, path string, value jsontext.Value) []ocip.Passage {
	switch value.Kind() {
	case '"':
		text, _ := api.Text(value)
		return appendPassage(list, path, text, strings.ContainsFunc(text, isSpace))
	case '0':
		if len(value) >= longNumber {
			list = appendPassage(list, path, string(value), false)
		}
	case '{', '[':
		d := jsontext.NewDecoder(bytes.NewReader(value))
		object := value.Kind() == '{'
		if _, err := d.ReadToken(); err != nil {
			return list
		}
		for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
			name := ""
			if object {
				token, err := d.ReadToken()
				if err != nil {
					return list
				}
				name = token.String()
			}
			member, err := d.ReadValue()
			if err != nil {
				return list
			}
			if object {
				list = appendMember(list, path, i, name, member)
			} else {
				list = appendPassages(list, path+"["+strconv.Itoa(i)+"]", member)
			}
		}
	}
	return list
}

// appendPassage adds a text, and leaves out what is too short to say anything.
func appendPassage(list []ocip.Passage, member, text string, prose bool) []ocip.Passage {
	if len(text) < shortestSaying {
		return list
	}
	return append(list, ocip.Passage{Member: member, Text: text, Prose: prose})
}

// shortestSaying is how short a text is that no detector finds anything in: the
// shortest secret and the shortest keyword are longer.
const shortestSaying = 3

func isSpace(r rune) bool {
	return r == ' ' || r == '\n' || r == '\t' || r == '\u00a0' || r == '\u3000'
}
