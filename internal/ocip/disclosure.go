package ocip

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// DisclosureLabel is the label of the OCIP reference, which tells a recipient that an agent wrote
// or helped to write a message. It is the label of an agent if neither its user nor its runtime is
// known.
const DisclosureLabel = "Sent by user's OpenClaw assistant"

// Disclosure is the position of the label in a message's content.
type Disclosure string

// The three positions. The annotation carries the label in each case.
const (
	DisclosureSuffix Disclosure = "suffix"
	DisclosurePrefix Disclosure = "prefix"
	DisclosureNone   Disclosure = "none"
)

// Disclose puts a label into content once: content that already begins or ends with it is
// returned unchanged. Blank lines can fill the reader's screen and separate the label from the
// text. A label behind more than one blank line therefore does not count, and Disclose never puts
// its label behind the author's blank lines.
func Disclose(content, label string, where Disclosure) string {
	if where == DisclosureNone || disclosed(content, label) {
		return content
	}
	if where == DisclosurePrefix {
		rest := strings.TrimLeftFunc(content, blank)
		// The indent of the first line stays.
		if i := strings.LastIndexByte(content[:len(content)-len(rest)], '\n'); i >= 0 {
			content = content[i+1:]
		}
		return label + "\n\n" + content
	}
	rest := strings.TrimRightFunc(content, blank)
	// Characters that modify the last one stay.
	behind := strings.TrimLeftFunc(content[len(rest):], joined)
	return strings.TrimSuffix(content, behind) + "\n\n" + label
}

// disclosed reports whether a label stands at one end of content, on a line of
// its own, with no more than one blank line to the rest.
func disclosed(content, label string) bool {
	content = strings.TrimFunc(content, blank)
	if rest, ok := strings.CutPrefix(content, label); ok && apart(rest, strings.TrimLeftFunc(rest, blank)) {
		return true
	}
	rest, ok := strings.CutSuffix(content, label)
	// An indented label does not count: the indent makes it a code sample.
	return ok && strings.HasSuffix(rest, "\n") && apart(rest, strings.TrimRightFunc(rest, blank))
}

// apart reports whether the label is separated from the rest of a content by the end of a line and
// at most one blank line. Shown is the visible part of the rest.
func apart(rest, shown string) bool {
	if shown == "" {
		return rest == ""
	}
	lines := strings.Count(rest, "\n") - strings.Count(shown, "\n")
	return lines == 1 || lines == 2
}

// blank reports whether a character is invisible. Replacement characters, and characters unknown to
// this program or to the reader's font, count as visible: the screen shows a sign for them.
func blank(r rune) bool {
	if r == utf8.RuneError || unicode.In(r, unicode.Co, unicode.Cn) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return false
	}
	return unicode.IsSpace(r) || r == '\u2800' || !text.Shows(r)
}

// joined reports whether a character modifies the one before it: variation selectors, joiners, and
// the tags that make a flag.
func joined(r rune) bool {
	return unicode.In(r, unicode.Variation_Selector, unicode.Join_Control) || '\U000e0020' <= r && r <= '\U000e007f'
}
