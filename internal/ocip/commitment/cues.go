package commitment

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/text"
)

// phrase is an opener of a cue, and what must follow it to be one.
type phrase struct {
	family string
	then   then
}

// then is the condition on what surrounds an opener.
type then uint8

const (
	// always: the phrase is enough.
	always then = iota
	// aDeed: a verb follows that promises something, adverbs let past.
	aDeed
	// aHandout: a verb follows of the few that promise after "let me".
	aHandout
	// anObject: "you'll have it", and not "you'll have to".
	anObject
	// aYes: an acceptance, unless it is asked or denied.
	aYes
	// aYesAlone: an acceptance that ends its sentence: "I'm in.", and not "I'm
	// in Houston".
	aYesAlone
	// aYesBare: one that is its whole sentence: "Deal."
	aYesBare
)

// openers are the phrases of the two families of words. An apostrophe may be
// missing where no other word comes out of it.
var openers = [...]struct {
	family  string
	then    then
	phrases string // separated by commas
}{
	{FirstPersonFuture, aDeed, "i'll,we'll,i will,we will,i shall,we shall," +
		"i'm going to,i am going to,we're going to,we are going to,i'm gonna,we're gonna,i am gonna,we are gonna," +
		"i'm about to,we're about to,i am about to,we are about to,i intend to,we intend to," +
		"i'm happy to,i am happy to,i'd be happy to,i would be happy to,i'm glad to,i'd be glad to,i would be glad to," +
		"we're happy to,we are happy to,we'd be happy to,we would be happy to,we'd be glad to,we would be glad to," +
		"i'm willing to,i am willing to,we're willing to,we are willing to,i'm prepared to,we're prepared to," +
		"i am prepared to,we are prepared to,my team will,our team will"},
	{FirstPersonFuture, aHandout, "let me,allow me to"},
	{FirstPersonFuture, anObject, "you'll have,you will have,you'll get,you will get,you'll receive,you will receive"},
	{FirstPersonFuture, always, "it'll be ready,it will be ready,it'll be done,it'll be there,it'll be sent,it'll be delivered," +
		"it'll be finished,it'll be shipped,leave it to me,leave it with me,leave that to me,leave this to me," +
		"rest assured"},
	{FirstPersonFuture, aYes, "count me in,count us in,count on me,count on us,count on it,i'm on it,i am on it,we're on it,we are on it"},
	{Acceptance, aYes, "works for me,works for us,works great,works fine,works well for me,works fine for me,works great for me," +
		"work for me,work for us,fine by me,fine by us,fine with me,fine with us,okay with me,ok with me,good with me,good for me," +
		"sounds good,sounds great,sounds fine,sounds perfect,let's do it,let's do that,let's do this,let's go with,let's go ahead," +
		"consider it done,consider it handled,consider it sorted,you have my word,you've got my word,i give you my word,we have a deal," +
		"we've got a deal,you have a deal,you've got a deal,you got a deal,it's a deal,it is a deal,that's a deal," +
		"it's a date,i accept,we accept,i hereby accept,we hereby accept," +
		"i can do that,we can do that,i could do that,see you then,see you there,you can go ahead,please go ahead,feel free to go ahead," +
		"happy to do that,happy to do so,happy to do it,glad to do that,glad to do it,glad to do so"},
	{Acceptance, aYesAlone, "i'm in,i am in,we're in,we are in,count us in,you're on,you got it,no objection,no objections,i'll take it,we'll take it"},
	{Acceptance, aYesBare, "deal,will do,on it,accepted,done deal,go ahead,you bet,sure thing"},
}

// verb is what a word after an opener says about it. A verb that is not listed
// is a deed: "I'll" is a promise more often than not.
type verb uint8

const (
	deed verb = iota
	// filler is let past: "I'll gladly send".
	filler
	// state is no deed: "I'll need", "I will not".
	state
	// having is a deed with an object: "I'll have it done", not "I'll have to".
	having
	// looking is none when it is forward.
	looking
)

var verbLists = [...]struct {
	verb  verb
	words string
}{
	{filler, "also then definitely certainly surely gladly happily personally probably likely now just immediately" +
		" first again soon still only quickly all both"},
	{state, "not never hardly need assume guess admit say know think see miss like love bet hope want wish understand" +
		" regret remain wonder believe presume suppose remember recall forget hate lose learn hear find always" +
		" wait pass survive live die fail require lack grant spare" +
		" the a an my your our his her their this that no to it in on at for from with by home"},
	{having, "have get"},
	{looking, "look"},
}

// handouts are the deeds that follow "let me". Most of what does is no promise:
// "let me know", "let me see".
const handouts = "send handle arrange set forward deliver fix sort organize organise prepare draft email mail schedule book confirm"

// objects are what a sender promises with "you'll have".
const objects = "it them everything this these those my our the"

// beings are what makes a deed of "I'll be".
const beings = "there happy glad able sure"

// errands are what does not.
const errands = "going seeing traveling travelling leaving having heading looking wondering"

