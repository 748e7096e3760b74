package text

import (
	"strings"
	"testing"
)

// The first two pairs are those that the proposal gives for 127.0.0.1 and 63.84.220.193.
func TestProquints(t *testing.T) {
	rest := strings.Repeat("0", 48)
	for digest, want := range map[string]string{
		"sha256:7f0000013f54dcc1" + rest: "lusab babad gutih tugad",
		"sha256:00000000ffffffff" + rest: "babab babab zuzuz zuzuz",
		"sha256:7f0000013f54dcc1":        "",
		"7f0000013f54dcc1" + rest:        "",
		"sha256:zz":                      "",
		"":                               "",
	} {
		if got := Proquints(digest); got != want {
			t.Errorf("%s: %q, want %q", digest, got, want)
		}
	}
}
