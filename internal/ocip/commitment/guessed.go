package commitment

import (
	"slices"
	"strings"
)

// Guessed reports whether guesses alone hold the message: cues alone or, if keywords are weighed,
// keywords alone, in a content of at most 8 KiB. It is no guess if any reason stands against it that
// nothing outweighs, see [Reading.Keywords]. For that the whole content counts as one sentence, so
// that no full stop parts a promise from its sum or its day. Nor is it a guess if a sum of money
// alone holds the message, or a part that cannot be read.
func (r *Reading) Guessed(weighed bool) bool {
	of := r.prose[""]
	if r.asked || of == nil || len(of.text) > maxScored {
		return false
	}
	keywords, cues := false, false
	for i := range r.hits {
		h := &r.hits[i]
		switch {
		case h.Shadow:
			continue
		case h.Member != "" || h.Rule == Money || h.Rule == Unreadable || h.Start < 0 || h.Start >= h.End || h.End > len(of.text):
			return false
		case r.tail && strings.TrimSpace(of.text[:h.Start]) == "":
			return false // it can continue an earlier message
		case h.Keyword != "":
			_, found := r.reasons(i)
			if keywords = true; certain(found) {
				return false
			}
		case !plainSpan(of.text[h.Start:h.End]):
			return false
		default:
			cues = true
		}
	}
	whole := &sign{sheet: of, Hit: &Hit{}, to: len(of.text), before: wordsOf(of.text)}
	if certain(of.overall()) || whole.hasSum() || whole.dated() && (whole.firstPerson() || whole.limited()) {
		return false
	}
	return keywords != cues && (cues || weighed)
}

// certain reports whether one of the reasons is one that nothing outweighs.
func certain(found []reason) bool {
	return slices.ContainsFunc(found, func(s reason) bool { return s.always })
}

// plainSpan reports whether a cue is written in ordinary words: letters, and none of them alone but
// "I", "a" and "u".
func plainSpan(found string) bool {
	for word := range strings.FieldsFuncSeq(strings.ReplaceAll(found, "\u2019", "'"), func(r rune) bool { return strings.ContainsRune(" \n\r,.!?:;-\"()", r) }) {
		word = strings.ToLower(word)
		if len(word) == 1 && !inList(word, "i a u") || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz'") != "" {
			return false
		}
	}
	return true
}