func (d *Detector) learnCues() {
	d.cues.nodes = make([]node, 1, 1024)
	learn := func(spelled string, p phrase) {
		symbols := make([]glyph, len(spelled))
		for i := range symbols {
			switch c := spelled[i]; c {
			case ' ':
				symbols[i] = symGap
			case '\'':
				symbols[i] = symApostrophe
			default:
				symbols[i] = letterOf(c)
			}
		}
		d.cues.add(symbols, len(d.phrases))
		d.phrases = append(d.phrases, p)
	}
	for _, row := range openers {
		if d.modes[row.family] == Off {
			continue
		}
		for spelled := range strings.SplitSeq(row.phrases, ",") {
			learn(spelled, phrase{row.family, row.then})
			first, _, _ := strings.Cut(spelled, " ")
			switch first {
			case "i'll", "we'll", "we're", "i'd", "we'd":
				// Ill, well, were, id, wed.
			default:
				if bare := strings.ReplaceAll(spelled, "'", ""); bare != spelled {
					learn(bare, phrase{row.family, row.then})
				}
			}
		}
	}
	d.verbs = map[string]verb{}
	for _, row := range verbLists {
		for word := range strings.FieldsSeq(row.words) {
			d.verbs[word] = row.verb
		}
	}
	d.money = d.modes[Money] != Off
	d.learnTerms()
}

// maxGap bounds the white space and markup between two words of a cue.
const maxGap = 8

// cue tries the openers at pos and returns the family and the end of the
// longest one that holds, or 0.
func (d *Detector) cue(text string, pos int) (family string, end int) {
	var (
		ends [4]struct {
			end    int
			phrase phrase
		}
		found int
		at    uint16
	)
	r := reader{a: d.atlas, text: text, pos: pos}
	for {
		before := r.pos
		sym := r.symbol()
		if n := d.cues.nodes[at].end; n != 0 && (sym == 0 || sym == symGap) {
			if found == len(ends) {
				copy(ends[:], ends[1:])
				found--
			}
			ends[found].end, ends[found].phrase = before, d.phrases[n-1]
			found++
		}
		if sym == 0 {
			break
		}
		if at = d.cues.nodes[at].next[sym]; at == 0 {
			break
		}
	}
	for found--; found >= 0; found-- {
		if end := d.holds(text, pos, ends[found].end, ends[found].phrase.then); end > 0 {
			return ends[found].phrase.family, end
		}
	}
	return "", 0
}

// reader reads text as the symbols of the cue trie.
type reader struct {
	a    *atlas
	text string
	pos  int
}

// symbol reads one symbol: a letter, an apostrophe inside a word, the gap
// between words, or 0 for anything else and the end.
func (r *reader) symbol() glyph {
	var gap, blanks, lines int
	for r.pos < len(r.text) {
		g, c, width := r.a.at(r.text, r.pos)
		switch {
		case g == unseen, g == seam:
		case g == blank:
			if c == '\n' {
				// No cue goes on in the next paragraph.
				if lines++; lines > 1 {
					return 0
				}
			}
			blanks++
			gap++
		case isMarkup(c):
			gap++
		case gap > 0:
			if blanks > 0 {
				return symGap
			}
			// Markup with no space beside it, as in "I'**ll**".
			gap = 0
			continue
		case g.isLetter():
			r.pos += width
			return g
		case c == '\'' || c == '\u2019' || c == '\u02bc' || c == '\uff07' || c == '`':
			r.pos += width
			return symApostrophe
		default:
			return 0
		}
		if gap > maxGap {
			return 0
		}
		r.pos += width
	}
	return 0
}

func isMarkup(c rune) bool { return c == '*' || c == '_' || c == '~' || c == '"' }

// maxWord bounds what a word of a cue can be; a longer one is none of the
// listed.
const maxWord = 20

// word is a word of the text in plain lower case, without apostrophes.
type word struct {
	letters [maxWord]byte
	n       int
}

func (w *word) is(s string) bool { return string(w.letters[:w.n]) == s }

func (w *word) endsIn(s string) bool { return w.n > len(s) && string(w.letters[w.n-len(s):w.n]) == s }

// word reads the next word, across one gap; its length is 0 if something other
// than a word comes next.
func (r *reader) word() (w word) {
	for {
		before := r.pos
		switch sym := r.symbol(); {
		case sym == symGap && w.n == 0:
		case sym == symApostrophe:
		case sym == 0 || sym == symGap:
			r.pos = before
			return w
		default:
			if w.n < maxWord {
				w.letters[w.n] = byte(sym) - 1 + 'a'
			}
			w.n = min(w.n+1, maxWord)
		}
	}
}

