package commitment

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// entry is the meaning of a word in the keyword trie: a rule and the keyword that the word is or
// comes from, or neither for an innocent word. The languages that have the word are one bit each.
type entry struct {
	rule, keyword string
	languages     uint16
}

// upright replaces l by i. A capital I, a one, a bar and an l have one shape for a reader, and no
// two words of the trie differ by them.
func upright(g glyph) glyph {
	if g == 'l'-'a'+1 {
		return 'i' - 'a' + 1
	}
	return g
}

func (d *Detector) learnWords() {
	learn := func(words string, e entry) {
		number := len(d.entries)
		d.entries = append(d.entries, e)
		for word := range strings.FieldsSeq(words) {
			spelled := spell(word)
			d.words.addAs(spelled, number, e.keyword != "")
			if e.keyword != "" {
				d.disguiseM(spelled, 0, number)
				// Backwards, and in rot13: the result is no word of any language.
				turned := slices.Clone(spelled)
				slices.Reverse(turned)
				d.words.add(turned, number)
				d.disguiseM(turned, 0, number)
				if word == e.keyword {
					for i, g := range turned {
						turned[i] = overturned[g]
					}
					d.words.add(turned, number)
				}
				d.words.add(spell(strings.Map(rot13, word)), number)
			}
		}
	}
	for _, k := range keywords {
		learn(k.forms, entry{rule: RuleKeyword, keyword: k.name})
		learn(k.derived, entry{rule: Derived, keyword: k.name})
	}
	learn(innocents, entry{})
	// Also if the family is off: they are other words, and no keyword glued to another word.
	learn(prefixed, entry{rule: Prefixed})
}

func spell(word string) []glyph {
	spelled := make([]glyph, len(word))
	for i := range spelled {
		spelled[i] = upright(letterOf(word[i]))
	}
	return spelled
}

// overturned gives the letter as which an upside-down letter reads.
var overturned = func() (table [symbols]glyph) {
	for c := byte('a'); c <= 'z'; c++ {
		table[upright(letterOf(c))] = upright(letterOf(c))
	}
	for _, pair := range []string{"dp", "pd", "bq", "qb", "nu", "un", "mw", "wm", "fj"} {
		table[letterOf(pair[0])] = letterOf(pair[1])
	}
	return table
}()

func rot13(r rune) rune { return 'a' + (r-'a'+13)%26 }

// disguiseM adds a word with every choice of its m written as rn and its d as cl, which look the
// same in most type.
func (d *Detector) disguiseM(word []glyph, from, number int) {
	for i := from; i < len(word); i++ {
		var like string
		switch word[i] {
		case letterOf('m'):
			like = "rn"
		case letterOf('d'):
			like = "cl"
		default:
			continue
		}
		written := append(append(append([]glyph{}, word[:i]...), spell(like)...), word[i+1:]...)
		d.words.add(written, number)
		d.disguiseM(written, i+2, number)
	}
}

