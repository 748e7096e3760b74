package term

import (
	"strings"
	"testing"
)

// On a narrow terminal the line omits keys, but never those for help and leaving. The help text of
// a key is folded completely.
func TestKeys(t *testing.T) {
	const keys = "a approve  d deny  t take over  m mark  / filter  enter read  ? help  q quit"
	for width, want := range map[int]string{
		80: keys,
		60: "a approve  d deny  t take over  m mark  ? help  q quit",
		40: "a approve  d deny  ? help  q quit",
		20: "a approve  ? help  …",
	} {
		if got := KeyLine(keys, width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	help := [][2]string{{"up, down", "choose a request; in a page, scroll by a line"}, {"q", "quit"}}
	for _, width := range []int{200, 60, 40, 24} {
		lines := KeyHelp(help, width)
		for _, line := range lines {
			if Width(line) > width || strings.Contains(line, "…") {
				t.Errorf("%d: %q", width, line)
			}
		}
		if got := strings.Join(strings.Fields(strings.Join(lines, " ")), " "); got != "up, down choose a request; in a page, scroll by a line q quit" {
			t.Errorf("%d: %s", width, got)
		}
	}
}
