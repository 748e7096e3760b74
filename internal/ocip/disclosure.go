package ocip

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// DisclosureLabel tells a recipient that an agent wrote or helped to write a
// message.
const DisclosureLabel = "Sent by user's OpenClaw assistant"

// Disclosure says where the label stands in a message's content.
type Disclosure string

// The three places. The annotation carries the label in each of them.
const (
	DisclosureSuffix Disclosure = "suffix"
	DisclosurePrefix Disclosure = "prefix"
	DisclosureNone   Disclosure = "none"
)

// Disclose puts the label into content once: content that already begins or ends
// with it is returned as it is. Blank lines, of which the reader's screen may be
// full, part the label from what it is about: written behind more than one of
// them it does not count, and it is never put behind those that somebody wrote.
func Disclose(content string, where Disclosure) string {
	if where == DisclosureNone || disclosed(content) {
		return content
	}
	if where == DisclosurePrefix {
		rest := strings.TrimLeftFunc(content, blank)
		// What the first line is indented by stays.
		if i := strings.LastIndexByte(content[:len(content)-len(rest)], '\n'); i >= 0 {
			content = content[i+1:]
		}
		return DisclosureLabel + "\n\n" + content
	}
	rest := strings.TrimRightFunc(content, blank)
	// What makes the last character what it is stays.
	behind := strings.TrimLeftFunc(content[len(rest):], joined)
	return strings.TrimSuffix(content, behind) + "\n\n" + DisclosureLabel
}

// disclosed reports whether the label stands at one end of content, on a line of
// its own, with no more than one blank line to the rest.
func disclosed(content string) bool {
	content = strings.TrimFunc(content, blank)
	if rest, ok := strings.CutPrefix(content, DisclosureLabel); ok && apart(rest, strings.TrimLeftFunc(rest, blank)) {
		return true
	}
	rest, ok := strings.CutSuffix(content, DisclosureLabel)
	// Nor is it indented, which makes a sample of it.
	return ok && strings.HasSuffix(rest, "\n") && apart(rest, strings.TrimRightFunc(rest, blank))
}

// apart reports whether between a label and the rest of a content, of which shown
// is what shows, a line ends and at most one is blank.
func apart(rest, shown string) bool {
	if shown == "" {
		return rest == ""
	}
	lines := strings.Count(rest, "\n") - strings.Count(shown, "\n")
	return lines == 1 || lines == 2
}

// blank reports a character that nothing is seen of. A sign stands on the screen for
// what was lost, and for what the reader's font, or this program, does not know.
func blank(r rune) bool {
	if r == utf8.RuneError || unicode.In(r, unicode.Co, unicode.Cn) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return false
	}
	return unicode.IsSpace(r) || r == '\u2800' || !text.Shows(r)
}

// joined reports a character that says how the one before it looks: the selectors of
// variants, the joiners, and the tags that make a flag.
func joined(r rune) bool {
	return unicode.In(r, unicode.Variation_Selector, unicode.Join_Control) || '\U000e0020' <= r && r <= '\U000e007f'
}
