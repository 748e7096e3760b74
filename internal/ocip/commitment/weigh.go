package commitment

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Weighed is the result of weighing a message that only keywords hold.
type Weighed struct {
	// Binds is set if the message may commit somebody, so that a person must see it.
	Binds bool
	// Keywords are the keywords in it, sorted.
	Keywords []string
	// Reasons are the reasons that weighed most, at most [MaxReasons], the heaviest first. They quote
	// keywords and nothing else of the text.
	Reasons []string
}

// MaxReasons bounds the reasons of a [Weighed].
const MaxReasons = 3

// reason is one reason for or against a commitment. With always, nothing weighs against it.
type reason struct {
	weight int
	always bool
	// why is the reason in words, with %q for the keyword.
	why, keyword string
}

// heaviest names the reasons that weighed most for the result.
func heaviest(all []reason, binds bool) (names []string) {
	size := func(r *reason) int {
		switch {
		case r.always:
			return 100
		case binds:
			return r.weight
		}
		return -r.weight
	}
	all = slices.DeleteFunc(all, func(r reason) bool { return size(&r) <= 0 })
	slices.SortStableFunc(all, func(a, b reason) int { return cmp.Compare(size(&b), size(&a)) })
	for i := range all {
		if len(names) > 0 && size(&all[i]) == 1 {
			break // of the keywords themselves, which need no other reason
		}
		if len(names) < MaxReasons && !slices.Contains(names, all[i].String()) {
			names = append(names, all[i].String())
		}
	}
	return names
}

// sheet is a text in which keywords are weighed.
type sheet struct {
	d    *Detector
	text string
	// known is set once the text as a whole was looked at, whole are the reasons found then.
	known bool
	whole []reason
}

// sign is a keyword in its sentence.
type sign struct {
	*sheet
	*Hit
	// from and to bound the sentence. before and after are its words around the keyword, in lower
	// case, those before it nearest first; word is the keyword as it is written.
	from, to      int
	before, after []string
	word          string
}

// weigh returns the reasons for and against a commitment by a keyword.
func (t *sheet) weigh(h *Hit) []reason {
	if !t.known {
		t.known, t.whole = true, t.overall()
	}
	if h.Start < 0 || h.End > len(t.text) || h.Start >= h.End || !plainForm(t.text[h.Start:h.End]) {
		return []reason{{always: true, why: "%q is disguised", keyword: h.Keyword}}
	}
	s := t.sign(h)
	found := append(slices.Clone(t.whole), reason{weight: 1, why: "nothing speaks against %q", keyword: h.Keyword})
	note := func(is bool, weight int, why string) {
		if is {
			found = append(found, reason{weight: weight, why: why, keyword: h.Keyword})
		}
	}
	never := func(is bool, why string) {
		if is {
			found = append(found, reason{always: true, why: why, keyword: h.Keyword})
		}
	}
	named := s.isName()
	first := s.firstPerson()
	never(!named && s.hasSum(), "a sum of money is beside %q")
	if s.dated() && h.Zone == ZoneBody {
		note(!named && inList(h.Keyword, "meeting schedule book reserve"), 4, "a date is beside %q")
		never(first, "a date and a verb in the first person are beside %q")
		never(s.limited(), "a deadline is beside %q")
	}
	note(h.Zone == ZoneCode, -6, "%q is in code")
	note(h.Zone == ZoneQuote, -6, "%q is in a quotation")
	note(h.Zone == ZoneSignature, -6, "%q is in a signature")
	note(named, -6, "%q is part of a name")
	note(s.quoted(), -4, "%q is quoted")
	note(s.heading(), -3, "%q is in a heading")
	note(s.asks(), -3, "the sentence with %q asks")
	note(s.denied(), -4, "the sentence with %q denies")
	checks := s.verifies()
	note(checks, -4, "%q means to check something")
	done := !checks && s.performed()
	note(s.reported(), -2, "the sentence tells what somebody else did: %q")
	note(done && !s.denied(), 4, "the sender does it: %q in the first person")
	note(!done && s.thing(), -3, "%q is the name of a thing")
	note(!done && s.others(), -3, "somebody else than the sender does it: %q")
	note(s.conditional(), -2, "the sentence with %q has a condition")
	note(s.orders(), 2, "%q is asked for")
	note(s.settles(), 3, "%q is a decision for the reader")
	return found
}

// plainForm reports whether a stretch is a keyword in an ordinary spelling.
func plainForm(found string) bool {
	_, plain := plainForms()[strings.ToLower(found)]
	return plain
}

