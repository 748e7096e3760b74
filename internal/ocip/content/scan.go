package content

import (
	"math/bits"
	"strings"
)

// lists are words that are looked for in a few bytes: those of a value that is
// none, those of a name that no secret has, and those of a name whose secrets are
// UUIDs.
type lists struct{ standIns, harmless, uuids *automaton }

// scan is the state of one pass over one text.
type scan struct {
	text string
	// found are the findings. What was dropped has no rule.
	found []Finding
	*lists
	*pass
	// tried is how far each prefix whose token may have any length has read,
	// so that no stretch is read again from every place inside it.
	tried map[string]int
	// pem is the finding whose end line has not come yet, putty where a key
	// file began whose private part has not come yet, twilio how far the
	// neighbourhood of that word was read. -1 is none.
	pem, putty, twilio int
	// discord is how far the neighbourhood of that word was read, mapboxed how far
	// the last of its tokens, curled where the last call's name ended.
	discord, mapboxed, curled int
	// mark is how far the last mark of an older OpenAI key has read, from where
	// its run of letters begins.
	mark stretch
	// weak is where the last assigned value ended that was no secret, kube how far
	// the last manifest of secrets was read.
	weak, kube int
	// number is where the digits of a number in groups are put together.
	number [longestNumber]byte
}

// stretch is a part of the text.
type stretch struct{ start, end int }

// check weighs one place. end is where the anchor ends.
type check func(s *scan, end int)

// anchor is a word, in lower case, that makes a place worth a look.
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

// add notes a finding and says at which place, or -1 if the rule has enough, or if
// what it found is known by another that knows the thing itself. What another one
// found that knows only the surroundings is dropped.
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

// vague says how little a rule knows of what it finds.
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
	sign   // what people put into passwords
	tilde  // '~', which is one of those
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

// kinds says of each byte which it is.
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

// is reports whether there is a byte at i and it is of set.
func (s *scan) is(i int, set kind) bool {
	return i >= 0 && i < len(s.text) && kindOf(s.text[i]).in(set)
}

// run is where the bytes of set that begin at i end, at the latest at limit.
func (s *scan) run(i int, set kind, limit int) int { return run(s.text, i, set, limit) }

func run(text string, i int, set kind, limit int) int {
	limit = min(limit, len(text))
	for i < limit && kindOf(text[i]).in(set) {
		i++
	}
	return i
}

// back is where the bytes of set that end before i begin, at the earliest at
// limit.
func (s *scan) back(i int, set kind, limit int) int {
	for i > max(limit, 0) && kindOf(s.text[i-1]).in(set) {
		i--
	}
	return i
}

// fresh reports whether something can begin at i that could not stand behind a
// byte of set. An escape for a blank in a quoted text ends in a letter, and a
// per cent escape may; neither belongs to what follows it.
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

// hasFold reports whether want, which is in lower case, stands at i in any
// case.
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

// makeup counts what a value is made of.
type makeup struct {
	lower, upper, digits, signs int
	// turns is how often a digit stands beside a letter, distinct how many
	// different bytes there are.
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

// classes is how many of small letters, capitals and digits there are.
func (m *makeup) classes() int {
	n := 0
	for _, c := range []int{m.lower, m.upper, m.digits} {
		if c > 0 {
			n++
		}
	}
	return n
}