// holds weighs the condition of an opener that stands from start to end, and
// returns where the cue ends, or 0.
func (d *Detector) holds(text string, start, end int, condition then) int {
	r := reader{a: d.atlas, text: text, pos: end}
	switch condition { //nolint:exhaustive // a plain yes has no more to hold than what comes behind the switch
	case always:
		return end
	case aDeed:
		if d.doubted(text, start) {
			return 0
		}
		return d.deed(&r)
	case aHandout:
		if w := r.word(); w.n > 0 && listed(handouts, &w) {
			return r.pos
		}
		return 0
	case anObject:
		if w := r.word(); w.n > 0 && listed(objects, &w) && !asked(text, r.pos) && !d.doubted(text, start) {
			return r.pos
		}
		return 0
	case aYesBare:
		if !opensSentence(text, start) {
			return 0
		}
		fallthrough
	case aYesAlone:
		if !closesSentence(text, end) {
			return 0
		}
	}
	if asked(text, end) || d.denied(text, start) {
		return 0
	}
	return end
}

// deed looks past adverbs for the verb after an opener.
func (d *Detector) deed(r *reader) int {
	for range 5 {
		w := r.word()
		if w.n == 0 {
			return 0
		}
		if w.is("be") {
			next := r.word()
			if next.n > 0 && (listed(beings, &next) || next.endsIn("ing") && !listed(errands, &next)) {
				return r.pos
			}
			return 0
		}
		switch d.verbs[string(w.letters[:w.n])] { //nolint:exhaustive // any other word is passed over
		case deed:
			return r.pos
		case state:
			return 0
		case having:
			end := r.pos
			if next := r.word(); next.is("to") || next.n == 0 {
				return 0
			}
			return end
		case looking:
			end := r.pos
			if next := r.word(); next.is("forward") {
				return 0
			}
			return end
		}
	}
	return 0
}

// listed reports whether a word is one of a list separated by spaces.
func listed(list string, w *word) bool {
	for one := range strings.FieldsSeq(list) {
		if w.is(one) {
			return true
		}
	}
	return false
}

// maxSentence bounds how far the surroundings of a cue are looked at, in
// bytes, so that a text of one endless sentence costs no more than another.
const maxSentence = 160

// asked reports whether the sentence that goes on at pos ends in a question
// mark.
func asked(text string, pos int) bool {
	for i := pos; i < min(len(text), pos+maxSentence); i++ {
		switch text[i] {
		case '?':
			return true
		case '!', ';':
			return false
		case '\n':
			if i+1 < len(text) && text[i+1] == '\n' {
				return false
			}
		case '.':
			if i+1 == len(text) || text[i+1] <= ' ' {
				return false
			}
		}
	}
	return false
}

// opensSentence reports whether a sentence or a line begins at pos.
func opensSentence(text string, pos int) bool {
	for pos > 0 {
		r, width := utf8.DecodeLastRuneInString(text[:pos])
		switch {
		case r == ' ' || r == '\t' || isMarkup(r) || r == '>' || passed(r):
			pos -= width
		default:
			return strings.ContainsRune(".!?:;,\n\r-\u2013\u2014", r)
		}
	}
	return true
}

// closesSentence reports whether a sentence or a clause ends at pos.
func closesSentence(text string, pos int) bool {
	for pos < len(text) {
		r, width := utf8.DecodeRuneInString(text[pos:])
		switch {
		case r == ' ' || r == '\t' || isMarkup(r) || passed(r):
			pos += width
		default:
			return strings.ContainsRune(".!?:;,)\n\r-\u2013\u2014", r)
		}
	}
	return true
}

// back walks the words before pos, nearest first, up to the beginning of the
// clause, and stops when yes says so of the word at start.
func back(text string, pos, words int, yes func(start int, word string) bool) bool {
	stop := max(0, pos-maxSentence)
	for end := pos; end > stop && words > 0; {
		c := text[end-1]
		if c == ' ' || c == '\t' || c == '*' || c == '_' || c == '"' || c == '\'' || c == '(' {
			end--
			continue
		}
		if !wordByte(c) {
			return false
		}
		start := end
		for start > stop && wordByte(text[start-1]) {
			start--
		}
		if yes(start, text[start:end]) {
			return true
		}
		end = start
		words--
	}
	return false
}

// wordByte takes every byte above ASCII for a letter: the words looked for
// have none but the curly apostrophe.
func wordByte(c byte) bool {
	return c >= 0x80 || c == '\'' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// denied reports whether the clause before pos turns a yes into a no.
func (d *Detector) denied(text string, pos int) bool {
	return back(text, pos, 8, func(_ int, word string) bool {
		return d.isTerm(word, denies) || hasSuffixFold(word, "n't") || hasSuffixFold(word, "n\u2019t")
	})
}

// doubted reports whether what stands right before pos makes a condition or a
// question of "I will".
func (d *Detector) doubted(text string, pos int) bool {
	return back(text, pos, 1, func(_ int, word string) bool { return d.isTerm(word, doubts) })
}

// passed reports what does not show and ends no line.
func passed(r rune) bool { return !text.Shows(r) && r != '\n' && r != '\r' }

func oneOf(word string, list ...string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, word) })
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
