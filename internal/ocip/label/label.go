// Package label makes the label by which an agent's messages say who sent them.
package label

import (
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Default is the default text of labels, with both placeholders.
const Default = "Sent by " + userPlace + "'s " + runtimePlace + " assistant"

// The placeholders of a label's text.
const (
	userPlace    = "{user}"
	runtimePlace = "{runtime}"
)

// Bounds of a label, in bytes.
const (
	// maxText bounds the text of a label.
	maxText = 200
	// maxName bounds a name that takes the place of a placeholder.
	maxName = 64
)

// Of returns the label of an agent: the text, with the names of its user and its runtime. A name
// is unknown if it is empty or not fit for a label: longer than 64 bytes, with braces, or with a
// character that does not show, such as the end of a line. An unknown user is "user", and an unknown
// runtime is left out with one space. If the text has placeholders and both names are unknown, the
// label is [ocip.DisclosureLabel].
func Of(text, user, runtime string) string {
	if !strings.ContainsAny(text, "{}") {
		return text
	}
	user, runtime = known(user), known(runtime)
	if user == "" && runtime == "" {
		return ocip.DisclosureLabel
	}
	places := []string{userPlace, "user", runtimePlace, runtime}
	if user != "" {
		places[1] = user
	}
	if runtime == "" {
		places = append([]string{" " + runtimePlace, "", runtimePlace + " ", ""}, places...)
	}
	if label := strings.NewReplacer(places...).Replace(text); label != "" {
		return label
	}
	return ocip.DisclosureLabel
}

// known returns a name that fits into a label, "" if the given one does not.
func known(name string) string {
	if len(name) > maxName || !text.Showable(name) || strings.ContainsAny(name, "{}") {
		return ""
	}
	return strings.TrimSpace(name)
}

// Check returns the reason why no label can have a text, or nil. A text has 1 to 200
// bytes on one line, and no placeholders besides {user} and {runtime}.
func Check(s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return fmt.Errorf("want a sentence that says who sends, such as %q", Default)
	case len(s) > maxText:
		return fmt.Errorf("want at most %d bytes, got %d", maxText, len(s))
	case !text.Showable(s):
		return fmt.Errorf("want one line of characters that show, got %q", s)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("want no blank at either end, got %q", s)
	}
	for rest := s; ; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		end := strings.IndexByte(rest, '}')
		if end <= 0 || strings.LastIndexByte(rest[:end], '{') > 0 {
			return fmt.Errorf("want { and } only around the name of a placeholder, %s or %s, got %q", userPlace, runtimePlace, s)
		}
		if place := rest[:end+1]; place != userPlace && place != runtimePlace {
			return fmt.Errorf("unknown placeholder %s, want %s or %s", place, userPlace, runtimePlace)
		}
		rest = rest[end+1:]
	}
}
