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

// odd is where the first byte stands that is not ASCII which shows or ends a line,
// or the length of the text.
func odd(s string) int {
	i := 0
	for i < len(s) {
		if i+8 <= len(s) {
			w := eight(s[i:])
			del := w ^ 0x7f*ones
			if (w|(w-' '*ones)|(del-ones)&^del)&highs == 0 {
				i += 8
				continue
			}
		}
		// One of these is something else, a line end as a rule.
		for end := min(i+8, len(s)); i < end; i++ {
			if c := s[i]; (c < ' ' || c >= 0x7f) && c != '\n' && c != '\r' && c != '\t' {
				return i
			}
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
