package commitment

import (
	"slices"
	"strings"
)

// Guessed reports whether guesses alone hold the message: cues alone or, if keywords are weighed,
// keywords alone, in a content of at most 8 KiB. It is no guess if any reason stands against it that
// nothing outweighs, see [Reading.Keywords], or if a sum of money alone holds the message, or a part
// that cannot be read. Each word of the content has to be one of a list of plain English words, that
// has no number, no money and no time, or the one after a word such as "the". Only the sender's label
// may have others, on the first or the last line: a message has it once the daemon is sending it.
func (r *Reading) Guessed(weighed bool, label string) bool {
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
		default:
			cues = true
		}
	}
	if certain(of.overall()) || !openText(unlabelled(of.text, label)) {
		return false
	}
	return keywords != cues && (cues || weighed)
}

// certain reports whether one of the reasons is one that nothing outweighs.
func certain(found []reason) bool {
	return slices.ContainsFunc(found, func(s reason) bool { return s.always })
}

// unlabelled returns a text without a label on its first or its last line.
func unlabelled(text, label string) string {
	if label == "" {
		return text
	}
	if rest, cut := strings.CutSuffix(text, "\n"+label); cut {
		return rest
	}
	if rest, cut := strings.CutPrefix(text, label+"\n"); cut {
		return rest
	}
	return text
}
