package content

import (
	"math/bits"
	"strings"
)

// lists are words that are searched for in a few bytes: those of placeholder values, those of names
// that no secret has, and those of names whose secrets are UUIDs.
type lists struct{ standIns, harmless, uuids, namedKeys *automaton }

// scan is the state of one pass over one text.
type scan struct {
	text string
	// found are the findings. A dropped finding has no rule.
	found []Finding
	*lists
	*pass
	// tried is the position up to which each prefix with a token of any length has read, so that no
	// stretch is read again from every place inside it.
	tried map[string]int
	// pem is the finding whose end line has not come yet. putty is the start of a key file whose
	// private part has not come yet. twilio is the position up to which the surroundings of that
	// word were read. -1 is none.
	pem, putty, twilio int
	// discord is the position up to which the surroundings of that word were read, mapboxed that of
	// the last mapbox token, and curled the end of the last call's name.
	discord, mapboxed, curled int
	// mark is the stretch that the last sign of an older OpenAI key has read, from the start of its
	// run of letters.
	mark stretch
	// weak is the end of the last assigned value that was no secret. kube is the position up to
	// which the last Secret manifest was read.
	weak, kube int
	// number is the buffer for the digits of a number in groups.
	number [longestNumber]byte
}

// stretch is a part of the text.
type stretch struct{ start, end int }

// check weighs one place. end is the end of the anchor.
type check func(s *scan, end int)

// anchor is a word, in lower case, that marks a place to check.
type anchor struct {
	text  string
	check check
}

// builtin lists the anchors of all built-in rules.
func builtin() []anchor {
	var all []anchor
	for _, group := range [][]anchor{tokenAnchors(), credentialAnchors(), assignmentAnchors(), passwordAnchors(), personalAnchors(), markingAnchors()} {
		all = append(all, group...)
	}
	return all
}

// add notes a finding and returns its index. It returns -1 if the rule has enough, or if a more
// specific rule found the same. It drops findings that less specific rules made of the same text.
func (s *scan) add(rule, level string, start, end int) int {
	if s.full(rule) {
		return -1
	}
	v := vague(rule)
	for i := range s.found {
		f := &s.found[i]
		if f.Start >= end || start >= f.End || f.Rule == "" {
			continue
		}
		switch w := vague(f.Rule); {
		case w < v && (f.Level == level || strings.HasPrefix(f.Rule, "credential.")):
			return -1
		case w > v && (f.Level == level || strings.HasPrefix(rule, "credential.")):
			s.uncount(f.Rule)
			f.Rule = ""
		}
	}
	s.count(rule)
	s.found = append(s.found, Finding{Rule: rule, Level: level, Start: start, End: end})
	return len(s.found) - 1
}

// vague ranks how unspecific a rule is.
func vague(rule string) int {
	switch rule {
	case rulePassword:
		return 2
	case ruleAssignment, ruleBearer, ruleAuthorization:
		return 1
	}
	return 0
}

// kind is a set of character classes.
type kind uint16

const (
	hexLower kind = 1 << iota // a to f
	lowers                    // g to z
	hexUpper
	uppers
	digit
	under
	dash
	dot
	slash  // '/' and '+', the rest of base64
	equals // '=', its padding
	sign   // common in passwords
	tilde  // '~', also common in passwords
	space
	newline
	quote
)

const (
	lowerCase = hexLower | lowers
	upperCase = hexUpper | uppers
	letter    = lowerCase | upperCase
	alnum     = letter | digit
	word      = alnum | under
	base64URL = alnum | under | dash
	base64Std = alnum | slash
)

