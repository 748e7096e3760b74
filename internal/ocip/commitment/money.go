package commitment

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// term is the meaning of a word near a sum.
type term uint32

const (
	// giving is a verb that moves money from the sender: pay, offer.
	giving term = 1 << iota
	// ours is the sender: I, we.
	ours
	// theirs is somebody else, or a wish: then the sender does not give the sum.
	theirs
	// against is a denial or a condition.
	against
	// fund is a noun for a granted sum: budget, discount.
	fund
	// granted is a word for the grant: approved.
	granted
	// unit makes a number a sum: dollars, million.
	unit
	// cut takes a share off a price: "10% off".
	cut
	// denies turns a yes into a no, doubts an "I will" into a question: words of the other
	// families.
	denies
	doubts
	// addressed, timed and summed make a promise of a step: the addressee, the time, and the sum.
	addressed
	timed
	summed
	// settled is a completed deed that needed somebody's decision: cancelled. finished is one for
	// things that people order and own: "your order has been changed". bought names those things.
	settled
	finished
	bought
	// priced is a verb of giving that makes a bare number a sum: "pay 500".
	priced
)

var termLists = [...]struct {
	term  term
	words string
}{
	{giving, "pay paying offer offering refund refunding reimburse reimbursing transfer transferring wire wiring spend spending" +
		" lend lending donate donating contribute contributing credit crediting cover covering give giving knock invest investing" +
		" settle settling discount discounting compensate charge charging bid bidding sell selling buy buying sponsor fund advance" +
		" advancing accept accepting"},
	{priced, "pay paying offer offering refund refunding reimburse reimbursing transfer transferring wire wiring spend spending donate donating" +
		" contribute contributing bid bidding charge"},
	{ours, "i we ill well id wed im were ive weve lets my our happy willing prepared glad us"},
	{theirs, "you youll youd your he she they hell shell theyll his her their please who it its"},
	{against, "calculate compute find determine not never cannot cant wont dont didnt doesnt couldnt wouldnt if unless whether no without how"},
	{fund, "bill bills rent tab costs budget budgets offer discount refund price quote fee rebate bonus raise payment deposit credit loan advance grant sum"},
	{granted, "approved accepted granted cleared authorized authorised signed released ok okay fine works settled available agreed"},
	{unit, "k m bn mm million millions billion thousand grand usd eur gbp chf jpy cad aud dollar dollars euro euros pound pounds" +
		" bucks quid yen cents francs"},
	{cut, "off discount rebate back"},
	{denies, "not no never nothing neither none nor cannot hardly dont doesnt wont if whether unless what whatever whichever"},
	{addressed, "you your yours u ya yourself yall youre"},
	{timed, "today tonight tomorrow tmrw monday tuesday wednesday thursday friday saturday sunday weekend week weeks month months noon midnight" +
		" morning afternoon evening eod eow cob asap january february april june july august september october november december" +
		" hour hours minute minutes min mins day days shortly soon later oclock quarter till until"},
	{settled, "cancelled canceled paid refunded reimbursed purchased bought ordered shipped dispatched signed waived credited wired" +
		" booked reserved scheduled confirmed approved rescheduled rebooked"},
	{finished, "changed updated modified placed completed processed sent made added issued transferred set arranged upgraded applied exchanged" +
		" returned submitted successful accepted activated renewed charged extended removed granted moved blocked waived put"},
	{bought, "order orders payment booking bookings reservation reservations ticket tickets flight flights subscription appointment refund transfer" +
		" purchase table cab taxi ride rental car rooms hotel seat seats bus train invoice contract application cancellation exchange account trip" +
		" itinerary visit request certificate assistance access table"},
	{doubts, "if whether unless when how what where why doubt wonder wondering wish suppose asked asks"},
}

func (d *Detector) learnTerms() {
	said := map[string]term{}
	for _, row := range termLists {
		for word := range strings.FieldsSeq(row.words) {
			said[word] |= row.term
		}
	}
	for word, t := range said {
		letters := make([]glyph, len(word))
		for i := range letters {
			letters[i] = letterOf(word[i])
		}
		d.terms.add(letters, len(d.meanings))
		d.meanings = append(d.meanings, t)
	}
	d.terms.pack()
}

