package commitment

import "strings"

// clause is the text around an opener from start to end. Its methods are the conditions that need
// more of the clause than the next word.
type clause struct {
	*Detector
	text       string
	start, end int
}

func (c *clause) after() reader { return reader{a: c.atlas, text: c.text, pos: c.end} }

// holds checks a condition and returns the end of the cue, or 0.
func (c *clause) holds(condition then) int {
	past, yes := c.end, false
	switch condition { //nolint:exhaustive // the other conditions are checked where their words are read
	case aPurchase:
		yes = c.purchase() && !c.doubted(c.text, c.start) && !c.denied(c.text, c.start)
	case aGift:
		yes = c.plain(past) && (figureNext(c.text, past) || c.said(c.text, past, past)&(timed|summed) != 0)
	case aLeaving:
		yes = opensSentence(c.text, c.start) && c.leaves()
	case aJudgement:
		yes = c.judgement() && !asked(c.text, past) && !c.denied(c.text, c.start) && !leftOpen(c.text, c.start)
	case aPresent:
		past = c.followed(new(c.after()), presents)
		yes = past > 0 && c.said(c.text, past, past) != 0 && c.plain(past)
	case aPermission:
		past = c.followed(new(c.after()), permitted)
		yes = past > 0 && c.plain(past)
	}
	if !yes {
		return 0
	}
	return past
}

// plain reports whether the clause, which continues after end, neither asks nor denies nor doubts.
func (c *clause) plain(end int) bool {
	return !asked(c.text, end) && !c.doubted(c.text, c.start) && !c.denied(c.text, c.start)
}

// ill reports whether the opener is "Ill" for "I'll", before a verb that the sick have no use for.
func (c *clause) ill() bool {
	if c.text[c.start] != 'I' || !opensSentence(c.text, c.start) || asked(c.text, c.end) {
		return false
	}
	r := c.after()
	w := r.word()
	verb, listed := c.verbs[string(w.letters[:w.n])]
	return w.n > 0 && (w.is("work") || listed && verb != state)
}

// own reports whether the deed before the end is only the sender's own next step.
func (c *clause) own(deed verb) bool {
	if c.said(c.text, c.start, c.end)&^addressed != 0 {
		return false
	}
	// The reader matters if they are named before the purpose: "I'll read it for you".
	return deed == helping || c.said(c.text[:c.purpose()], c.start, c.end)&addressed == 0
}

// purpose returns the beginning of the clause's purpose, or the end of the text that is searched.
func (c *clause) purpose() int {
	stop := min(len(c.text), c.end+maxSentence)
	for _, word := range [...]string{" to ", " so ", " and ", " before "} {
		if at := strings.Index(c.text[c.end:stop], word); at >= 0 {
			stop = c.end + at
		}
	}
	return stop
}

// leaves reports whether the words after "leave the" name the sender as its keeper: "with us".
func (c *clause) leaves() bool {
	r, with := c.after(), false
	for range maxClause / 2 {
		w := r.word()
		switch {
		case w.n == 0:
			return false
		case with && (w.is("me") || w.is("us")):
			return true
		}
		with = w.is("with") || w.is("to")
	}
	return false
}

// judgement reports whether "is acceptable" ends its sentence, or names the one it suits: "to us".
func (c *clause) judgement() bool {
	r := c.after()
	switch w := r.word(); {
	case w.n == 0:
		rest := strings.TrimLeft(c.text[c.end:min(len(c.text), c.end+4)], " *_\"")
		return closesSentence(c.text, c.end) && (rest == "" || !strings.ContainsAny(rest[:1], ",-:"))
	case !w.is("to") && !w.is("for"):
		return false
	}
	next := r.word()
	return next.is("us") || next.is("me") || next.is("our") || next.is("my")
}

// purchase reports whether the words after an opener such as "can I get" order something.
func (c *clause) purchase() bool {
	r, counted, things := c.after(), figureNext(c.text, c.end), 0
	if counted {
		r.pos = number(c.text, r.pos+strings.IndexAny(c.text[r.pos:], "0123456789"))
	}
	for range 5 {
		w := r.word()
		if w.n == 0 || w.is("to") || w.is("you") || things == 0 && informing.has(&w) {
			break
		}
		if quantities.has(&w) {
			counted = true
		} else if !w.is("a") && !w.is("an") && !w.is("the") && !w.is("some") {
			things++
		}
	}
	return things > 0 && (counted || c.pleads(r.pos))
}

// pleads reports whether the sentence of the clause, which continues after end, says please.
func (c *clause) pleads(end int) bool {
	from, to := max(0, c.start-maxSentence/4), min(len(c.text), end+maxSentence)
	from += strings.LastIndexAny(c.text[from:c.start], ".!?\n") + 1
	if at := strings.IndexAny(c.text[end:to], ".!?\n"); at >= 0 {
		to = end + at
	}
	return strings.Contains(strings.ToLower(c.text[from:to]), "please")
}
