package text

import "testing"

func TestClip(t *testing.T) {
	for s, want := range map[string]string{"": "", "short": "short", "bad\xff": "bad\ufffd", "just eight": "just …", "naïvetés": "naïv…", "日本語の": "日…", "12345678": "12345678"} {
		if got := Clip(s, 8); got != want {
			t.Errorf("%q is clipped to %q, want %q", s, got, want)
		}
	}
}
