package commitment

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The conditions of [Reading.Keywords] on a keyword in its sentence.

const (
	sender    = "i we i'll we'll i'm we're i've we've i'd we'd im ive"
	modals    = "can could will shall would may must should might do does did to hereby also just now already have has had been be happily gladly fully still both all therefore then"
	deniers   = "not no never nothing none neither nor cannot can't don't doesn't didn't won't wouldn't couldn't shouldn't isn't aren't wasn't weren't haven't hasn't without unable failed fails refuse refused decline declined yet"
	doubters  = "if whether unless when once until would should could might assuming"
	beingHeld = "is are was were be been being got gets get has have had now already 's"
)

// plainForms are the spellings of keywords and of their nouns that are no disguise.
var plainForms = sync.OnceValue(func() map[string]struct{} {
	all := map[string]struct{}{}
	for _, k := range keywords {
		for word := range strings.FieldsSeq(k.forms + " " + k.derived) {
			all[word] = struct{}{}
		}
	}
	return all
})

// foreignWords are the words that distinguish the other languages with the Latin alphabet.
var foreignWords = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for i := range languages {
		for word := range strings.FieldsSeq(languages[i].common) {
			if len(word) > 1 {
				all[word] = true
			}
		}
	}
	return all
})

// isName reports whether the keyword is part of an identifier, a path or a file's name.
func (s *sign) isName() bool {
	before, _ := utf8.DecodeLastRuneInString(s.text[:s.Start])
	after, _ := utf8.DecodeRuneInString(s.text[s.End:])
	joins := func(r rune) bool {
		return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_/\\=<>{}[]$#@&|", r))
	}
	if joins(before) || joins(after) || after == '(' && s.End < len(s.text) {
		return true
	}
	if (before == '.' || before == '-' || before == ':') && s.Start > 1 && wordByte(s.text[s.Start-2]) {
		return true
	}
	next := s.End + 1
	return (after == '.' || after == '-' || after == ':') && next < len(s.text) && wordByte(s.text[next])
}

// quoted reports whether quotation marks enclose the keyword in its sentence.
func (s *sign) quoted() bool {
	head, tail := s.text[s.from:s.Start], s.text[s.End:s.to]
	if open := strings.LastIndex(head, "\u201c"); open >= 0 && !strings.Contains(head[open:], "\u201d") {
		return true
	}
	return strings.Count(head, `"`)%2 == 1 && strings.Contains(s.text[s.End:min(len(s.text), s.to+1)], `"`) || strings.HasSuffix(head, "'") && strings.HasPrefix(tail, "'")
}

// heading reports whether the line of the keyword is a heading or an item's label.
func (s *sign) heading() bool {
	start, end := max(0, s.Start-maxHeader), min(len(s.text), s.End+maxHeader)
	start += strings.LastIndexByte(s.text[start:s.Start], '\n') + 1
	if at := strings.IndexByte(s.text[s.End:end], '\n'); at >= 0 {
		end = s.End + at
	}
	line := strings.TrimSpace(s.text[start:end])
	if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "Subject:") {
		return true
	}
	bold := strings.HasPrefix(line, "**") && strings.HasSuffix(strings.TrimRight(line, ":"), "**")
	label := strings.HasPrefix(s.text[s.End:], ":") || strings.HasPrefix(s.text[s.End:], ":**") || strings.HasPrefix(s.text[s.End:], "**:")
	return bold || label && len(s.before) < 4 && !within(s.before, 4, sender)
}

// asks reports whether the sentence ends in a question mark.
func (s *sign) asks() bool { return s.to < len(s.text) && s.text[s.to] == '?' }

// firstPerson reports whether the sender speaks of a deed of their own in the sentence.
func (s *sign) firstPerson() bool {
	return within(s.before, len(s.before), sender+" let's lets") || within(s.after, len(s.after), sender+" let's lets")
}

func (s *sign) denied() bool {
	return within(s.before, 6, deniers) || within(s.after, 3, "not no nothing never without anything neither")
}

func (s *sign) conditional() bool { return within(s.before, 6, doubters) }

// performed reports whether the sender does the deed: the keyword is a verb after "I", or a
// participle that is a sentence of its own.
func (s *sign) performed() bool {
	if s.Rule != RuleKeyword || s.asks() || inList(s.Keyword, "meeting deadline") || strings.HasSuffix(s.word, "ment") || strings.HasSuffix(s.word, "ments") || strings.HasSuffix(s.word, "tion") {
		return false
	}
	for i, word := range s.before[:min(6, len(s.before))] {
		if inList(word, sender) {
			return i == 0 || !inList(s.before[0], "the a an this that your our my of for in on")
		}
		if !inList(word, modals) && !strings.HasSuffix(word, "ly") && !inList(word, "happy glad pleased like want going able order") {
			break
		}
	}
	return len(s.before) == 0 && strings.HasSuffix(s.word, "ed") && (s.End == len(s.text) || strings.IndexByte(".,!;:\n", s.text[s.End]) >= 0)
}

// reported reports whether the sentence tells a deed of somebody else: "the driver has promised it".
func (s *sign) reported() bool {
	return s.Rule == RuleKeyword && strings.HasSuffix(s.word, "ed") && len(s.before) > 0 && !s.firstPerson() && !s.settles() &&
		!within(s.before, 2, "is are be been being was were all")
}

