package commitment

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// ordinal reports whether a word is a day of a month, for example 18th.
func ordinal(word string) bool {
	return len(word) > 2 && len(word) < 5 && word[0]-'0' < 10 && (hasSuffixFold(word, "th") || hasSuffixFold(word, "st") || hasSuffixFold(word, "nd") || hasSuffixFold(word, "rd"))
}

// clock reports whether a time such as 20:30 comes directly before pos.
func clock(text string, pos int) bool {
	for pos > 0 && text[pos-1] == ' ' {
		pos--
	}
	return pos > 4 && text[pos-1]-'0' < 10 && text[pos-2]-'0' < 10 && text[pos-3] == ':' && text[pos-4]-'0' < 10
}

// figureNext reports whether a number comes next.
func figureNext(text string, pos int) bool {
	for pos < len(text) && text[pos] == ' ' {
		pos++
	}
	return pos < len(text) && text[pos]-'0' < 10
}

// maxSentence bounds the text around a cue that is searched, in bytes, so that a text of one
// endless sentence costs no more than another.
const maxSentence = 160

// asked reports whether the sentence around pos ends in a question mark.
func asked(text string, pos int) bool {
	end := strings.IndexByte(text[pos:min(len(text), pos+maxSentence)], '?')
	for i := pos; i < pos+end; i++ {
		switch text[i] {
		case '!', ';':
			return false
		case '\n':
			if i+1 < len(text) && text[i+1] == '\n' {
				return false
			}
		case '.':
			if text[i+1] <= ' ' {
				return false
			}
		}
	}
	return end >= 0
}

// opensSentence reports whether a sentence or a line begins at pos.
func opensSentence(text string, pos int) bool {
	for pos > 0 {
		r, width := utf8.DecodeLastRuneInString(text[:pos])
		switch {
		case r == ' ' || r == '\t' || isMarkup(r) || r == '>' || r == '#' || r == '[' || r == '|' || passed(r):
			pos -= width
		case escapedBreak(text, pos):
			return true
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
			return strings.ContainsRune(".!?:;,)]|\\\n\r-\u2013\u2014", r)
		}
	}
	return true
}

// back walks the words before pos, nearest first, to the beginning of the clause. It stops when yes
// returns true for the word at start.
func back(text string, pos, words int, yes func(start int, word string) bool) bool {
	stop := max(0, pos-maxSentence)
	for end := pos; end > stop && words > 0; {
		c := text[end-1]
		if c == ' ' || c == '\t' || c == '*' || c == '_' || c == '"' || c == '\'' || c == '(' || (c == '\n' || c == '\r') && wrapped(text, end-1) {
			end--
			continue
		}
		if !wordByte(c) {
			return false
		}
		if escapedBreak(text, end) {
			return false
		}
		start := end
		for start > stop && wordByte(text[start-1]) && !escapedBreak(text, start) {
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

// escapedBreak reports whether a JSON escape for a line end ends at pos.
func escapedBreak(text string, pos int) bool {
	return pos > 1 && text[pos-2] == '\\' && (text[pos-1] == 'n' || text[pos-1] == 'r' || text[pos-1] == 't')
}

// wrapped reports whether a line that ends at pos continues on the next one, as after a program's
// line break: in the middle of a sentence, and not before an item of a list.
func wrapped(text string, pos int) bool {
	if text[pos] == '\r' {
		return pos+1 < len(text) && text[pos+1] == '\n' && wrapped(text, pos+1)
	}
	before, after := text[:pos], text[pos+1:]
	before = strings.TrimSuffix(before[max(0, len(before)-2):], "\r")
	return before != "" && (wordByte(before[len(before)-1]) || before[len(before)-1] == ' ' || before[len(before)-1] == ',') &&
		after != "" && (after[0]-'a' < 26 || after[0] == '$' || after[0]-'0' < 10 || after[0] == ' ')
}

// wordByte treats every byte above ASCII as a letter: the only such character in the words is the
// curly apostrophe.
func wordByte(c byte) bool {
	return c >= 0x80 || c == '\'' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// passed reports whether a character is invisible and ends no line.
func passed(r rune) bool { return !text.Shows(r) && r != '\n' && r != '\r' }

func oneOf(word string, list ...string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, word) })
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
