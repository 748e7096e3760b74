package ocip

import (
	"strings"
	"testing"
)

func TestDisclose(t *testing.T) {
	const label = "Sent by user's OpenClaw assistant"
	tests := []struct {
		name, content string
		where         Disclosure
		want          string
	}{
		{"suffix", "Status?", DisclosureSuffix, "Status?\n\n" + label},
		{"prefix", "Status?", DisclosurePrefix, label + "\n\nStatus?"},
		{"none", "Status?", DisclosureNone, "Status?"},
		{"ends with it", "Status?\n\n" + label + "\n", DisclosureSuffix, "Status?\n\n" + label + "\n"},
		{"ends with it, prefix asked", "Status?\n" + label, DisclosurePrefix, "Status?\n" + label},
		{"begins with it", label + "\nStatus?", DisclosureSuffix, label + "\nStatus?"},
		{"is it", label, DisclosureSuffix, label},
		{"names it in a sentence", "I was " + label, DisclosureSuffix, "I was " + label + "\n\n" + label},
		{"quotes it", "> " + label, DisclosureSuffix, "> " + label + "\n\n" + label},
		{"has it in the middle", "a\n" + label + "\nb", DisclosureSuffix, "a\n" + label + "\nb\n\n" + label},
		{"windows lines", label + "\r\n\r\nStatus?", DisclosureSuffix, label + "\r\n\r\nStatus?"},
		{"blank lines of its own", "Status?" + strings.Repeat("\n", 40) + label, DisclosureSuffix, "Status?" + strings.Repeat("\n", 40) + label + "\n\n" + label},
		{"lines of nothing", "Status?\n\u2800\n\u200b\n" + label, DisclosureSuffix, "Status?\n\u2800\n\u200b\n" + label + "\n\n" + label},
		{"text far below it", label + strings.Repeat("\n", 40) + "Status?", DisclosureSuffix, label + strings.Repeat("\n", 40) + "Status?\n\n" + label},
		{"blank lines to come before it", "Status?" + strings.Repeat("\n", 40), DisclosureSuffix, "Status?\n\n" + label},
		{"blank lines to come behind it", strings.Repeat("\n", 40) + "  Status?", DisclosurePrefix, label + "\n\n  Status?"},
		{"indented", "Status?\n\n    " + label, DisclosureSuffix, "Status?\n\n    " + label + "\n\n" + label},
		{"on the same line", label + " Status?", DisclosureSuffix, label + " Status?\n\n" + label},
		{"half a character", "half \ufffd\n\n\n", DisclosureSuffix, "half \ufffd\n\n" + label},
		{"half a character before it", "half \ufffd\n" + label, DisclosureSuffix, "half \ufffd\n" + label},
		{"begins with half a character", "\n\n\n\ufffd half", DisclosurePrefix, label + "\n\n\ufffd half"},
		{"a character of its font alone", "mine \uf8ff", DisclosureSuffix, "mine \uf8ff\n\n" + label},
		{"a character of tomorrow", "new \U0001fbfe", DisclosureSuffix, "new \U0001fbfe\n\n" + label},
		{"a red heart", "love \u2764\ufe0f \n", DisclosureSuffix, "love \u2764\ufe0f\n\n" + label},
		{"a flag of tags", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", DisclosureSuffix, "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\n\n" + label},
		{"ends with another's", "Status?\n\nSent by bob's assistant", DisclosureSuffix, "Status?\n\nSent by bob's assistant\n\n" + label},
		{"odd blanks behind", "Status?\n" + label + "\n\u00a0", DisclosureSuffix, "Status?\n" + label + "\n\u00a0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Disclose(tt.content, label, tt.where); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzDisclose checks that the label occurs once, and that the content is complete.
func FuzzDisclose(f *testing.F) {
	for _, s := range []string{"", "a", DisclosureLabel, "a\n" + DisclosureLabel + " \n", DisclosureLabel + "\r\nb", "\u2028" + DisclosureLabel} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, content string, n uint8) {
		where := []Disclosure{DisclosureSuffix, DisclosurePrefix, DisclosureNone}[n%3]
		once := Disclose(content, DisclosureLabel, where)
		if where == DisclosureNone {
			if once != content {
				t.Fatalf("%q became %q", content, once)
			}
			return
		}
		if !strings.Contains(once, DisclosureLabel) || !strings.Contains(once, strings.TrimFunc(content, blank)) {
			t.Fatalf("%q became %q", content, once)
		}
		added := strings.Count(once, DisclosureLabel) - strings.Count(content, DisclosureLabel)
		if added < 0 || added > 1 {
			t.Fatalf("%q became %q: %d labels more", content, once, added)
		}
		for _, again := range []Disclosure{DisclosureSuffix, DisclosurePrefix} {
			if twice := Disclose(once, DisclosureLabel, again); twice != once {
				t.Fatalf("%q became %q, then %q", content, once, twice)
			}
		}
	})
}
