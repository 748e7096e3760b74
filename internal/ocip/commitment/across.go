package commitment

import (
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// maxTail bounds the bytes of one message that are joined with the next: the longest keyword with
// its letters apart, or the beginning of a cue.
const maxTail = 64

// Tail returns the [Before.Tail] after a message; before is the earlier tail. It contains the last
// words of both, since a word can be sent letter by letter. A message that ends a sentence has
// none.
func Tail(before, content string) string {
	content = strings.TrimRight(content, " \t\r\n")
	if content == "" {
		return before
	}
	if len(content) >= maxTail {
		content = content[len(content)-maxTail:]
		for len(content) > 0 && !utf8.RuneStart(content[0]) {
			content = content[1:]
		}
		before = ""
	}
	if i := strings.LastIndexAny(content, ".!?\n"); i == len(content)-1 {
		return ""
	} else if i >= 0 {
		content, before = content[i+1:], ""
	}
	if before != "" {
		if before += " " + content; len(before) > maxTail {
			return Tail("", before)
		}
		return before
	}
	return content
}

// Asks reports whether a text asks for a yes that would bind the person who says it: "shall I send
// it?", "is Friday fine?", and not "does it have a garden?" or "what does it cost?".
func Asks(content string) bool {
	for end, looked := strings.IndexByte(content, '?'), 0; end >= 0 && looked < maxAsked; looked++ {
		from := max(0, end-maxSentence)
		sentence := content[from:end]
		if i := strings.LastIndexAny(sentence, ".!?\n"); i >= 0 {
			sentence = sentence[i+1:]
		}
		first, wants, open, foreign := true, false, false, true
		for word := range strings.FieldsFuncSeq(sentence, func(r rune) bool { return r < 0x80 && !wordByte(byte(r)) }) {
			if greetings.holds(word) {
				continue
			}
			foreign = foreign && !englishWords.holds(word)
			open = open || first && openQuestions.holds(word)
			if first = false; yesQuestions.holds(word) {
				wants = true
				open = open && !strings.EqualFold(word, "about")
			}
		}
		if (wants || foreign) && !open {
			return true
		}
		next := strings.IndexByte(content[end+1:], '?')
		if next < 0 {
			break
		}
		end += 1 + next
	}
	return strings.Contains(content, "\uff1f") || strings.Contains(content, "yes or no") || wantsConfirmed(content)
}

// wantsConfirmed reports whether a text asks without a question mark: "Please confirm
// that you would like two.", "Confirming your table for six."
func wantsConfirmed(content string) bool {
	const confirm = "onfirm"
	for at, looked := strings.Index(content, confirm), 0; at >= 0 && looked < maxAsked; looked++ {
		sentence := content[max(0, at-maxSentence):at]
		if i := strings.LastIndexAny(sentence, ".!?:;,\n"); i >= 0 {
			sentence = sentence[i+1:]
		}
		sentence, letter := strings.CutSuffix(sentence, "c")
		if !letter {
			sentence, letter = strings.CutSuffix(sentence, "C")
		}
		behind := content[at+len(confirm):]
		whole := behind == "" || !wordByte(behind[0]) || strings.HasPrefix(behind, "ing ")
		if letter && whole && onlyOf(greetings, sentence) && !ofOthers(behind) {
			return true
		}
		next := strings.Index(behind, confirm)
		if next < 0 {
			break
		}
		at += len(confirm) + next
	}
	return false
}

// ofOthers reports whether the thing to be confirmed belongs neither to the reader nor to the
// sender: "that the files have been updated", "once it is done".
func ofOthers(text string) bool {
	words := strings.Fields(text[:min(len(text), 2*maxWord)])
	return len(words) > 1 && oneOf(words[0], "that", "if", "whether", "once", "when") &&
		!oneOf(words[1], "you", "your", "you'd", "i", "we", "i'm", "we're", "i'd", "we'd")
}

// onlyOf reports whether a text has only words of a list.
func onlyOf(l list, text string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r < 0x80 && !wordByte(byte(r)) }) {
		if !l.holds(word) {
			return false
		}
	}
	return true
}

// maxAsked bounds the questions of a text that are checked.
const maxAsked = 64

// goOn gathers the hits that begin in the last message's tail and end in the text. Their offsets
// begin at the start of the text.
func (g *gathering) goOn(tail, written string) {
	if tail == "" {
		return // the usual case
	}
	trimmed := strings.TrimLeft(written, " \t\r\n")
	if trimmed == "" {
		return
	}
	head := trimmed[:min(len(trimmed), maxTail)]
	for !utf8.ValidString(head) && len(head) > maxTail-utf8.UTFMax && len(head) < len(trimmed) {
		head = head[:len(head)-1]
	}
	skipped := len(written) - len(trimmed)
	seen := []string{}
	for _, between := range [...]string{" ", ""} {
		if last := tail[strings.LastIndexByte(tail, ' ')+1:]; between == "" && oneOf(last, "as", "re", "a") {
			// "such as", "signed copies".
			break
		}
		joined := tail + between + head
		across := gathering{d: g.d, zones: zoner{text: joined}}
		across.look(joined, text.View{Text: joined})
		border := len(tail) + len(between)
		for _, h := range across.kept {
			if h.Start >= len(tail) || h.End <= border || h.Shadow {
				continue
			}
			if n := len(seen); len(insert(seen, h.Name())) > n {
				seen = insert(seen, h.Name())
				h.Start, h.End = skipped, skipped+h.End-border
				g.kept = append(g.kept, h)
			}
		}
	}
}