// thing reports whether the keyword names a thing: a noun, or the first part of one.
func (s *sign) thing() bool {
	if inList(s.word, "meeting meetings deadline deadlines books bookings agreement agreements assignment assignments commitment commitments confirmation confirmations reservation reservations allocation allocations approval approvals schedules commits booking") {
		return !within(s.before, 1, sender+" to he she they who")
	}
	if s.Keyword == "commit" && inList(s.word, "commit commits") && !within(s.before, 4, sender) && !within(s.after, 1, "to") {
		return true
	}
	return s.Rule != RuleKeyword || within(s.before, 1, "the a an this that these those your our my his her its their of each every no any last next first same new old another some which what in per with latest previous")
}

// others reports whether somebody else than the sender does the deed.
func (s *sign) others() bool {
	if inList(s.word, "confirms allocates assigns schedules reserves") && len(s.before) > 0 {
		return true
	}
	for _, word := range s.before[:min(6, len(s.before))] {
		switch {
		case inList(word, sender):
			return false
		case inList(word, "he she they it who which user users customer team everybody nobody someone somebody people"):
			return true
		case inList(word, "you"):
			return true
		}
	}
	return false
}

// verifies reports whether "confirm" means to check: "let me confirm", "to confirm that the file
// exists", "the tests confirm it".
func (s *sign) verifies() bool {
	if s.Keyword != "confirm" {
		return false
	}
	told := within(s.after, 1, "that") && within(s.after, 3, "i we our you your we're we'll i'll")
	switch {
	case within(s.before, 2, "me") && within(s.before, 3, "let"), within(s.after, 1, "whether if which how"), strings.Contains(s.text[s.from:s.to], "`"):
		return true
	case within(s.before, 1, "to and") && !told && !within(s.before, 3, "happy glad pleased like writing"):
		return true
	case within(s.before, 2, "tests test results logs output this that which data code it evidence run build check") && !within(s.before, 4, sender):
		return true
	}
	// The sender reports what they have seen.
	return within(s.after, 2, "that whether if the by") && within(s.after, 8, "file files test tests build code error errors works passes pass runs exists exist value values function output bug fix fixed correct empty missing branch line config server")
}

// orders reports whether the sentence begins with the keyword as a demand: "Book the 9:40",
// "please reserve two".
func (s *sign) orders() bool {
	if s.Rule != RuleKeyword || s.word != s.Keyword || !inList(s.Keyword, "book reserve schedule approve allocate assign") {
		return false
	}
	return len(s.before) == 0 && len(s.after) > 0 || within(s.before, 1, "please kindly let's then and") && len(s.before) < 5
}

// settles reports whether the sentence tells the reader of a decision: "your table is booked".
func (s *sign) settles() bool {
	return strings.HasSuffix(s.word, "ed") && within(s.before, 2, beingHeld) && !s.conditional() && !s.denied() &&
		(within(s.before, 8, "your you you're") || within(s.after, 6, "you your") || s.Keyword == "agree" || len(s.before) < 4 && within(s.before, 3, "it it's that's everything"))
}

// hasSum reports whether a sum of money is in the sentence.
func (s *sign) hasSum() bool {
	for pos := s.from; pos < s.to; pos++ {
		if s.text[pos]-'0' >= 10 || pos > s.from && (s.text[pos-1]-'0' < 10 || wordByte(s.text[pos-1])) {
			continue
		}
		end := number(s.text, pos)
		if s.d.denominated(s.text, pos, end) {
			if _, _, strong := s.d.amount(s.text, pos, end); strong {
				return true
			}
		}
		pos = max(pos, end-1)
	}
	return strings.ContainsAny(s.text[s.from:s.to], "€£¥") || within(wordsOf(s.text[s.from:s.to]), maxSentence, "dollar dollars euro euros bucks pounds usd eur gbp chf")
}

// dated reports whether a date or a time is in the sentence.
func (s *sign) dated() bool {
	sentence := s.text[s.from:s.to]
	month := false
	for _, word := range wordsOf(sentence) {
		if month && word[0]-'0' < 10 {
			return true
		}
		if month = inList(word, "march may mar"); s.d.termOf(word)&timed != 0 && !inList(word, "min mins later till until soon week weeks month months day days hour hours minute minutes") || ordinal(word) {
			return true
		}
	}
	for pos := range len(sentence) {
		if sentence[pos]-'0' < 10 && (pos == 0 || !wordByte(sentence[pos-1])) && datedAt(sentence[pos:]) {
			return true
		}
	}
	return strings.Contains(strings.ToLower(sentence), "next week") || strings.Contains(strings.ToLower(sentence), "next month")
}

// dateWords follow the number of a time or of a day, at least with their beginning.
var dateWords = [...]string{"am", "pm", "o'clock", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

// datedAt reports whether a text begins with a date or a time: 9:30, 9 am, 12 March, 2026-01-02.
func datedAt(text string) bool {
	digits := 0
	for digits < len(text) && text[digits]-'0' < 10 {
		digits++
	}
	rest := text[digits:]
	switch {
	case digits == 4 && len(rest) > 5 && rest[0] == '-' && rest[3] == '-':
		return true
	case digits > 2:
		return false
	case len(rest) > 2 && rest[0] == ':' && rest[1]-'0' < 10 && rest[2]-'0' < 10:
		return true
	case len(rest) > 1 && (rest[0] == '/' || rest[0] == '.') && rest[1]-'0' < 10 && len(rest) > 3 && rest[2] == rest[0]:
		return true
	}
	rest = strings.ToLower(strings.TrimLeft(rest, " "))
	return slices.ContainsFunc(dateWords[:], func(word string) bool { return strings.HasPrefix(rest, word) })
}

// limited reports whether the sentence sets a deadline.
func (s *sign) limited() bool {
	return s.Keyword == "deadline" || within(s.before, len(s.before), "by before until till due latest within deadline") || within(s.after, len(s.after), "by before until till due latest within deadline")
}
