package commitment

import (
	"strings"
	"unicode/utf8"
)

// term is what a word near a sum says about it.
type term uint16

const (
	// giving is a verb that moves money from the sender: pay, offer.
	giving term = 1 << iota
	// ours is the sender: I, we.
	ours
	// theirs is somebody else, or a wish: then the sum is not the sender's.
	theirs
	// against is a denial or a condition.
	against
	// fund is a noun that a sum is granted as: budget, discount.
	fund
	// granted is the granting of it: approved.
	granted
	// unit makes a sum of a number: dollars, million.
	unit
	// cut takes a share off a price: "10% off".
	cut
)

var termLists = [...]struct {
	term  term
	words string
}{
	{giving, "pay paying offer offering refund refunding reimburse reimbursing transfer transferring wire wiring spend spending" +
		" lend lending donate donating contribute contributing credit crediting cover covering give giving knock invest investing" +
		" settle settling discount discounting compensate charge charging bid bidding sell selling buy buying sponsor fund advance" +
		" advancing accept accepting"},
	{ours, "i we ill well id wed im were ive weve lets my our happy willing prepared glad us"},
	{theirs, "you youll youd your he she they hell shell theyll his her their please who it its"},
	{against, "not never cannot cant wont dont didnt doesnt couldnt wouldnt if unless whether no without how"},
	{fund, "budget budgets offer discount refund price quote fee rebate bonus raise payment deposit credit loan advance grant sum"},
	{granted, "approved accepted granted cleared authorized authorised signed released ok okay fine works deal settled available agreed"},
	{unit, "k m bn mm million millions billion thousand grand usd eur gbp chf jpy cad aud dollar dollars euro euros pound pounds" +
		" bucks quid yen cents francs"},
	{cut, "off discount rebate back"},
}

func (d *Detector) learnTerms() {
	d.terms = map[string]term{}
	for _, row := range termLists {
		for word := range strings.FieldsSeq(row.words) {
			d.terms[word] |= row.term
		}
	}
}

func (d *Detector) term(w *word) term { return d.terms[string(w.letters[:min(w.n, maxWord)])] }

// sum weighs the number that begins at pos: whether it is a sum of money, and
// whether the words around it say that the sender parts with it. It returns
// the stretch from the words that say so to the sum, or from the sum to them.
func (d *Detector) sum(text string, pos int) (start, end int, ok bool) {
	start, end, strong := d.amount(text, pos)
	if asked(text, end) {
		return 0, 0, false
	}
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
			if denied(text, start) {
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

// amount reads the sum around the number at pos. It is strong if a currency
// or a multiplier makes money of the number, or it is a share of a price.
func (d *Detector) amount(text string, pos int) (start, end int, strong bool) {
	start = pos
	before := strings.TrimRight(text[max(0, pos-8):pos], " \u00a0")
	if r, width := utf8.DecodeLastRuneInString(before); r == '$' || r >= '\u20a0' && r <= '\u20cf' || r == '\u00a3' || r == '\u00a5' {
		start, strong = strings.LastIndex(text[:pos], before[len(before)-width:]), true
	} else if len(before) >= 3 {
		code := before[len(before)-3:]
		if oneOf(code, "usd", "eur", "gbp", "chf") && (len(before) == 3 || !wordByte(before[len(before)-4])) {
			start, strong = strings.LastIndex(text[:pos], code), true
		}
	}
	end = pos
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' ||
		(text[end] == ',' || text[end] == '.') && end+1 < len(text) && text[end+1] >= '0' && text[end+1] <= '9') {
		end++
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

// share reports whether a per cent is one of a price: "10% off", "a discount of
// 10%". Of anything else it is no money.
func (d *Detector) share(text string, start, end int) bool {
	r := reader{a: d.atlas, text: text, pos: end}
	if w := r.word(); d.term(&w)&cut != 0 {
		return true
	}
	return back(text, start, 3, func(_ int, s string) bool { return d.terms[plain(s)]&fund != 0 })
}

// parted looks for the sender and a verb of giving in the clause before a sum.
// A bare number counts only right behind its verb: "we can pay 500".
func (d *Detector) parted(text string, start int, strong bool) (from int, ok bool) {
	var verb, stopped bool
	nth := 0
	back(text, start, 9, func(place int, s string) bool {
		nth++
		t := d.terms[plain(s)]
		switch {
		case t&against != 0 || hasSuffixFold(s, "n't") || hasSuffixFold(s, "n\u2019t"):
			stopped = true
		case verb && t&theirs != 0:
			stopped = true
		case verb && t&ours != 0:
			from, ok = place, true
		case !verb && t&giving != 0:
			verb = strong || nth == 1
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
		switch t := d.terms[plain(s)]; {
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

// plain is a word in lower case without apostrophes.
func plain(s string) string {
	s = strings.ToLower(s)
	if strings.ContainsAny(s, "'\u2019") {
		s = strings.NewReplacer("'", "", "\u2019", "").Replace(s)
	}
	return s
}
