package index

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// TestGroups writes and reads postings of all kinds of lists.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	want := make(map[term][]uint16)
	var sorted []posting
	add := func(tm term, pos ...uint64) {
		for _, p := range pos {
			sorted = append(sorted, posting(tm)<<posBits|posting(p))
			want[tm] = append(want[tm], uint16(p))
		}
	}
	for p := range uint64(blockRecords) {
		add(termOf(1, "all"), p)
		if p%3 == 0 {
			add(termOf(2, "some"), p)
		}
	}
	for range 5000 {
		add(term(r.Uint64N(1<<termBits)), r.Uint64N(blockRecords))
	}
	add(0, 0)
	add(1<<termBits-1, blockRecords-1)
	slices.Sort(sorted)
	got := make(map[term][]uint16)
	last := uint64(0)
	err := groups(7, sorted, func(key uint64, content []byte) error {
		if key>>termBits != 7 || key <= last && last != 0 {
			t.Errorf("key %x after %x", key, last)
		}
		last = key
		if len(content) > groupBytes+20 {
			var terms int
			if err := eachList(key, content, func(term, []byte) bool { terms++; return true }); err != nil || terms > 1 {
				t.Errorf("%d bytes for %d terms, %v", len(content), terms, err)
			}
		}
		if err := eachList(key+1, content, func(term, []byte) bool { return true }); err == nil {
			t.Error("a group is read at another place")
		}
		return eachList(key, content, func(tm term, list []byte) bool {
			got[tm] = places(nil, list)
			return true
		})
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d terms, want %d, %v", len(got), len(want), err)
	}
}

// FuzzGroup reads what is no group behind a checksum that fits.
func FuzzGroup(f *testing.F) {
	f.Add([]byte{0, 1, 5, 3, 2, 5, 1})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, content []byte) {
		total := 0
		err := eachList(9, sealed(slices.Clone(content), 9), func(_ term, list []byte) bool {
			total += len(list)
			if len(places(nil, list)) > len(list) {
				t.Error("more places than bytes")
			}
			return true
		})
		if total > len(content) || err == nil && len(content) > 0 && total == len(content) {
			t.Errorf("lists of %d bytes in %d, %v", total, len(content), err)
		}
		if err := eachList(9, content, func(term, []byte) bool { return true }); err == nil && len(content) < 4 {
			t.Error("a checksum that is not there fits")
		}
	})
}

// FuzzCounts reads what are no numbers, and writes again what are.
func FuzzCounts(f *testing.F) {
	c := counts{
		subjects: []audit.Subject{{Agent: "a", Result: "deny"}, {Agent: "b", Rule: "r", Code: "C"}},
		minutes:  []minuteCount{{minute: 29_000_000, subject: 1, n: 3}, {minute: 29_000_001, subject: 0, n: 400}},
	}
	f.Add(c.encode(3)[:len(c.encode(3))-4])
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0, 200})
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := decodeCounts(3, sealed(slices.Clone(content), 3))
		if err != nil {
			return
		}
		again, err := decodeCounts(3, c.encode(3))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}
