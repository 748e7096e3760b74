package ocip

import "strings"

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

// Disclose puts the label into content once: content that already begins or
// ends with it on a line of its own is returned as it is.
func Disclose(content string, where Disclosure) string {
	if where == DisclosureNone {
		return content
	}
	trimmed := strings.TrimSpace(content)
	first, _, _ := strings.Cut(trimmed, "\n")
	last := trimmed[strings.LastIndexByte(trimmed, '\n')+1:]
	if strings.TrimSpace(first) == DisclosureLabel || strings.TrimSpace(last) == DisclosureLabel {
		return content
	}
	if where == DisclosurePrefix {
		return DisclosureLabel + "\n\n" + content
	}
	return content + "\n\n" + DisclosureLabel
}
