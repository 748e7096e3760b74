package configlog

import "testing"

// The size of a plain line is that of its encoding.
func TestSize(t *testing.T) {
	for _, line := range []string{"", `{"kind":"agent","user_id":"a\\b"}`, "a: \"b\" # c", "tab\there", "Zoë", "\x7f", "\u200b", "\xff"} {
		if got, want := size(line), sizeEncoded(line); got != want {
			t.Errorf("%q takes %d, want %d", line, got, want)
		}
	}
}