// kinds is the kind of each byte.
var kinds = [256]kind{
	'a': hexLower, 'b': hexLower, 'c': hexLower, 'd': hexLower, 'e': hexLower, 'f': hexLower,
	'g': lowers, 'h': lowers, 'i': lowers, 'j': lowers, 'k': lowers, 'l': lowers, 'm': lowers,
	'n': lowers, 'o': lowers, 'p': lowers, 'q': lowers, 'r': lowers, 's': lowers, 't': lowers,
	'u': lowers, 'v': lowers, 'w': lowers, 'x': lowers, 'y': lowers, 'z': lowers,
	'A': hexUpper, 'B': hexUpper, 'C': hexUpper, 'D': hexUpper, 'E': hexUpper, 'F': hexUpper,
	'G': uppers, 'H': uppers, 'I': uppers, 'J': uppers, 'K': uppers, 'L': uppers, 'M': uppers,
	'N': uppers, 'O': uppers, 'P': uppers, 'Q': uppers, 'R': uppers, 'S': uppers, 'T': uppers,
	'U': uppers, 'V': uppers, 'W': uppers, 'X': uppers, 'Y': uppers, 'Z': uppers,
	'0': digit, '1': digit, '2': digit, '3': digit, '4': digit,
	'5': digit, '6': digit, '7': digit, '8': digit, '9': digit,
	'_': under, '-': dash, '.': dot, '/': slash, '+': slash, '=': equals,
	'!': sign, '@': sign, '#': sign, '$': sign, '%': sign, '^': sign, '&': sign, '*': sign, '?': sign, '~': sign | tilde,
	' ': space, '\t': space, '\n': newline, '\r': newline, '"': quote, '\'': quote, '`': quote,
}

func kindOf(c byte) kind { return kinds[c] }

func (k kind) in(set kind) bool { return k&set != 0 }

// is reports whether there is a byte at i that belongs to set.
func (s *scan) is(i int, set kind) bool {
	return i >= 0 && i < len(s.text) && kindOf(s.text[i]).in(set)
}

// run returns the end of the bytes of set that begin at i, at most limit.
func (s *scan) run(i int, set kind, limit int) int { return run(s.text, i, set, limit) }

func run(text string, i int, set kind, limit int) int {
	limit = min(limit, len(text))
	for i < limit && kindOf(text[i]).in(set) {
		i++
	}
	return i
}

// back returns the start of the bytes of set that end before i, at least limit.
func (s *scan) back(i int, set kind, limit int) int {
	for i > max(limit, 0) && kindOf(s.text[i-1]).in(set) {
		i--
	}
	return i
}

// fresh reports whether a word can begin at i that could not follow a byte of set. An escape for a
// blank in a quoted text ends in a letter, and a per cent escape may. Neither belongs to the text
// after it.
func (s *scan) fresh(i int, set kind) bool {
	if !s.is(i-1, set) {
		return true
	}
	if i >= 2 && s.text[i-2] == '\\' {
		c := s.text[i-1]
		return c == 'n' || c == 'r' || c == 't'
	}
	const hex = hexLower | hexUpper | digit
	return i >= 3 && s.text[i-3] == '%' && s.is(i-2, hex) && s.is(i-1, hex)
}

// hasFold reports whether want, which is in lower case, occurs at i in any case.
func (s *scan) hasFold(i int, want string) bool { return hasFold(s.text, i, want) }

func hasFold(text string, i int, want string) bool {
	if i < 0 || i+len(want) > len(text) {
		return false
	}
	for k := range len(want) {
		if lower(text[i+k]) != want[k] {
			return false
		}
	}
	return true
}

// makeup counts the kinds of characters in a value.
type makeup struct {
	lower, upper, digits, signs int
	// turns counts the digits beside a letter, and distinct the different bytes.
	turns, distinct int
}

func weigh(value string) makeup {
	var m makeup
	var seen [4]uint64
	before := kind(0)
	for i := range len(value) {
		c := value[i]
		seen[c>>6] |= 1 << (c & 63)
		k := kindOf(c)
		switch {
		case k.in(lowerCase):
			m.lower++
		case k.in(upperCase):
			m.upper++
		case k.in(digit):
			m.digits++
		case k.in(sign):
			m.signs++
		}
		if k.in(digit) && before.in(letter) || k.in(letter) && before.in(digit) {
			m.turns++
		}
		before = k
	}
	for _, part := range seen {
		m.distinct += bits.OnesCount64(part)
	}
	return m
}

// classes counts how many of small letters, capitals and digits occur.
func (m *makeup) classes() int {
	n := 0
	for _, c := range []int{m.lower, m.upper, m.digits} {
		if c > 0 {
			n++
		}
	}
	return n
}