// scan goes through the text once. At the beginning of every word it tries the words of the trie
// and the openers of the cues. Inside a word it tries the thirteen keywords in their plain
// spelling.
func (d *Detector) scan(text string, into *gathering) {
	var (
		inWord bool // the last visible glyph continues a word
		inSum  bool // the last glyph was a digit
		loose  = -1 // a letter that may be the last of an escape: a word can begin with it, and after it
		cueEnd int
		numEnd int // the end of the last number that was weighed
	)
	if into.answers && !d.off(Acceptance) {
		if from, to := d.bareYes(text); to > 0 {
			into.add(Hit{Rule: Acceptance, Start: from, End: to})
			cueEnd = to
		}
	}
	for pos := 0; pos < len(text); {
		var g glyph
		width, begins, known := 1, uint64(wordBegins|cueBegins), false
		if c := text[pos]; plainLetter[c] != 0 {
			if !inWord && pos != loose && (pos == 0 || plainLetter[text[pos-1]] == 0) {
				if pos, begins, known = d.pass(text, pos, into); begins == 0 && !known {
					inSum = false
					continue
				}
			}
			g = plainLetter[text[pos]]
		} else if c < utf8.RuneSelf && d.atlas.ascii[c] != opening {
			if g = d.atlas.ascii[c]; g == blank || g == other {
				if c == '+' && form(text, pos) {
					into.conceal(pos)
				}
				inWord, inSum = false, false
				for pos++; pos < len(text) && text[pos] == ' '; {
					pos++
				}
				continue
			}
		} else {
			if c >= 0xe3 {
				if past := into.spaceless(text, pos); past > pos {
					inWord, inSum = false, false
					pos = past
					continue
				}
			}
			var r rune
			if c >= 0xc2 && c < 0xe0 && pos+1 < len(text) && text[pos+1]&0xc0 == 0x80 {
				r, width = rune(c&31)<<6|rune(text[pos+1]&63), 2
				g = d.atlas.near[r>>8&7][r&0xff]
			} else {
				g, r, width = d.atlas.at(text, pos)
			}
			if width > 1 && conceals(text, pos, width, g, r) {
				into.conceal(pos)
			}
			if g == seam {
				pos += width
				inWord, loose = false, pos
				continue
			}
			if r >= firstUnread {
				if two := eightFrom(text, pos) & sixBytes; d.lingo.begins(two) {
					into.written(text, pos, two)
				}
				if d.unreadable && !readable(r) {
					into.unread(pos, 1, width)
				}
			}
			if c == '\\' && width == 1 && pos+1 < len(text) && strings.IndexByte("nrtbfv", text[pos+1]) >= 0 {
				loose = pos + 1
			}
			if inWord && r < utf8.RuneSelf && g.isLetter() {
				d.gluedAround(text, pos, width, true, into)
			}
		}
		if g == unseen {
			if text[pos] < ' ' {
				into.conceal(pos)
			}
			if inWord {
				d.gluedAround(text, pos, width, false, into)
			}
			pos += width
			continue
		}
		if inWord && capital(text[pos]) {
			inWord = !d.humped(text, pos)
		}
		var what uint64
		c := text[pos]
		switch {
		case inWord || g == other || g == blank:
		case known:
			what = begins
		default:
			if what = d.beginsAs(g); !inSum && c-'0' < 10 && pos >= max(cueEnd, numEnd) {
				// The whole number was weighed: its parts are no numbers of their own.
				if numEnd = number(text, pos); numEnd-pos >= longNumber {
					into.peek(text, pos)
				}
				if d.money {
					if start, end, ok := d.sum(text, pos, numEnd); ok {
						into.add(Hit{Rule: Money, Start: start, End: end})
						cueEnd = end
					}
				}
			}
		}
		if what != 0 {
			if what&cueBegins != 0 && pos >= cueEnd && (known || d.cues.leads(d.atlas, text, pos)) {
				if family, languages, end := d.cue(text, pos, into.answers); end > 0 {
					if languages != 0 {
						family = into.language(text, pos, languages)
					}
					if family != "" && !d.off(family) {
						into.add(Hit{Rule: family, Start: pos, End: end})
					}
					cueEnd = end
				}
			}
			if what&wordBegins != 0 && (known || g&marks == markLigature || d.words.promises(d.atlas, text, pos)) {
				w := walk{d: d, text: text}
				w.follow(pos, pos, steps{})
				if e := d.entries[w.number]; w.end > 0 && (e != entry{} || !d.shouted(text, pos, &w)) {
					if e.languages != 0 && !asked(text, w.end) { // a person who asks for a deed does not do it
						e.rule = into.language(text, pos, e.languages)
					}
					if e.rule != "" && !d.off(e.rule) {
						into.add(Hit{Rule: e.rule, Keyword: e.keyword, Start: pos, End: w.end})
					}
					if e.languages == 0 {
						// Past the whole word. Otherwise the parts of an innocent word would be
						// tried alone.
						pos, inWord, inSum = w.end, true, false
						continue
					}
				}
			}
		}
		if c-'0' < 10 && pos+1 < len(text) && plainLetter[text[pos+1]] != 0 {
			into.peek(text, pos)
		}
		fresh := !inWord
		inWord = g.wordly() && pos != loose
		inSum = g == figure || g&marks == markDigit
		if !inWord {
			pos += width
			continue
		}
		// The rest of the word, and whether one of the thirteen is glued to it.
		from := pos
		for pos += width; ; {
			for pos = lowers(text, pos); pos < len(text) && capital(text[pos]) && !d.humped(text, pos); {
				pos = lowers(text, pos+1)
			}
			ends := pos == len(text)
			if !ends {
				g := d.atlas.ascii[text[pos]&0x7f]
				ends = text[pos] < utf8.RuneSelf && (g == blank || g == other)
				if capital(text[pos]) || text[pos]-'0' < 10 {
					into.peek(text, pos)
				}
			}
			if !ends || !fresh || pos-from > shortestLiteral || from > 0 && plainLetter[text[from-1]] != 0 {
				glued(text, from, pos, into)
			}
			if pos == len(text) || text[pos] < utf8.RuneSelf {
				break
			}
			from = pos
			if pos = d.letters(text, pos, into); pos == from {
				break
			}
			fresh = false
		}
		if pos < len(text) && text[pos] == ' ' {
			// The usual case after a word.
			inWord = false
			pos++
		}
	}
}

