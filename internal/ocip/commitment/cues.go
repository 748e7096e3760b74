package commitment

import (
	"slices"
	"strings"
)

// cue tries the openers at pos and returns the family and the end of the
// longest one that holds, or 0.
func (d *Detector) cue(text string, pos int, answers bool) (family string, languages uint16, end int) {
	var (
		ends [4]struct {
			end    int
			phrase uint16
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
			ends[found].end, ends[found].phrase = before, n-1
			found++
		}
		if sym == 0 {
			break
		}
		if at = d.cues.step(at, sym); at == 0 {
			break
		}
	}
	for found--; found >= 0; found-- {
		p := &d.phrases[ends[found].phrase]
		if end, own := d.holds(text, pos, ends[found].end, p.then); end > 0 {
			if own && !answers { // after a question, somebody relies on it
				return NextStep, 0, end
			}
			return p.family, p.languages, end
		}
	}
	return "", 0, 0
}

// holds checks the condition of an opener from start to end. It returns the end of the cue, or 0,
// and whether the cue is only the sender's own next step.
func (d *Detector) holds(text string, start, end int, condition then) (past int, own bool) {
	r := reader{a: d.atlas, text: text, pos: end}
	switch condition {
	case always:
		return end, false
	case spoken:
		if asked(text, end) {
			return 0, false
		}
		return end, false
	case aDeed:
		if d.doubted(text, start) {
			return 0, false
		}
		return d.deed(&r, start)
	case aHandout:
		return d.followed(&r, handouts), false
	case anOrder:
		if w := r.word(); !opensSentence(text, start) || !w.is("my") && !w.is("our") && !figureNext(text, end) || asked(text, end) {
			return 0, false
		}
		return end, false
	case aPurchase, aGift, aLeaving, aJudgement, aPresent, aPermission:
		c := clause{d, text, start, end}
		return c.holds(condition), false
	case aTimeBefore:
		if asked(text, end) || d.denied(text, start) || leftOpen(text, start) || !clock(text, start) && !back(text, start, 2, func(_ int, s string) bool { return d.termOf(s)&timed != 0 || ordinal(s) }) {
			return 0, false
		}
		if w := r.word(); w.n > 0 && !fitting.has(&w) {
			return 0, false
		}
		return end, false
	case aDeedUnsaid:
		if !opensSentence(text, start) && (text[start]|0x20) != 'i' {
			return d.promised(&r, start), false
		}
		if c := (clause{d, text, start, end}); c.ill() {
			return d.deed(&reader{a: d.atlas, text: text, pos: end}, start)
		}
		// "ILL" and "ill" also mean sick.
		if !opensSentence(text, start) || strings.HasSuffix(strings.TrimRight(text[:start], " "), ",") || text[start] == 'i' || asked(text, end) {
			return 0, false
		}
		return d.followed(&r, unsaid), false
	case aDeedNow:
		w := r.word()
		if w.n < 6 || !w.endsIn("ing") || d.doubted(text, start) {
			return 0, false
		}
		base := string(w.letters[:min(w.n, maxWord)-3])
		if d.verbs[base] != deed && d.verbs[base+"e"] != deed && !w.is("letting") && !w.is("putting") || asked(text, r.pos) {
			return 0, false
		}
		return r.pos, d.said(text, start, r.pos) == 0 && !figureNext(text, r.pos)
	case aTime:
		if d.said(text, end, end)&timed == 0 || asked(text, end) || d.doubted(text, start) || d.denied(text, start) {
			return 0, false
		}
		return end, false
	case aSealing:
		return d.sealed(&r, start, end), false
	case aDoneAlone:
		if strings.Trim(text[:start], " \t\n*_") != "" || !closesSentence(text, end) || asked(text, end) || strings.HasPrefix(text[end:], ":") {
			return 0, false
		}
		return end, false
	case aDoneNow:
		if !back(text, start, 4, func(_ int, s string) bool { return oneOf(s, "your") }) ||
			!back(text, start, 4, func(_ int, s string) bool { return d.termOf(s)&bought != 0 }) {
			return 0, false
		}
		return d.done(&r, start), false
	case aChoice:
		if closesSentence(text, end) && !asked(text, end) && hasSuffixFold(text[:end], "it is") && chosen(text, start) {
			return end, false
		}
		if !closesSentence(text, end) || asked(text, end) || !back(text, start, 1, func(_ int, s string) bool { return d.termOf(s)&timed != 0 || ordinal(s) }) && !clock(text, start) {
			return 0, false
		}
		return end, false
	case aPart:
		return d.followed(&r, parts), false
	case aDeedOfOurs:
		return d.followed(&r, housed), false
	case anOffer:
		if past := d.followed(&r, offers); past > 0 && !asked(text, past) && !d.doubted(text, start) && (d.said(text, start, past)&timed != 0 ||
			figureNext(text, past) && hasSuffixFold(text[:past], "manage")) {
			return past, false
		}
		return 0, false
	case aDone:
		return d.done(&r, start), false
	case anObject:
		if w := r.word(); w.n > 0 && objects.has(&w) && !asked(text, r.pos) && !d.doubted(text, start) {
			return r.pos, false
		}
		return 0, false
	case aYesBare:
		if !opensSentence(text, start) || !closesSentence(text, end) {
			return 0, false
		}
	case aYesAlone:
		// A colon introduces something that happens now: "Let's do it:".
		if !closesSentence(text, end) || (text[start]|0x20) == 'l' && strings.HasPrefix(strings.TrimLeft(text[end:min(len(text), end+4)], "* "), ":") {
			return 0, false
		}
	case aYesTo:
		if w := r.word(); w.n > 0 && !accepted.has(&w) || w.n == 0 && !closesSentence(text, end) {
			return 0, false
		}
	case aYesOpens:
		if !opensSentence(text, start) {
			return 0, false
		}
	case aYes:
	}
	if asked(text, end) || d.denied(text, start) || leftOpen(text, start) {
		return 0, false
	}
	return end, false
}

