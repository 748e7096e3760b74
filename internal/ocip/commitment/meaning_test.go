package commitment

import (
	"slices"
	"strings"
	"testing"
)

// TestMeaning checks that a stranger reads no family's name.
func TestMeaning(t *testing.T) {
	for _, name := range append(Families(), Keywords()...) {
		meaning := Meaning(name)
		if meaning == "" || strings.Contains(meaning, "-") || isLanguage(name) && meaning == "seems to promise something in " {
			t.Errorf("%s means %q", name, meaning)
		}
		if family := meanings[name]; family == "" && !isLanguage(name) && meaning != meanings[RuleKeyword] {
			t.Errorf("%s means %q", name, meaning)
		}
	}
	for names, want := range map[string]string{"": "", "book": "book", "book acceptance derived": Acceptance, "derived de": German, "book meeting": "book"} {
		if got := Telling(strings.Fields(names)); got != want {
			t.Errorf("of %q %q tells most, want %q", names, got, want)
		}
	}
}

func TestInWords(t *testing.T) {
	got := InWords([]string{RuleKeyword, Acceptance, `"book" is quoted`, Derived, German, "its words", "its words", ""})
	want := []string{"it seems to accept something", `"book" is quoted`, "it seems to promise something in German", "its words"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