// letters returns the end of the letters of two bytes that continue a word.
func (d *Detector) letters(text string, pos int, into *gathering) int {
	from, script := pos, rune(0)
	for pos+1 < len(text) && text[pos]-0xc3 < 0xe0-0xc3 && text[pos+1]&0xc0 == 0x80 {
		r := rune(text[pos]&31)<<6 | rune(text[pos+1]&63)
		if g := d.atlas.near[r>>8&7][r&0xff]; !g.isLetter() && g != foreign || pos > from && (r < firstUnread) != (script < firstUnread) {
			break
		}
		script = r
		pos += 2
	}
	if pos > from && script >= firstUnread && (plainLetter[text[from-1]] != 0 || pos < len(text) && plainLetter[text[pos]] != 0) {
		into.conceal(from)
	}
	if pos > from && d.unreadable && script >= firstUnread {
		into.unread(from, (pos-from)/2, 2)
	}
	return pos
}

// peek checks whether digits or capitals inside a word can belong to an encoding: without them,
// nothing is encoded.
func (g *gathering) peek(s string, pos int) {
	if pos < g.peeked || g.encoded >= 0 {
		return
	}
	var could bool
	if g.peeked, could = text.Encodes(s, pos); !could {
		return
	}
	if g.encoded = 0; !g.shown.Changed() {
		g.encoded = strings.LastIndexByte(s[:pos], ' ') + 1 // no encoding contains a blank
	}
}

// humped reports whether a name in camel case has a hump at pos: pleaseConfirm, HTTPConfirm. A word
// ends there and another begins.
func (d *Detector) humped(text string, pos int) bool {
	if pos == 0 || !capital(text[pos]) {
		return false
	}
	before, after := d.skipUnseen(text, pos)
	if before == 0 {
		return false
	}
	last := text[before-1]
	return last-'a' < 26 || capital(last) && after < len(text) && text[after]-'a' < 26
}

// longNumber is the least length of digits that may be a text in hexadecimal.
const longNumber = 8

// maxUnseen bounds the invisible characters that are skipped beside a letter.
const maxUnseen = 64

// skipUnseen returns the ends of the visible text before and after the letter at pos.
func (d *Detector) skipUnseen(text string, pos int) (before, after int) {
	before, after = pos, pos+1
	for before > 0 && text[before-1] >= utf8.RuneSelf && pos-before < maxUnseen {
		r, width := utf8.DecodeLastRuneInString(text[:before])
		if d.atlas.of(r) != unseen {
			break
		}
		before -= width
	}
	for after < len(text) && text[after] >= utf8.RuneSelf && after-pos < maxUnseen {
		r, width := utf8.DecodeRuneInString(text[after:])
		if d.atlas.of(r) != unseen {
			break
		}
		after += width
	}
	return before, after
}

// shouted reports whether a word of a few letters takes its first letter from the capitals before
// it: "PLEASEbook" contains no ebook.
func (d *Detector) shouted(text string, start int, w *walk) bool {
	before, _ := d.skipUnseen(text, start)
	return before > 0 && capital(text[before-1]) && int(w.plain) <= len("ebooks")
}

func capital(c byte) bool { return c-'A' < 26 }

// promises checks the first symbols of a word, and returns false if the trie has nothing for them.
// Most words of most texts need no further check.
func (t *trie) promises(a *atlas, text string, pos int) bool {
	at, crossed := uint16(0), false
	for i := 0; i < 8 && pos < len(text); i++ {
		c := text[pos]
		g, width := plainLetter[c], 1
		switch n := &t.nodes[at]; {
		case g != 0:
			if c < 'a' && i > 0 && n.end != 0 && (!capital(text[pos-1]) || pos+1 < len(text) && text[pos+1] >= 'a') {
				return true // a hump may end it
			}
		case c >= utf8.RuneSelf:
			if g, _, width = a.at(text, pos); !g.isLetter() {
				return true
			}
		case n.end != 0:
			return true
		case c-'0' < 10:
			// A letter, or the end.
			if g = a.ascii[c] & letterBits; a.ascii[c] == figure {
				return false
			}
		case i == 0:
			return true
		default:
			if crossed {
				return true
			}
			end, may := t.crosses(a, text, pos, at, i)
			if end == 0 {
				return may
			}
			crossed, pos = true, end
			i--
			continue
		}
		if at = t.step(at, upright(g)); at == 0 {
			return false
		}
		pos += width
	}
	return true
}

