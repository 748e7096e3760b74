package content

import "unicode/utf8"

// index finds many words in one pass, whatever the case of their ASCII letters. Its key is the
// first three bytes of a word. At each position of a text it looks up a few bits. The table of bits
// stays in the nearest cache however many words there are. Words are compared only at positions
// whose bits are set.
type index struct {
	// class folds the bytes to five bits. All bytes that occur in no word are 0.
	class [256]uint8
	// heads has a bit for each combination of three classes with which a word begins. near also has
	// bits for those after the first byte of a word. bucket selects the bucket of words that begin
	// with them.
	near    [headBits / 64]uint64
	heads   [headBits / 64]uint64
	bucket  [headBits]uint16
	buckets [][]entry
	// fourth has, for each bucket, a bit for each class of the fourth byte.
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
	// classOther is the last class, for signs.
	classOther = 1<<classBits - 1
)

// classOf returns the class of a byte that occurs in a word.
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
	case c == '|':
		// Words of two bytes end in it, so that any byte may follow. It shares the class of a
		// letter that is rare in texts, and not that of the other signs.
		return 'z' - 'a' + 1
	case c >= utf8.RuneSelf:
		// They share the classes of others. Otherwise the words of another alphabet would all begin
		// alike.
		return c%classOther + 1
	}
	return classOther
}

// newIndex makes an index of words with at least two bytes.
func newIndex(words []string) *index {
	x := &index{buckets: make([][]entry, 1), fourth: make([]uint32, 1)} // the first are unused
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
		} else {
			for third := range uint32(1) << classBits {
				x.add(head|third, entry{w, id})
			}
		}
		x.behind(w[1:], 0, 0)
	}
	return x
}

// behind marks the three classes that can follow the first byte of a word: those of the next bytes,
// and any class after the word's end.
func (x *index) behind(next string, head uint32, classes int) {
	if classes == 3 {
		x.near[head/64] |= 1 << (head % 64)
		return
	}
	if len(next) > 0 {
		x.behind(next[1:], head<<classBits|uint32(x.class[next[0]]), classes+1)
		return
	}
	for class := range uint32(1) << classBits {
		x.behind("", head<<classBits|class, classes+1)
	}
}

func (x *index) add(head uint32, e entry) {
	x.near[head/64] |= 1 << (head % 64)
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

// each calls found for every word in text, with its number and its end, in the order of their
// starts.
func (x *index) each(text string, found func(word, end int)) {
	// The loop checks every second position: a word begins there or one before.
	i := 0
	first := uint32(0)
	if len(text) > 0 {
		first = uint32(x.class[text[0]])
	}
	for ; i+2 < len(text); i += 2 {
		third := uint32(x.class[text[i+2]])
		head := (first<<(2*classBits) | uint32(x.class[text[i+1]])<<classBits | third) % headBits
		if x.near[head/64]&(1<<(head%64)) != 0 {
			x.at(text, i-1, found)
			x.at(text, i, found)
		}
		first = third
	}
	for i--; i+1 < len(text); i++ { // the loop does not reach the last positions
		x.at(text, i, found)
	}
}

// at calls found for every word that begins at a position.
func (x *index) at(text string, at int, found func(word, end int)) {
	if at < 0 {
		return
	}
	head := uint32(x.class[text[at]])<<(2*classBits) | uint32(x.class[text[at+1]])<<classBits
	if at+2 < len(text) { // otherwise a word of two bytes at the end
		head |= uint32(x.class[text[at+2]])
	}
	if x.heads[head/64]&(1<<(head%64)) == 0 {
		return
	}
	if b := x.bucket[head]; at+3 >= len(text) || x.fourth[b]&(1<<x.class[text[at+3]]) != 0 {
		x.compare(text, at, b, found)
	}
}

// compare calls found for every word of a bucket that begins at at.
func (x *index) compare(text string, at int, b uint16, found func(word, end int)) {
	for _, e := range x.buckets[b] {
		if end := at + len(e.word); end <= len(text) && lower(text[end-1]) == e.word[len(e.word)-1] && hasFold(text, at, e.word) {
			found(e.id, end)
		}
	}
}