// term returns the meaning of a word that was read, and termOf that of one in the text, in any case
// and with its apostrophes. Neither copies anything, since a text can consist of sums with a dozen
// words to check around each.
func (d *Detector) term(w *word) term {
	at := uint16(0)
	for _, c := range w.letters[:min(w.n, maxWord)] {
		if at = d.terms.step(at, letterOf(c)); at == 0 {
			return 0
		}
	}
	return d.termAt(at)
}

func (d *Detector) termOf(word string) term {
	at := uint16(0)
	for _, r := range word {
		if r == '\'' || r == '\u2019' {
			continue
		}
		if r < utf8.RuneSelf {
			r |= 'a' - 'A'
		} else {
			r = unicode.ToLower(r)
		}
		if r < 'a' || r > 'z' {
			return 0
		}
		if at = d.terms.step(at, letterOf(byte(r))); at == 0 {
			return 0
		}
	}
	return d.termAt(at)
}

// isTerm reports whether a word has the meaning t as it is spelled: an apostrophe makes it another
// word.
func (d *Detector) isTerm(word string, t term) bool {
	return d.termOf(word)&t != 0 && !strings.ContainsAny(word, "'\u2019")
}

func (d *Detector) termAt(node uint16) term {
	if end := d.terms.nodes[node].end; end > 0 {
		return d.meanings[end-1]
	}
	return 0
}

// number returns the end of the number that begins at pos: "1,200.50".
func number(text string, pos int) int {
	for pos < len(text) && (text[pos] >= '0' && text[pos] <= '9' ||
		(text[pos] == ',' || text[pos] == '.') && pos+1 < len(text) && text[pos+1] >= '0' && text[pos+1] <= '9') {
		pos++
	}
	return pos
}

// sum weighs the number from pos to past: whether it is a sum of money, and whether the words
// around it say that the sender gives it. It returns the stretch from those words to the sum, or
// from the sum to them.
func (d *Detector) sum(text string, pos, past int) (start, end int, ok bool) {
	from, to, strong := pos, past, false
	if d.denominated(text, pos, past) {
		from, to, strong = d.amount(text, pos, past)
	}
	if !strong && !d.pricedBefore(text, pos) {
		return 0, 0, false
	}
	start, end, ok = d.given(text, from, to, strong)
	// This check comes last: most numbers are no sums that anybody gives.
	return start, end, ok && !asked(text, to)
}

// given looks for the words that reveal a gift of the sum from start to end, and returns the
// stretch from or to them.
func (d *Detector) given(text string, start, end int, strong bool) (from, to int, ok bool) {
	if from, ok := d.parted(text, start, strong); ok {
		return from, end, true
	}
	if !strong {
		return 0, 0, false
	}
	// "$500 works", "20k approved", "budget of 20k approved", and "10% off for
	// you" after an offer.
	r := reader{a: d.atlas, text: text, pos: end}
	for range 3 {
		w := r.word()
		if w.n == 0 {
			break
		}
		switch t := d.term(&w); {
		case t&against != 0:
			return 0, 0, false
		case t&granted != 0:
			if d.denied(text, start) {
				return 0, 0, false
			}
			return start, r.pos, true
		}
	}
	if from, ok := d.grantedBefore(text, start); ok {
		return from, end, true
	}
	return 0, 0, false
}

// pricedBefore reports whether the word before a number is a verb of giving that makes it a sum.
// Without one, a bare number is no sum.
func (d *Detector) pricedBefore(text string, pos int) bool {
	for ; pos > 0; pos-- {
		switch c := text[pos-1]; c {
		case ' ', '\t', '*', '_', '"', '\'', '(':
			continue
		case '\n', '\r':
			if wrapped(text, pos-1) {
				continue
			}
		}
		break
	}
	if pos == 0 {
		return false
	}
	switch text[pos-1] | 0x20 {
	case 'y', 'g', 'r', 'd', 'e', 0xe2, '\'':
	default:
		return false // no such verb ends in it
	}
	end := pos
	for pos > 0 && end-pos < maxWord && wordByte(text[pos-1]) {
		pos--
	}
	return pos < end && d.termOf(text[pos:end])&priced != 0
}