// leftOpen reports whether a yes leaves the choice to the other side: "any answer by tomorrow is
// fine", "a reply before Friday works for us".
func leftOpen(text string, start int) bool {
	limited := false
	return back(text, start, 8, func(_ int, s string) bool {
		limited = limited || limits.holds(s)
		return openEnded.holds(s) || limited && unnamed.holds(s)
	})
}

// chosen reports whether a few words before "it is" begin their sentence and name something: "Lunch
// it is".
func chosen(text string, start int) bool {
	first, words := start, 0
	if back(text, start, 4, func(at int, s string) bool {
		first = at
		words++
		return noChoice.holds(s)
	}) {
		return false
	}
	return words > 0 && words < 4 && opensSentence(text, first)
}

// sealed looks for the outcome after a proposal. Without a verb, the proposal must open its
// sentence: "Offer accepted."
func (d *Detector) sealed(r *reader, start, end int) int {
	verb := false
	if hasSuffixFold(r.text[:end], "deal") && opensSentence(r.text, start) && closesSentence(r.text, end) && !asked(r.text, end) && !d.denied(r.text, start) {
		return end
	}
	for range 5 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case sealing.has(&w):
			if !verb && !opensSentence(r.text, start) || asked(r.text, r.pos) || d.denied(r.text, start) ||
				back(r.text, start, 6, func(_ int, s string) bool { return d.termOf(s)&(doubts|against) != 0 || notYet.holds(s) }) {
				return 0
			}
			return r.pos
		case auxiliary.has(&w):
			verb = true
		case w.is("now"), w.is("hereby"), w.is("already"), w.is("just"), w.is("as"), w.is("and"):
		default:
			return 0
		}
	}
	return 0
}

// promised weighs "will" after somebody other than the sender, for whom the sender may speak: "the
// invoice will be paid on Friday", "my colleague will call you".
func (d *Detector) promised(r *reader, start int) int {
	if back(r.text, start, 1, func(_ int, s string) bool {
		return speakers.holds(s)
	}) {
		return 0
	}
	for range 4 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case w.is("be"):
			next := r.word()
			said := d.said(r.text, r.pos, r.pos)
			if next.n == 0 || (!delivered.has(&next) || said&(addressed|timed) == 0) && (!awaited.has(&next) || said&timed == 0) {
				return 0
			}
		case presents.has(&w) || comings.has(&w):
			if d.said(r.text, r.pos, r.pos) == 0 {
				return 0
			}
		case d.verbs[string(w.letters[:min(w.n, maxWord)])] == filler || w.endsIn("ly"):
			continue
		default:
			return 0
		}
		if asked(r.text, r.pos) || d.denied(r.text, start) {
			return 0
		}
		return r.pos
	}
	return 0
}