// doubled reports whether one of the letters occurs twice at pos that are doubled in the second
// piece of a word: "a llocate", "a pprove", "a ssign", and in no word of their own.
func doubled(text string, pos int) bool {
	return pos+1 < len(text) && text[pos]|0x20 == text[pos+1]|0x20
}

// crosses reports whether a word may continue after the gap at pos, which follows that many of its
// letters. It also returns the end of the gap if it consists of signs.
func (t *trie) crosses(a *atlas, text string, pos int, at uint16, letters int) (end int, may bool) {
	blanks, signs, last, spoken := 0, 0, text[pos-1]|0x20, false
	for ; pos < len(text) && blanks+signs <= maxBetween; pos++ {
		c := text[pos]
		switch look := a.ascii[c&0x7f]; {
		case c >= utf8.RuneSelf:
			return 0, true
		case look == blank:
			if blanks++; letters > 1 && (spoken || !t.nodes[at].keyword()) {
				return 0, false // it ends a word, unless it cuts a keyword in pieces
			}
			continue
		case look == other && c != '<' && c != '-' && c != '=' && !linked(text, pos):
			if signs, spoken = signs+1, spoken || speaks(rune(c)); spoken && blanks > 0 && letters > 1 {
				return 0, false
			}
			continue
		case look == figure:
			return 0, false
		case look.isLetter() || look&marks == markDigit:
			switch {
			case blanks == 0:
				return pos, true
			case t.step(at, upright(look&letterBits)) == 0:
				return 0, false
			}
			// Single letters may follow, or pieces, of which "a" usually is none.
			return 0, letters > 1 || !spoken && (last != 'a' || doubled(text, pos)) || pos+1 == len(text) || text[pos+1]-'a' >= 26
		}
		return 0, true
	}
	return 0, false
}

// leads checks the first symbols of a cue, as promises does.
func (t *trie) leads(a *atlas, text string, pos int) bool {
	at := uint16(0)
	for range 16 {
		if pos == len(text) {
			return t.nodes[at].end != 0
		}
		c, next := text[pos], byte(0)
		if pos+1 < len(text) {
			next = text[pos+1]
		}
		g, width := plainLetter[c], 1
		switch {
		case g != 0:
		case c >= utf8.RuneSelf:
			if g, _, width = a.at(text, pos); !g.isLetter() {
				return true
			}
		case t.nodes[at].end != 0:
			return true
		case c == '\'':
			g = symApostrophe
		case c == ' ':
			if g = symGap; plainLetter[next] == 0 {
				// Signs that count as nothing may stand between words.
				return next >= utf8.RuneSelf || a.ascii[next] == blank || a.ascii[next] == opening || a.ascii[next] == unseen || isMarkup(rune(next))
			}
		default:
			return a.ascii[c] != other && a.ascii[c] != figure && a.ascii[c]&marks != markDigit || isMarkup(rune(c)) || c == '`'
		}
		if at = t.step(at, g); at == 0 {
			return false
		}
		pos += width
	}
	return true
}

// walk follows the trie from the beginning of a word and keeps the longest word. It reads the text
// itself, letter by letter, through everything between the letters, so that nothing has to be
// copied and every offset is exact.
type walk struct {
	d      *Detector
	text   string
	end    int // the end of the longest word, 0 for none
	number uint16
	plain  uint8 // the number of its letters
}

// steps describes the walk so far.
type steps struct {
	node    uint16
	run     uint8 // letters since the last gap
	plain   uint8 // letters that are letters
	leet    bool  // some are digits or signs
	soft    bool  // a soft hyphen was seen since the last letter
	broken  bool  // a part of more than one letter is behind
	spaced  bool  // a blank or similar gap was crossed: single letters only
	tight   bool  // another gap was crossed
	crooked bool  // a gap other than a hyphen
	cuts    uint8 // terminal sequences that were crossed
	letter  bool  // the last gap may follow a piece of one letter
	pieces  uint8 // the number of pieces into which blanks cut the word, 0 for one
	half    uint8 // letters of the first piece
	halved  uint16
}