// denominated reports whether something beside a number could make it a sum. Most numbers have
// nothing of the kind.
func (d *Detector) denominated(text string, pos, end int) bool {
	for pos > 0 && text[pos-1] == ' ' {
		pos--
	}
	if pos > 0 {
		switch c := text[pos-1] | 0x20; {
		case c == '$', c >= utf8.RuneSelf:
			return true
		case c == 'd' || c == 'r' || c == 'p' || c == 'f':
			if pos > 2 && oneOf(text[pos-3:pos], "usd", "eur", "gbp", "chf") {
				return true
			}
		}
	}
	const plain = ".,:;)]-/+(|}=<>" // signs that belong to no word, and are not skipped
	past := end
	for past < len(text) && past-end < maxGap && (text[past] == ' ' || isMarkup(rune(text[past]))) {
		past++
	}
	if past < len(text) && strings.IndexByte(plain, text[past]) >= 0 {
		return false
	}
	if past > end && text[end] == ' ' {
		end++
	}
	at := uint16(0)
	for ; end < len(text) && plainLetter[text[end]] != 0; end++ {
		if at = d.terms.step(at, plainLetter[text[end]]); at == 0 {
			return false
		}
	}
	if end < len(text) && strings.IndexByte(plain, text[end]) < 0 && (at == 0 || text[end] != ' ') {
		return true
	}
	return d.termAt(at)&unit != 0
}

// maxCurrency bounds the distance from a currency to its number, in bytes.
const maxCurrency = 8

// amount reads the sum around the number from pos to end. It is strong if a currency or a
// multiplier makes the number money, or if it is a share of a price.
func (d *Detector) amount(text string, pos, end int) (start, past int, strong bool) {
	start = pos
	before := strings.TrimRight(text[max(0, pos-maxCurrency):pos], " \u00a0")
	if r, width := utf8.DecodeLastRuneInString(before); r == '$' || r >= '\u20a0' && r <= '\u20cf' || r == '\u00a3' || r == '\u00a5' {
		start, strong = strings.LastIndex(text[:pos], before[len(before)-width:]), true
	} else if len(before) >= 3 {
		code := before[len(before)-3:]
		if oneOf(code, "usd", "eur", "gbp", "chf") && (len(before) == 3 || !wordByte(before[len(before)-4])) {
			start, strong = strings.LastIndex(text[:pos], code), true
		}
	}
	if end < len(text) && text[end] == '%' {
		return start, end + 1, d.share(text, start, end+1)
	}
	if r, width := utf8.DecodeRuneInString(text[end:]); r == '\u20ac' || r == '\u00a3' || r == '$' {
		return start, end + width, true
	}
	r := reader{a: d.atlas, text: text, pos: end}
	for range 2 {
		w := r.word()
		if w.n == 0 || d.term(&w)&unit == 0 {
			break
		}
		end, strong = r.pos, true
	}
	return start, end, strong
}

// share reports whether a percentage is a share of a price: "10% off", "a discount of 10%". Any
// other percentage is no money.
func (d *Detector) share(text string, start, end int) bool {
	r := reader{a: d.atlas, text: text, pos: end}
	if w := r.word(); d.term(&w)&cut != 0 {
		return true
	}
	return back(text, start, 3, func(_ int, s string) bool { return d.termOf(s)&fund != 0 })
}

// parted looks for the sender and a verb of giving in the clause before a sum. A bare number counts
// only directly after its verb: "we can pay 500".
func (d *Detector) parted(text string, start int, strong bool) (from int, ok bool) {
	var verb, stopped bool
	nth := 0
	back(text, start, 9, func(place int, s string) bool {
		nth++
		t := d.termOf(s)
		switch {
		case t&against != 0 || hasSuffixFold(s, "n't") || hasSuffixFold(s, "n\u2019t"):
			stopped = true
		case verb && t&theirs != 0:
			stopped = true
		case verb && t&ours != 0:
			from, ok = place, true
		case !verb && t&giving != 0:
			verb = strong || nth == 1 && t&priced != 0
			stopped = !verb
		case !strong && nth == 1:
			stopped = true
		}
		return stopped || ok
	})
	return from, ok && !stopped
}

// grantedBefore looks for "approved a budget of" before a sum.
func (d *Detector) grantedBefore(text string, start int) (from int, ok bool) {
	var noun, stopped bool
	back(text, start, 6, func(place int, s string) bool {
		switch t := d.termOf(s); {
		case t&(against|theirs) != 0:
			stopped = true
		case t&fund != 0:
			noun = true
		case noun && t&granted != 0:
			from, ok = place, true
		}
		return stopped || ok
	})
	return from, ok && !stopped
}
