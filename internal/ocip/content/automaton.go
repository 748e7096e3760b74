package content

import "slices"

// automaton finds many words in one pass, whatever the case of their ASCII
// letters (Aho and Corasick). Each byte of a text costs two look-ups.
type automaton struct {
	// class folds the bytes. All bytes that occur in no word share class 0.
	class [256]uint8
	// next holds a row for each state, with one entry a class. An entry is the offset of the next
	// state's row. States that end a word come last.
	next  []uint32
	width int
	// ends is the offset of the first row of a state that ends a word, and hits lists the words
	// that those states end.
	ends int
	hits [][]uint16
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func newAutomaton(words []string) *automaton {
	a := &automaton{}
	classes := 1
	for _, w := range words {
		for i := range len(w) {
			if c := lower(w[i]); a.class[c] == 0 {
				a.class[c] = uint8(classes)
				classes++
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		a.class[c] = a.class[lower(c)]
	}
	a.width = classes

	type node struct {
		next []int // by class; 0 is the root, and so "none"
		fail int
		hits []uint16
	}
	nodes := []node{{next: make([]int, classes)}}
	for id, w := range words {
		at := 0
		for i := range len(w) {
			c := a.class[w[i]]
			if nodes[at].next[c] == 0 {
				nodes = append(nodes, node{next: make([]int, classes)})
				nodes[at].next[c] = len(nodes) - 1
			}
			at = nodes[at].next[c]
		}
		nodes[at].hits = append(nodes[at].hits, uint16(id))
	}
	// Breadth first, so that the fallback of a state is complete before the state.
	var queue []int
	for _, n := range nodes[0].next {
		if n != 0 {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		back := nodes[n].fail
		nodes[n].hits = slices.Concat(nodes[n].hits, nodes[back].hits)
		for c, to := range nodes[n].next {
			if to == 0 {
				nodes[n].next[c] = nodes[back].next[c]
				continue
			}
			nodes[to].fail = nodes[back].next[c]
			queue = append(queue, to)
		}
	}

	row := make([]int, len(nodes))
	count := 0
	for _, ending := range []bool{false, true} {
		if ending {
			a.ends = count * a.width
		}
		for n := range nodes {
			if (len(nodes[n].hits) > 0) == ending {
				row[n] = count * a.width
				count++
			}
		}
	}
	a.next = make([]uint32, len(nodes)*a.width)
	a.hits = make([][]uint16, count-a.ends/a.width)
	for n := range nodes {
		for c, to := range nodes[n].next {
			a.next[row[n]+c] = uint32(row[to])
		}
		if row[n] >= a.ends {
			a.hits[(row[n]-a.ends)/a.width] = nodes[n].hits
		}
	}
	return a
}

// in reports whether any of the words occurs in text.
func (a *automaton) in(text string) bool {
	state := 0
	for i := 0; i < len(text) && state < a.ends; i++ {
		state = int(a.next[state+int(a.class[text[i]])])
	}
	return state >= a.ends
}
