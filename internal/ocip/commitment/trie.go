package commitment

import "math/bits"

// trie is a set of words, with one step for each symbol. Words are added first, and looked up after
// it is packed.
type trie struct {
	rows  []row
	nodes []node
}

// row is a node while words are added.
type row struct {
	next    [symbols]uint16
	end     uint16
	keyword bool
}

// node is packed so that the data for comparisons stays in the nearest cache.
type node struct {
	// next has a bit for each symbol that continues from here, and first is the node of the lowest
	// of them: the others follow it. The highest bit, which belongs to no symbol, marks the
	// beginnings of the forms of a keyword.
	next  uint32
	first uint16
	// end is set if a word ends here: its number plus one.
	end uint16
}

const keywordBit = 1 << 31

func (n *node) keyword() bool { return n.next&keywordBit != 0 }

// The symbols of the tries: the letters, and for the phrases of cues the apostrophe and the gap
// between words.
const (
	symApostrophe = 27
	symGap        = 28
	symbols       = 32 // so that the low bits of any glyph are an index
)

// add adds a word, unless it is there.
func (t *trie) add(word []glyph, number int) { t.addAs(word, number, false) }

func (t *trie) addAs(word []glyph, number int, keyword bool) {
	if last := t.grow(word, keyword); last.end == 0 {
		last.end = uint16(number + 1)
	}
}

// set adds a word, or gives it another number.
func (t *trie) set(word []glyph, number int) { t.grow(word, false).end = uint16(number + 1) }

// grow returns the row in which a word ends.
func (t *trie) grow(word []glyph, keyword bool) *row {
	if t.rows == nil {
		t.rows = make([]row, 1, 1024)
	}
	at := uint16(0)
	for _, g := range word {
		if t.rows[at].next[g] == 0 {
			t.rows[at].next[g] = uint16(len(t.rows))
			t.rows = append(t.rows, row{})
		}
		at = t.rows[at].next[g]
		t.rows[at].keyword = t.rows[at].keyword || keyword
	}
	return &t.rows[at]
}

// ending returns the number of a word that was added plus one, or 0.
func (t *trie) ending(word []glyph) uint16 {
	at := uint16(0)
	for _, g := range word {
		if at = t.rows[at].next[g]; at == 0 {
			return 0
		}
	}
	return t.rows[at].end
}

// pack makes the nodes of the rows, breadth first: the successors of a node are adjacent.
func (t *trie) pack() {
	t.nodes = make([]node, 1, len(t.rows))
	queue := []uint16{0}
	for i := 0; i < len(queue); i++ {
		r := &t.rows[queue[i]]
		n := node{first: uint16(len(t.nodes)), end: r.end}
		if r.keyword {
			n.next = keywordBit
		}
		for sym, next := range r.next {
			if next != 0 {
				n.next |= 1 << sym
				queue = append(queue, next)
				t.nodes = append(t.nodes, node{})
			}
		}
		t.nodes[i] = n
	}
	t.rows = nil
}

// step returns the node for a symbol, 0 for none.
func (t *trie) step(at uint16, sym glyph) uint16 {
	n := &t.nodes[at]
	bit := uint32(1) << (sym % symbols)
	if n.next&bit == 0 {
		return 0
	}
	return n.first + uint16(bits.OnesCount32(n.next&(bit-1)))
}

// steps returns the node for a word, 0 for none.
func (t *trie) steps(word []glyph) uint16 {
	at := uint16(0)
	for _, g := range word {
		if at = t.step(at, g); at == 0 {
			break
		}
	}
	return at
}
