package content

import "strings"

const (
	ruleConfidential = "marking.confidential"
	ruleStrictly     = "marking.strictly-confidential"
	ruleInternal     = "marking.internal"
	ruleRestricted   = "marking.restricted"
	ruleSecret       = "marking.secret"
	ruleRed          = "marking.tlp-red"
	ruleAmberStrict  = "marking.tlp-amber-strict"
	ruleAmber        = "marking.tlp-amber"
	ruleGreen        = "marking.tlp-green"
)

func markingAnchors() []anchor {
	all := []anchor{{"tlp:", (*scan).tlp}}
	for _, m := range []marking{
		{word: "confidential", rule: ruleConfidential, level: Confidential, prose: true},
		{word: "vertraulich", rule: ruleConfidential, level: Confidential, prose: true},
		{word: "confidentiel", rule: ruleConfidential, level: Confidential, prose: true},
		{word: "confidencial", rule: ruleConfidential, level: Confidential, prose: true},
		{word: "strictly confidential", rule: ruleStrictly, level: Restricted, phrase: true},
		{word: "streng vertraulich", rule: ruleStrictly, level: Restricted, phrase: true},
		{word: "in confidence", rule: ruleConfidential, level: Confidential, phrase: true},
		{word: "internal only", rule: ruleInternal, level: Internal, phrase: true},
		{word: "internal use only", rule: ruleInternal, level: Internal, phrase: true},
		{word: "official use only", rule: ruleInternal, level: Internal, phrase: true},
		{word: "internal", rule: ruleInternal, level: Internal, shout: true, setting: true},
		{word: "restricted", rule: ruleRestricted, level: Restricted, shout: true},
		{word: "top secret", rule: ruleSecret, level: Restricted, phrase: true},
		{word: "secret", rule: ruleSecret, level: Restricted, shout: true, setting: true},
	} {
		all = append(all, anchor{m.word, func(s *scan, end int) { s.marking(&m, end) }})
	}
	return all
}

// marking is a word that authors use to mark a text. In running text it is an ordinary word, so its
// position decides whether it marks.
type marking struct {
	word, rule, level string
	// phrase is set if capitals alone make it a marking, at any position: nobody writes two words
	// in capitals by accident.
	phrase bool
	// prose is set if capitals in running text do, unless they are code.
	prose bool
	// shout is set if only capitals count at the head of a line.
	shout bool
	// setting is set if settings also have this name, so that a colon after it does not make it a
	// banner.
	setting bool
}

func (s *scan) marking(m *marking, end int) {
	start := end - len(m.word)
	if s.is(start-1, word) || s.is(end, word) || s.is(start-1, dash) && s.is(start-2, word) ||
		s.is(end, dash) && s.is(end+1, word) || s.denied(start) {
		return
	}
	capitals := weigh(s.text[start:end]).lower == 0
	title := !m.shout && s.is(start, upperCase)
	line := s.line(start)
	if s.listed(line) && !m.phrase {
		return
	}
	head, label := s.head(line, start)
	behind := s.behind(end)
	var marks bool
	switch {
	case label:
		marks = behind != open
	case start > 0 && s.text[start-1] == '\t': // indented, so it is code
	case head && behind == stroke:
		marks = capitals || !m.shout
	case head && behind == lineEnd:
		marks = capitals || title
	case head && behind == colon:
		marks = !m.setting && (capitals || title) && !s.flag(end)
	}
	marks = marks || capitals && (m.phrase || s.bracketed(start, end) || m.prose && s.prose(start, end))
	if marks {
		s.add(m.rule, m.level, start, end)
	}
}

// denied reports whether the word before negates the marking.
func (s *scan) denied(start int) bool {
	return s.hasFold(start-4, "not ") && !s.is(start-5, word) || s.hasFold(start-4, "non ") && !s.is(start-5, word)
}

// labels are texts that may precede a marking in its line. After labels that announce a level, any
// level word is a marking.
var (
	openings = []string{
		"subject:", "betreff:", "re:", "fw:", "fwd:", "aw:", "wg:", "for ", "company ", "proprietary and ",
		"proprietary & ", "privileged and ", "privileged & ", "commercial ", "highly ", "strictly ",
	}
	labels = []string{
		"classification:", "document classification:", "data classification:", "security classification:",
		"sensitivity:", "marking:", "protective marking:", "handling:",
	}
)

// line returns the start of the line of start if it is near, otherwise -1.
func (s *scan) line(start int) int {
	const longest = 80
	from := max(0, start-longest)
	if i := strings.LastIndexAny(s.text[from:start], "\n\r"); i >= 0 {
		return from + i + 1
	}
	if from > 0 {
		return -1
	}
	return 0
}

