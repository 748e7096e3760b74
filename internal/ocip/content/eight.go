package content

// Texts are gone through eight bytes at a time where nothing is looked for in
// most of them.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// eight are the next eight bytes, the first one lowest.
func eight(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// equal has the highest bit of each byte set that is c.
func equal(w uint64, c byte) uint64 {
	t := w ^ uint64(c)*ones
	return ^((t&^highs + 0x7f*ones) | t) & highs
}

// odd is where the first byte stands that is not ASCII which shows or ends a line,
// or the length of the text.
func odd(s string) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := eight(s[i:])
		del := w ^ 0x7f*ones
		if (w|(w-' '*ones)|(del-ones)&^del)&highs == 0 {
			continue
		}
		low := ^(w&^highs + 0x60*ones) & highs // below the blank
		if w&highs|equal(w, 0x7f)|low&^(equal(w, '\n')|equal(w, '\r')|equal(w, '\t')) != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; (c < ' ' || c >= 0x7f) && c != '\n' && c != '\r' && c != '\t' {
			break
		}
	}
	return i
}

// nextDigit is where the next digit stands, or the length of the text.
func nextDigit(s string, i int) int {
	for i < len(s) {
		if i+8 <= len(s) {
			if w := eight(s[i:]) ^ '0'*ones; (w-10*ones)&^w&highs == 0 {
				i += 8
				continue
			}
		}
		for end := min(i+8, len(s)); i < end; i++ {
			if c := s[i]; '0' <= c && c <= '9' {
				return i
			}
		}
	}
	return i
}
