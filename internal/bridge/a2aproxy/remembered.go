package a2aproxy

import "slices"

// remembered is a map of values, each of a session. When it is full, it forgets the oldest value of the session
// that has most of them, so that no session makes the proxy forget the values of another that has fewer.
type remembered[K comparable, V any] struct {
	most   int
	values map[K]V
	// of are the keys of each session, the oldest first.
	of map[string][]K
}

func remembering[K comparable, V any](most int) remembered[K, V] {
	return remembered[K, V]{most, make(map[K]V), make(map[string][]K)}
}

// get returns the value of a key, the zero value if there is none.
func (m *remembered[K, V]) get(k K) V { return m.values[k] }

// put remembers a value for a session. The session of a key never changes.
func (m *remembered[K, V]) put(session string, k K, v V) {
	if _, known := m.values[k]; !known {
		m.of[session] = append(m.of[session], k)
	}
	m.values[k] = v
	if len(m.values) <= m.most {
		return
	}
	for other, keys := range m.of {
		if len(keys) > len(m.of[session]) {
			session = other
		}
	}
	m.forgetOldest(session)
}

func (m *remembered[K, V]) forgetOldest(session string) { m.forget(session, m.of[session][0]) }

func (m *remembered[K, V]) forget(session string, k K) {
	i := slices.Index(m.of[session], k)
	if i < 0 {
		return
	}
	delete(m.values, k)
	if i == 0 {
		// The array of a slice that grows again is copied without the forgotten ones.
		m.of[session] = m.of[session][1:]
	} else {
		m.of[session] = slices.Delete(m.of[session], i, i+1)
	}
	if len(m.of[session]) == 0 {
		delete(m.of, session)
	}
}