// followed returns the end of the next word, after adverbs, if it is in a list, or 0.
func (d *Detector) followed(r *reader, of list) int {
	for range 4 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case of.has(&w):
			return r.pos
		case d.verbs[string(w.letters[:w.n])] != filler && (!w.endsIn("ly") || endedInLy.has(&w)):
			return 0
		}
	}
	return 0
}

// deed looks past adverbs for the verb after an opener. It reports whether the verb is the sender's
// own work without anything in its clause that makes a promise of it.
func (d *Detector) deed(r *reader, start int) (end int, own bool) {
	for nth := range 5 {
		w := r.word()
		if w.n == 0 {
			// "Who does it?" - "I will."
			if rest := r.text[r.pos:]; nth == 0 && opensSentence(r.text, start) && rest != "" && (rest[0] == '.' || rest[0] == '!') {
				return r.pos, false
			}
			return 0, false
		}
		end := r.pos
		if w.is("be") {
			next := r.word()
			switch {
			case next.n == 0 || errands.has(&next):
				return 0, false
			case beings.has(&next), next.is("your"), next.is("yours"):
				return r.pos, false
			case next.is("able"):
				return r.pos, d.said(r.text, start, r.pos) == 0
			case next.endsIn("ing"):
				base := string(next.letters[:next.n-3])
				return r.pos, d.verbs[base] != deed && d.verbs[base+"e"] != deed && d.said(r.text, start, r.pos) == 0
			}
			return 0, false
		}
		switch d.verbs[string(w.letters[:min(w.n, maxWord)])] {
		case filler:
			continue
		case work:
			if w.endsIn("ly") && !endedInLy.has(&w) {
				continue
			}
		case deed:
			if w.is("keep") {
				// "I'll keep you posted", and not "I'll keep searching".
				if next := r.word(); next.endsIn("ing") {
					return end, d.said(r.text, start, end) == 0
				}
			}
			return end, false
		case state:
			return 0, false
		case looking:
			switch next := r.word(); {
			case next.is("forward"):
				return 0, false
			case next.is("into"), next.is("after"):
				return r.pos, false
			}
		case seeing:
			if next := r.word(); !next.is("you") && !next.is("to") {
				return 0, false
			}
			return r.pos, false
		case studying, helping:
			return end, (&clause{d, r.text, start, end}).own(d.verbs[string(w.letters[:w.n])])
		case thing:
			// "I'll take 2", "I'll take the 18th".
			after := end
			next := r.word()
			if next.is("the") {
				after = r.pos
			}
			switch {
			case next.is("to") && (w.is("have") || w.is("get")):
				return 0, false
			case figureNext(r.text, after), slices.Contains(d.things[string(w.letters[:min(w.n, maxWord)])], string(next.letters[:min(next.n, maxWord)])):
				return end, false
			case next.is("the"):
				// "I'll take the blue one".
				for range 3 {
					if next = r.word(); next.is("one") || next.is("offer") || next.is("rest") || next.is("deal") || next.is("room") {
						return end, false
					}
				}
			}
		}
		return end, d.said(r.text, start, end) == 0
	}
	return 0, false
}

// done looks past adverbs for a completed deed, after "has been" and "I've".
func (d *Detector) done(r *reader, start int) int {
	for range 4 {
		w := r.word()
		if w.n == 0 {
			return 0
		}
		switch t := d.term(&w); {
		case t&settled != 0:
		case t&finished != 0:
			// The owner matters: "Your order has been changed", and not "the file".
			if d.said(r.text, start, r.pos)&(addressed|timed) == 0 && !back(r.text, start, 6, func(_ int, s string) bool {
				return d.termOf(s)&(fund|bought) != 0 || oneOf(s, "your", "you")
			}) {
				return 0
			}
		case d.verbs[string(w.letters[:w.n])] == filler || w.is("been") || w.is("already") || w.endsIn("ly"):
			continue
		default:
			return 0
		}
		if asked(r.text, r.pos) || d.denied(r.text, start) {
			return 0
		}
		return r.pos
	}
	return 0
}

// maxClause bounds the words of a clause that are searched for an addressee, a time or a sum.
const maxClause = 24

