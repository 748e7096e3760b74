package content

// index finds many words in one pass, whatever the case of their ASCII letters.
// It is keyed on the first three bytes of a word: at each place of a text a few
// bits are looked up that stay in the nearest cache however many words there
// are, and only where they are set are words compared.
type index struct {
	// class folds the bytes to five bits: all that occur in no word are 0.
	class [256]uint8
	// heads has a bit for each three classes that a word begins with, bucket which of
	// the buckets holds the words that begin with them.
	heads   [headBits / 64]uint64
	bucket  [headBits]uint16
	buckets [][]entry
	// fourth has, for each bucket, a bit for each class of the byte behind those.
	fourth []uint32
}

// entry is a word, in lower case, and its number.
type entry struct {
	word string
	id   int
}

const (
	classBits = 5
	headBits  = 1 << (3 * classBits)
)

// classOf is the class of a byte that occurs in a word.
func classOf(c byte) uint8 {
	c = lower(c)
	switch k := kindOf(c); {
	case k.in(lowerCase):
		return c - 'a' + 1
	case k.in(digit):
		return 27
	case k.in(space):
		return 28
	case k.in(under | dash):
		return 29
	case k.in(dot) || c == ':':
		return 30
	}
	return 31
}

// newIndex makes one. Words have at least two bytes.
func newIndex(words []string) *index {
	x := &index{buckets: make([][]entry, 1), fourth: make([]uint32, 1)} // the first are nobody's
	for _, w := range words {
		for i := range len(w) {
			x.class[w[i]] = classOf(w[i])
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		x.class[c] = x.class[lower(c)]
	}
	for id, w := range words {
		head := uint32(x.class[w[0]])<<(2*classBits) | uint32(x.class[w[1]])<<classBits
		if len(w) > 2 {
			x.add(head|uint32(x.class[w[2]]), entry{w, id})
			continue
		}
		for third := range uint32(1) << classBits {
			x.add(head|third, entry{w, id})
		}
	}
	return x
}

func (x *index) add(head uint32, e entry) {
	x.heads[head/64] |= 1 << (head % 64)
	if x.bucket[head] == 0 {
		x.bucket[head] = uint16(len(x.buckets))
		x.buckets, x.fourth = append(x.buckets, nil), append(x.fourth, 0)
	}
	at := x.bucket[head]
	if len(e.word) > 3 {
		x.fourth[at] |= 1 << x.class[e.word[3]]
	} else {
		x.fourth[at] = ^uint32(0)
	}
	x.buckets[at] = append(x.buckets[at], e)
}

// each calls found for every word in text, with its number and where it ends, in
// the order of where they begin.
func (x *index) each(text string, found func(word, end int)) {
	// No step waits for the one before it: the two last classes are kept, and not
	// what was made of them.
	var first, second uint32
	for i := range len(text) {
		third := uint32(x.class[text[i]])
		head := (first<<(2*classBits) | second<<classBits | third) % headBits
		if x.heads[head/64]&(1<<(head%64)) != 0 && i >= 2 {
			x.compare(text, i-2, head, found)
		}
		first, second = second, third
	}
	if len(text) >= 2 { // a word of two bytes at the end
		x.compare(text, len(text)-2, first<<(2*classBits)|second<<classBits, found)
	}
}

// compare calls found for every word that begins at at.
func (x *index) compare(text string, at int, head uint32, found func(word, end int)) {
	b := x.bucket[head]
	if at+3 < len(text) && x.fourth[b]&(1<<x.class[text[at+3]]) == 0 {
		return
	}
	for _, e := range x.buckets[b] {
		if end := at + len(e.word); end <= len(text) && lower(text[end-1]) == e.word[len(e.word)-1] && hasFold(text, at, e.word) {
			found(e.id, end)
		}
	}
}