// follow walks on from pos; end is the end of the last letter. It calls itself only if a sign may
// or may not be a letter, and only if the trie has that letter, so it ends after a few dozen calls
// for any text.
func (w *walk) follow(pos, end int, s steps) {
	for pos < len(w.text) {
		if c := w.text[pos]; c-'a' < 26 {
			if !w.step(&s, plainLetter[c], true) {
				return
			}
			pos++
			end = pos
			continue
		}
		g, r, width := w.d.atlas.at(w.text, pos)
		switch {
		case g == unseen:
			s.soft = s.soft || r == 0xad
			pos += width
			continue
		case g == seam:
			// Receivers that do not interpret the sequence see its last letter.
			w.offer(end, s)
			if s.cuts++; s.cuts > maxCuts {
				return
			}
			pos += width
			if pos < len(w.text) && w.text[pos] < utf8.RuneSelf {
				w.follow(pos+1, end, s)
			}
			continue
		case g.isLetter():
			if w.d.humped(w.text, pos) {
				w.offer(end, s)
			}
			if !w.step(&s, g, true) {
				return
			}
			pos += width
			end = pos
			continue
		case g == foreign:
			return
		case g&marks == markLigature:
			for _, c := range []byte(ligatures[g&^marks].letters) {
				if !w.step(&s, letterOf(c), true) {
					return
				}
			}
			pos += width
			end = pos
			continue
		}
		// It is a boundary, unless it is a letter in disguise.
		w.offer(end, s)
		if g&marks == markDigit || g&marks == markSign {
			as := s
			if w.step(&as, g&letterBits, false) {
				w.follow(pos+width, pos+width, as)
			}
		}
		if g == figure || g&marks == markDigit || s.run == 0 {
			return
		}
		as := s
		var ok bool
		if pos, ok = w.cross(pos, &s); !ok {
			return
		}
		if s.letter {
			// Letters one by one, or a first piece of one letter.
			s.letter = false
			as.cutAgain(w.d)
			w.follow(pos, end, as)
		}
	}
	w.offer(end, s)
}

// cutAgain continues in another piece of the word, after a blank, at a place where a keyword may be
// cut.
func (s *steps) cutAgain(d *Detector) bool {
	if !d.words.nodes[s.node].keyword() || s.leet || s.tight || s.spaced || s.cuts > 0 {
		return false
	}
	if s.pieces == 0 {
		s.pieces, s.half, s.halved = 1, s.plain, s.node
	}
	s.pieces++
	s.run = 0
	return true
}

// step takes one letter and reports whether the trie has it.
func (w *walk) step(s *steps, g glyph, plain bool) bool {
	if s.spaced && s.run > 0 {
		// After a space only single letters count: "s c h e d u l e", but never "a sign".
		return false
	}
	next := w.d.words.step(s.node, upright(g))
	if next == 0 {
		return false
	}
	s.node, s.soft = next, false
	s.run++
	if plain {
		s.plain++
	} else {
		s.leet = true
	}
	return true
}

// offer accepts the word that ends here, if there is one and it is longer than the one so far.
func (w *walk) offer(end int, s steps) {
	number := w.d.words.nodes[s.node].end
	if number == 0 || end <= w.end || s.run == 0 {
		return
	}
	if s.leet && s.plain < 2 {
		// "a55" is a name.
		return
	}
	if s.pieces > 0 && !w.d.cutUp(number-1, &s) {
		return
	}
	switch e := w.d.entries[number-1]; {
	case e.languages != 0 && (s.leet || s.crooked || s.spaced || s.pieces > 0):
		return
	case e.rule == "" && e.languages == 0 && (s.crooked || s.plain <= 6 && s.run == 1 && !s.broken):
		// An innocent word is accepted only in a usual spelling. Letter by letter, a short one may be
		// the end of another word: "p l e a s e b o o k".
		return
	case e.rule == Prefixed && s.tight:
		// "re-schedule" contains the whole word schedule.
		return
	}
	w.end, w.number, w.plain = end, number-1, s.plain
}