// listed reports whether the line of start continues a list in code, so that the word is a
// constant.
func (s *scan) listed(line int) bool {
	const near = 40
	if line < 0 {
		return false
	}
	before := strings.TrimRight(s.text[max(0, line-near):line], " \t\r\n")
	return before != "" && strings.IndexByte(",{([=", before[len(before)-1]) >= 0
}

// head reports whether only ornament and openings precede start in its line, and whether one of the
// openings announces a level.
func (s *scan) head(line, start int) (head, label bool) {
	if line < 0 {
		return false, false
	}
	for at := line; ; {
		for at < start && strings.IndexByte(" \t>#*=-_[(|~/!", s.text[at]) >= 0 {
			at++
		}
		if at >= start {
			return true, label
		}
		size := s.opening(at, openings)
		if size == 0 {
			if size = s.opening(at, labels); size == 0 {
				return false, false
			}
			label = true
		}
		at += size
	}
}

func (s *scan) opening(at int, words []string) int {
	for _, w := range words {
		if s.hasFold(at, w) {
			return len(w)
		}
	}
	return 0
}

// edge is the text that ends a banner.
type edge uint8

const (
	open    edge = iota // the text goes on
	lineEnd             // or a full stop
	stroke
	colon // settings also have one
)

func (s *scan) behind(end int) edge {
	const longest = 80
	rest := s.text[end:min(end+longest, len(s.text))]
	trimmed := strings.TrimLeft(rest, " \t*=#_~)]!")
	if trimmed == "" {
		if end+len(rest) == len(s.text) {
			return lineEnd
		}
		return open
	}
	blank := len(trimmed) == 1 || kindOf(trimmed[1]).in(space|newline)
	switch c := trimmed[0]; {
	case c == '\n', c == '\r', c == '.' && blank:
		return lineEnd
	case c == '|', strings.HasPrefix(trimmed, "//"), strings.HasPrefix(trimmed, "--"),
		c == '-' && strings.HasPrefix(rest, " ") && !strings.HasPrefix(trimmed, "->"): // not a hyphen
		return stroke
	case c == ':' && blank:
		return colon
	}
	return open
}

// flag reports whether the value of a setting follows the colon.
func (s *scan) flag(end int) bool {
	at := s.run(end, space, end+4) + 1
	at = s.run(at, space|quote, at+8)
	for _, v := range []string{"true", "false", "yes", "no", "null", "nil", "none"} {
		if s.hasFold(at, v) && !s.is(at+len(v), word) {
			return true
		}
	}
	return s.is(at, digit)
}

// bracketed reports whether brackets enclose start to end, other than those of a call or an index.
func (s *scan) bracketed(start, end int) bool {
	if start < 1 || end >= len(s.text) || s.is(start-2, word|quote|dot) || s.is(start-2, equals) {
		return false
	}
	return s.text[start-1] == '[' && s.text[end] == ']' && (end+1 >= len(s.text) || s.text[end+1] != '(') ||
		s.text[start-1] == '(' && s.text[end] == ')' ||
		strings.HasSuffix(s.text[:start], "**") && strings.HasPrefix(s.text[end:], "**")
}

// prose reports whether a word in capitals stands between other words, and not in a place for
// constants in code.
func (s *scan) prose(start, end int) bool {
	const near = 8
	before := strings.TrimRight(s.text[max(0, start-near):start], " ")
	if before != "" {
		if !s.is(start-1, space|newline) && strings.IndexByte("-:|", s.text[start-1]) < 0 {
			return false
		}
		if strings.IndexByte("=({[<,;?\t\"'`", before[len(before)-1]) >= 0 ||
			strings.HasSuffix(before, "case") || strings.HasSuffix(before, "return") {
			return false
		}
	}
	if end == len(s.text) {
		return true
	}
	switch c := s.text[end]; {
	case kindOf(c).in(space):
		after := s.run(end, space, end+near)
		return after >= len(s.text) || strings.IndexByte("={}<>+?", s.text[after]) < 0
	case kindOf(c).in(newline), c >= 0x80:
		return true
	case c == '.' || c == ',' || c == '!' || c == ':' || c == '/':
		// A comma at the end of a line separates constants.
		return c == '/' || end+1 == len(s.text) || s.is(end+1, space) || c != ',' && s.is(end+1, newline)
	}
	return false
}

// tlp weighs the marks of the Traffic Light Protocol. These words have no other meaning, so they
// mark at any position.
func (s *scan) tlp(end int) {
	start := end - len("TLP:")
	if s.is(start-1, word) {
		return
	}
	at := s.run(end, space, end+1)
	for _, t := range []struct{ colour, rule, level string }{
		{"red", ruleRed, Restricted},
		{"amber+strict", ruleAmberStrict, Confidential},
		{"amber", ruleAmber, Confidential},
		{"green", ruleGreen, Internal},
	} {
		if stop := at + len(t.colour); s.hasFold(at, t.colour) && !s.is(stop, word) {
			s.add(t.rule, t.level, start, stop)
			return
		}
	}
}