// said searches the clause around a cue for an addressee, a time and a sum.
func (d *Detector) said(text string, start, end int) (what term) {
	back(text, start, 6, func(_ int, s string) bool {
		what |= d.termOf(s) & timed
		return false
	})
	stop := min(len(text), end+maxSentence)
	for pos, words := end, 0; pos < stop && words < maxClause; {
		c := text[pos]
		switch {
		case c == '$', strings.HasPrefix(text[pos:], "€"), strings.HasPrefix(text[pos:], "£"):
			return what | summed
		case c == '!' || c == '?' || c == ';', (c == '.' || c == ':') && (pos+1 == len(text) || text[pos+1] <= ' '):
			return what
		case c == '\n' && pos+1 < len(text) && (text[pos+1] == '\n' || text[pos+1] == '-' || text[pos+1] == '`' || text[pos+1] == '#'):
			return what
		case !wordByte(c):
			pos++
			continue
		}
		from := pos
		for pos < stop && wordByte(text[pos]) {
			pos++
		}
		words++
		word := text[from:pos]
		t := d.termOf(word)
		if t&(fund|unit) != 0 {
			what |= summed
		}
		if ordinal(word) {
			what |= timed
		}
		if c >= '0' && c <= '9' && (hasSuffixFold(word, "am") || hasSuffixFold(word, "pm") || hasSuffixFold(word, "k") || pos+2 < len(text) && text[pos] == ':' && text[pos+1]-'0' < 10) {
			what |= timed
		}
		what |= t & (addressed | timed)
	}
	return what
}

// bareYes returns the start and the end of the first sentence of a text if it only says yes, or that
// the sender wants the thing; to is 0 if it says more, or asks.
func (d *Detector) bareYes(text string) (from, to int) {
	pos, stop, yes, outright := 0, min(len(text), maxSentence), false, false
	for pos < stop && (text[pos] <= ' ' || isMarkup(rune(text[pos]))) {
		pos++
	}
	from = pos
	for pos < stop {
		switch c := text[pos]; {
		case (c == '.' || c == '!' || c == '\n') && yes, c == ',' && outright && questions(text[pos+1:stop]):
			return from, pos
		case c == '?':
			return 0, 0
		case !wordByte(c):
			pos++
		default:
			start := pos
			for pos < stop && wordByte(text[pos]) {
				pos++
			}
			word := strings.ReplaceAll(text[start:pos], "\u2019", "'")
			switch {
			case strings.EqualFold(word, "no") && noTrouble.holds(text[min(len(text), pos+1):min(len(text), pos+8)]):
			case wanting.holds(word) && yes:
				if asked(text, pos) || strings.Contains(strings.ToLower(text[pos:stop]), "n't") {
					return 0, 0
				}
				return from, pos
			case yes && d.goesOnAsYes(text, pos, word):
				return from, pos
			case affirming.holds(word):
				yes, outright = true, outright || outrightly.holds(word)
			case !padding.holds(word) && word[0] < 0x80:
				return 0, 0
			}
		}
	}
	if !yes || stop < len(text) {
		return 0, 0
	}
	return from, pos
}

// goesOnAsYes reports whether the text after a yes, with the word that ends at pos, keeps it a yes:
// "please use the card", "let's go ahead", "for two people", "and what is the address?", "send
// them".
func (d *Detector) goesOnAsYes(text string, pos int, word string) bool {
	next := func() string {
		from := pos
		for from < len(text) && (text[from] == ' ' || text[from] == ',') {
			from++
		}
		end := from
		for end < len(text) && wordByte(text[end]) {
			end++
		}
		return text[from:end]
	}
	switch {
	case strings.EqualFold(word, "please"):
		return !favours.holds(next())
	case oneOf(word, "let's", "lets"):
		return urging.holds(next())
	case strings.EqualFold(word, "for"):
		count := next()
		return count != "" && (count[0]-'0' < 10 || oneOf(count, "one", "two", "three", "four", "five", "six"))
	case oneOf(word, "proceed", "and", "also"):
		return true
	}
	return d.verbs[strings.ToLower(word)] == deed && ordered.holds(next()) && !asked(text, pos)
}

// questions reports whether a clause begins like a question.
func questions(text string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
	return openQuestions.holds(first) || oneOf(first, "can", "could", "may", "will", "would", "is", "are", "do", "does")
}

// denied reports whether the clause before pos turns a yes into a no.
func (d *Detector) denied(text string, pos int) bool {
	return back(text, pos, 8, func(_ int, word string) bool {
		return d.isTerm(word, denies) || hasSuffixFold(word, "n't") || hasSuffixFold(word, "n\u2019t")
	})
}

// doubted reports whether the text directly before pos makes a condition or a question of "I will".
func (d *Detector) doubted(text string, pos int) bool {
	return back(text, pos, 1, func(_ int, word string) bool { return d.isTerm(word, doubts) })
}