// overall returns what the text as a whole has against weighing it, and for no commitment.
func (t *sheet) overall() (found []reason) {
	foreign, english, letters := 0, 0, 0
	for _, r := range t.text {
		switch {
		case r < utf8.RuneSelf:
			if r < ' ' && r != '\n' && r != '\r' && r != '\t' {
				return []reason{{always: true, why: "it has control characters"}}
			}
		case unicode.IsLetter(r) && (r > lastAccented || !unicode.Is(unicode.Latin, r)):
			return []reason{{always: true, why: "it has letters of another script"}}
		case r != emoji && (!text.Shows(r) || unicode.Is(unicode.Mn, r)):
			return []reason{{always: true, why: "it has characters that hide others"}}
		}
	}
	words := 0
	for word := range strings.FieldsFuncSeq(t.text, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }) {
		words++
		letters += len(word)
		if englishWords.holds(word) || termOfEnglish(word) {
			english++
		} else if t.foreign(word) {
			foreign++
		}
	}
	if foreign > 1 && foreign >= english || foreign > 0 && english == 0 {
		return []reason{{always: true, why: "it is not in English"}}
	}
	if looksLikeOutput(t.text) {
		found = append(found, reason{weight: -4, why: outputReason})
	}
	return found
}

// emoji is the selector that makes a picture of the sign before it.
const emoji = '\ufe0f'

// lastAccented is the last letter of the Latin alphabets of Europe.
const lastAccented = '\u024f'

// termOfEnglish reports whether a word occurs only in English sentences.
func termOfEnglish(word string) bool {
	return oneOf(word, "the", "of", "is", "are", "and", "for", "with", "this", "that", "it", "to", "we", "you", "i", "not", "from", "by", "please",
		// These are also words of other languages.
		"in", "an", "am", "was", "so", "die", "hat", "war", "bin", "do", "no", "me", "on", "as", "or", "son", "at", "had", "over", "per", "us", "also", "men", "more", "all",
		"have", "will", "can", "our", "your", "be", "has", "my", "a")
}

// foreign reports whether a word distinguishes another language from English.
func (t *sheet) foreign(word string) bool {
	lower := strings.ToLower(word)
	return !englishWords.holds(lower) && !termOfEnglish(lower) && foreignWords()[lower]
}

// sign finds the sentence of a hit.
func (t *sheet) sign(h *Hit) *sign {
	s := sign{sheet: t, Hit: h, word: strings.ToLower(t.text[h.Start:h.End])}
	s.from, s.to = max(0, h.Start-maxSentence), min(len(t.text), h.End+maxSentence)
	for pos := h.Start; pos > s.from; pos-- {
		if t.breaks(pos - 1) {
			s.from = pos
		}
	}
	for pos := h.End; pos < s.to; pos++ {
		if t.breaks(pos) {
			s.to = pos
		}
	}
	for s.from < h.Start && !utf8.RuneStart(t.text[s.from]) {
		s.from++
	}
	for s.to > h.End && s.to < len(t.text) && !utf8.RuneStart(t.text[s.to]) {
		s.to--
	}
	s.before, s.after = wordsOf(t.text[s.from:h.Start]), wordsOf(t.text[h.End:s.to])
	slices.Reverse(s.before)
	return &s
}

// breaks reports whether a sentence ends with the byte at pos.
func (t *sheet) breaks(pos int) bool {
	switch c := t.text[pos]; c {
	case '\n':
		return !wrapped(t.text, pos)
	case '.', '!', '?', ';':
		return pos+1 == len(t.text) || t.text[pos+1] <= ' ' || t.text[pos+1] == '"' || t.text[pos+1] == '*'
	}
	return false
}

// wordsOf returns the words of a text in lower case, with plain apostrophes.
func wordsOf(s string) (words []string) {
	for word := range strings.FieldsFuncSeq(strings.ReplaceAll(strings.ToLower(s), "\u2019", "'"), func(r rune) bool { return r < utf8.RuneSelf && !wordByte(byte(r)) }) {
		words = append(words, strings.Trim(word, "'"))
	}
	return words
}

// within reports whether one of the first n words is in a list of words.
func within(words []string, n int, list string) bool {
	for _, word := range words[:min(n, len(words))] {
		if inList(word, list) {
			return true
		}
	}
	return false
}

// inList reports whether a list, separated by blanks, has the word.
func inList(word, list string) bool {
	for one := range strings.FieldsSeq(list) {
		if one == word {
			return true
		}
	}
	return false
}