// The gaps that can cut a word.
const (
	maxBetween = 12 // signs and blanks in a row: "com** **mit"
	maxTag     = 64
	maxCuts    = 8  // terminal sequences inside a word
	maxMargin  = 12 // the possible beginning of a line that continues a hyphenated word
)

// cross reads the gap at pos and returns the position at which the word would continue.
func (w *walk) cross(pos int, s *steps) (int, bool) {
	var (
		signs, blanks, margin int
		hyphen                = s.soft // the gap is a single hyphen so far
		crooked               bool     // it has a sign other than a hyphen
		spoken                bool     // it has a sign that separates words
		newline               bool     // a hyphen and the end of a line
		path, dot             bool     // it has a slash, a full stop
	)
gap:
	for pos < len(w.text) {
		g, r, width := w.d.atlas.at(w.text, pos)
		switch {
		case g == unseen:
		case g == seam:
			if pos+width < len(w.text) && w.text[pos+width] < utf8.RuneSelf {
				width++ // including its last letter
			}
		case g.wordly() || g&marks == markDigit || g == figure:
			break gap
		case newline:
			if margin++; margin > maxMargin || g != blank && r != '>' && r != '|' {
				return 0, false
			}
		case g == blank:
			if (r == '\n' || r == '\r') && hyphen {
				newline = true
				break
			}
			blanks++
		default:
			switch r {
			case '<':
				width = max(width, w.tag(pos, '>'))
			case ']', '[': // [com](https://x.example)mit
				if linked(w.text, pos) {
					width = max(width, w.tag(pos, map[rune]rune{']': ')', '[': ']'}[r]))
				}
			}
			spoken = spoken || speaks(r)
			signs++
			dash := isHyphen(r)
			hyphen = signs == 1 && blanks == 0 && (dash || r == '=')
			crooked = crooked || !dash
			path = path || r == '/'
			dot = dot || r == '.'
		}
		pos = min(pos+width, len(w.text))
		if !newline && signs+blanks > maxBetween {
			return 0, false
		}
	}
	switch {
	case newline || blanks == 0:
		// A path, a call or a label is no word in disguise: ".com/mit", "a.Sign", "4_signed".
		// Letter by letter it still is one.
		s.spaced = s.spaced || path || s.plain == 0 || dot && !s.tight && s.run == 1
		s.tight = true
		s.crooked = s.crooked || crooked
		s.broken = s.broken || s.run > 1
	case s.run == 1 && !s.broken && s.pieces == 0:
		before := *s
		s.letter = !s.spaced && !spoken && before.cutAgain(w.d) && (s.node != w.d.uncut[4] || doubled(w.text, pos))
		s.spaced = true
	case spoken || !s.cutAgain(w.d):
		return 0, false
	}
	s.run = 0
	return pos, true
}

// cutUp reports whether a word in pieces counts. It does not if both of two pieces are words: "as
// sign", "re served", "boo king", "dead lines".
func (d *Detector) cutUp(number uint16, s *steps) bool {
	if d.entries[number].keyword == "" {
		return false
	}
	if s.pieces > 2 {
		return true
	}
	switch right := s.plain - s.half; s.halved {
	case d.uncut[0], d.uncut[1]:
		return false
	case d.uncut[2]:
		return right < 4
	case d.uncut[3]:
		return right == 4
	}
	return true
}

// linked reports whether the invisible part of a link begins at pos.
func linked(text string, pos int) bool {
	return pos+1 < len(text) && (text[pos] == ']' && text[pos+1] == '(' || text[pos] == '[' && text[pos+1] == '^')
}

// speaks reports whether a sign beside a blank separates words, and is no markup.
func speaks(r rune) bool {
	switch r {
	case '*', '_', '~', '"', '<', '>', '`', '\\', '[', ']', '!':
		return false
	}
	return true
}

func isHyphen(r rune) bool {
	return r == '-' || r == '\u2010' || r == '\u2011' || r == '\ufe63' || r == '\uff0d'
}

// tag returns the length of the markup at pos up to the closing sign, 0 if there is none.
func (w *walk) tag(pos int, closes rune) int {
	seen := 0
	for at := pos + 1; at < len(w.text); {
		g, r, width := w.d.atlas.at(w.text, at)
		at += width
		if r == closes {
			return at - pos
		}
		if g == unseen || g == seam {
			continue
		}
		if seen++; seen > maxTag || r == '<' || r == '\n' {
			return 0
		}
	}
	return 0
}
