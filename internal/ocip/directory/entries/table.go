package entries

import "hash/maphash"

// Table finds numbers by keys that it does not hold: for each number it has the key's hash, and asks
// the caller whether the key is that of a number with the same hash. So a number takes eight to
// sixteen bytes.
type Table struct {
	slots []slot
	used  int
	// seed keeps others from choosing keys with equal hashes.
	seed   maphash.Seed
	seeded bool
}

// slot is empty if its number is 0.
type slot struct{ hash, number uint32 }

// hash returns the hash of a key.
func (t *Table) hash(key string) uint32 { return uint32(maphash.String(t.seed, key)) }

// Grow makes room for that many numbers.
func (t *Table) Grow(n int) {
	if !t.seeded {
		t.seed, t.seeded = maphash.MakeSeed(), true
	}
	size := 8
	for size-size/8 < n {
		size *= 2
	}
	if size > len(t.slots) {
		t.resize(size)
	}
}

func (t *Table) resize(size int) {
	old := t.slots
	t.slots = make([]slot, size)
	for _, s := range old {
		if s.number != 0 {
			t.slots[t.free(s.hash)] = s
		}
	}
}

func (t *Table) free(hash uint32) int {
	i := int(hash) & (len(t.slots) - 1)
	for t.slots[i].number != 0 {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// Find returns the number of a key. Same tells whether a number has the key.
func (t *Table) Find(key string, same func(number int) bool) (number int, ok bool) {
	if t.used == 0 {
		return 0, false
	}
	if i := t.find(t.hash(key), same); i >= 0 {
		return int(t.slots[i].number - 1), true
	}
	return 0, false
}

func (t *Table) find(hash uint32, same func(number int) bool) int {
	for i := int(hash) & (len(t.slots) - 1); t.slots[i].number != 0; i = (i + 1) & (len(t.slots) - 1) {
		if t.slots[i].hash == hash && same(int(t.slots[i].number-1)) {
			return i
		}
	}
	return -1
}

// Set enters the number of a key in place of the one that the key had, which it returns.
func (t *Table) Set(key string, number int, same func(number int) bool) (before int, had bool) {
	t.Grow(t.used + 1)
	return t.set(t.hash(key), number, same)
}

func (t *Table) set(hash uint32, number int, same func(number int) bool) (before int, had bool) {
	if i := t.find(hash, same); i >= 0 {
		before = int(t.slots[i].number - 1)
		t.slots[i].number = uint32(number + 1)
		return before, true
	}
	t.slots[t.free(hash)] = slot{hash, uint32(number + 1)}
	t.used++
	return 0, false
}

// Len is the number of keys.
func (t *Table) Len() int { return t.used }
