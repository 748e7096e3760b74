package directory

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// One session can have come from several places: who speaks in a room and alone is
// known by one key in most apps. Where the last message came from is where an answer
// goes unless it says otherwise, and the places before it are kept as well, so that
// an answer to what was asked there may say so.

const (
	// earlierMember holds the places before the last one, as JSON.
	earlierMember = "earlier"
	// maxEarlier bounds them.
	maxEarlier = 3
)

// Keep returns what is to be kept of a session: what its last message brought, and
// the places before it. Both are as [Directory.Brought] and Keep have them.
func Keep(before, last map[string]string) map[string]string {
	places := earlier(before)
	if latest := placeOf(before); len(latest) > 0 {
		places = slices.Insert(places, 0, latest)
	}
	current := placeOf(last)
	places = slices.DeleteFunc(places, func(p map[string]string) bool { return maps.Equal(p, current) })
	if len(places) > maxEarlier {
		places = places[:maxEarlier]
	}
	for len(places) > 0 {
		encoded, err := json.Marshal(places, json.Deterministic(true))
		if err == nil && len(encoded)+size(current) <= maxBroughtBytes {
			kept := maps.Clone(current)
			kept[earlierMember] = string(encoded)
			return kept
		}
		places = places[:len(places)-1]
	}
	return current
}

// placeOf is the last place of what is kept.
func placeOf(kept map[string]string) map[string]string {
	place := make(map[string]string, len(kept)+1)
	for member, value := range kept {
		if member != earlierMember {
			place[member] = value
		}
	}
	return place
}

func earlier(kept map[string]string) (places []map[string]string) {
	if kept[earlierMember] == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(kept[earlierMember]), &places); err != nil {
		return nil
	}
	return places
}

func size(place map[string]string) (bytes int) {
	for member, value := range place {
		bytes += len(member) + len(value)
	}
	return bytes
}

// Answering returns what was brought from the place that a message answers: the one
// that its metadata repeats the address of, and the last one where it repeats none.
func (d *Directory) Answering(key string, kept map[string]string, metadata map[string]jsontext.Value) map[string]string {
	if kept[earlierMember] == "" {
		return kept
	}
	channel, _ := Split(key)
	n := d.network(channel)
	repeats := func(place map[string]string) bool {
		found := false
		for member, raw := range metadata {
			if member != accountMember && !n.reads(member) {
				continue
			}
			value, ok := plainText(raw)
			if !ok {
				return false
			}
			if value == "" || n.namesItself(channel, member, value) {
				continue
			}
			if n.folded(value) != n.folded(place[member]) {
				return false
			}
			found = true
		}
		return found
	}
	last := placeOf(kept)
	if repeats(last) {
		return last
	}
	for _, place := range earlier(kept) {
		if repeats(place) {
			return place
		}
	}
	return last
}
