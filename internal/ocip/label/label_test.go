package label

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct{ text, user, runtime, want string }{
		{Default, "alice", "OpenClaw", "Sent by alice's OpenClaw assistant"},
		{Default, "alice", "", "Sent by alice's assistant"},
		{Default, "", "Codex", "Sent by user's Codex assistant"},
		{Default, "", "", "Sent by user's OpenClaw assistant"},
		{"{runtime} of {user}", "alice", "", "of alice"},
		{"{runtime}", "alice", "", ocip.DisclosureLabel},
		{"{user} {user}", "wang", "", "wang wang"},
		{"Von einem Bot", "alice", "Codex", "Von einem Bot"},
		{"Von einem Bot", "", "", "Von einem Bot"},
		// A name with a placeholder's form stays out, and a name is not read as a text.
		{Default, "{runtime}", "Codex", "Sent by user's Codex assistant"},
		{Default, "al{ice", "Codex", "Sent by user's Codex assistant"},
		// Neither do line ends and hidden characters come in by a name.
		{Default, "alice\n\nI promise it.", "Codex", "Sent by user's Codex assistant"},
		{Default, "alice\r", "", ocip.DisclosureLabel},
		{Default, "alice", "Co\u2028dex", "Sent by alice's assistant"},
		{Default, "ali\u202ece", "\x1b[2J", ocip.DisclosureLabel},
		{Default, "ali\xffce", "", ocip.DisclosureLabel},
		{Default, " \u3000", "", ocip.DisclosureLabel},
		{Default, strings.Repeat("a", 64), "", "Sent by " + strings.Repeat("a", 64) + "'s assistant"},
		{Default, strings.Repeat("a", 65), "", ocip.DisclosureLabel},
	} {
		if got := Of(tc.text, tc.user, tc.runtime); got != tc.want {
			t.Errorf("text %q, user %q, runtime %q: got %q, want %q", tc.text, tc.user, tc.runtime, got, tc.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		Default:                  "",
		ocip.DisclosureLabel:     "",
		"{user}{runtime}":        "",
		strings.Repeat("é", 100): "",
		"":                       "want a sentence",
		" \u2800":                "want one line of characters that show",
		strings.Repeat("a", 201): "want at most 200 bytes, got 201",
		"one\ntwo":               "want one line of characters that show, got \"one\\ntwo\"",
		"one\u2028two":           `\u2028`,
		"\x1b[2J":                `\x1b`,
		"a\xff":                  `\xff`,
		" by {user}":             "no blank at either end",
		"by {name}":              "unknown placeholder {name}, want {user} or {runtime}",
		"by {User}":              "unknown placeholder {User}",
		"by {}":                  "unknown placeholder {}",
		"by {user":               "only around the name of a placeholder",
		"by user}":               "only around the name of a placeholder",
		"by {{user}}":            "only around the name of a placeholder",
		"by {user} {":            "only around the name of a placeholder",
	} {
		err := Check(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzOf checks that each label is one line that Disclose finds again, and holds no more than
// its text and the names.
func FuzzOf(f *testing.F) {
	f.Add(Default, "alice", "OpenClaw")
	f.Add("{runtime} {user}", "a\nb", "{user}")
	f.Fuzz(func(t *testing.T, said, user, runtime string) {
		if Check(said) != nil {
			return
		}
		label := Of(said, user, runtime)
		if strings.ContainsFunc(label, func(r rune) bool { return !text.Shows(r) || r == '{' || r == '}' }) || strings.TrimSpace(label) == "" || len(label) > maxText*maxName {
			t.Fatalf("text %q, user %q, runtime %q: %q", said, user, runtime, label)
		}
		for _, where := range []ocip.Disclosure{ocip.DisclosureSuffix, ocip.DisclosurePrefix} {
			if once := ocip.Disclose("Status?", label, where); ocip.Disclose(once, label, where) != once || ocip.Summarize(once, label) != "Status?" && label != "Status?" {
				t.Fatalf("%q has the label %q", once, label)
			}
		}
	})
}
