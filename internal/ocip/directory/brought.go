package directory

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Messages of one session can come from several places: in most apps, a person has one key both in
// a room and alone. An answer goes to the place of the last message unless it names another. The
// earlier places are kept as well, so that an answer to a question from there can name its place.

const (
	// earlierMember holds the earlier places, as JSON.
	earlierMember = "earlier"
	// maxEarlier bounds the earlier places.
	maxEarlier = 3
)

// Keep returns the data to keep about a session: the members of its last message, and the earlier
// places. Both arguments have the form that [Directory.Brought] and Keep return.
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

// placeOf returns the last place in the kept data.
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

// Answering returns the members of the place that a message answers: the place whose address its
// metadata repeats, or the last one if it repeats none.
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
