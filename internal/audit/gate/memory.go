package gate

import (
	"hash/maphash"
	"sync"
)

// Memory remembers messages that [Open] recently released under one generation of the rules, by a
// hash that nobody else can make, so that a row that is read back under the same rules needs no
// look at its record. It is safe for concurrent use.
type Memory struct {
	seed maphash.Seed

	mu    sync.Mutex
	known map[int64]remembered
	// ring drops the oldest entry when a new one needs its place.
	ring []int64
	next int
}

type remembered struct{ sum, generation uint64 }

// rememberedMessages bounds the memory.
const rememberedMessages = 32768

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{seed: maphash.MakeSeed(), known: make(map[int64]remembered)}
}

// sum returns the hash of a row: its names, and everything that is read back of it.
func (m *Memory) sum(body []byte, names ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	for _, name := range names {
		_, _ = h.WriteString(name)
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(body)
	return h.Sum64()
}

// Keep remembers the row of a message that may leave under a generation of the rules.
func (m *Memory) Keep(s Sealed, id int64, generation uint64, body []byte, names ...string) {
	if s.IsZero() {
		return
	}
	sum := m.sum(body, names...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.known[id]; !known {
		if len(m.ring) < rememberedMessages {
			m.ring = append(m.ring, id)
		} else {
			delete(m.known, m.ring[m.next])
			m.ring[m.next] = id
			m.next = (m.next + 1) % rememberedMessages
		}
	}
	m.known[id] = remembered{sum, generation}
}

// Recall returns the message in a row that is remembered under a generation of the rules. The
// message is the end of the row's body, from an index on.
func (m *Memory) Recall(id int64, generation uint64, body []byte, from int, names ...string) (Sealed, bool) {
	m.mu.Lock()
	had, known := m.known[id]
	m.mu.Unlock()
	if !known || had.generation != generation || had.sum != m.sum(body, names...) {
		return Sealed{}, false
	}
	return Sealed{data: body[from:]}, true
}
