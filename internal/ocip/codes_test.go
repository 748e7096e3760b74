package ocip

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestCodesAreAll compares the list with the constants in the source.
func TestCodesAreAll(t *testing.T) {
	source, err := os.ReadFile("verdict.go")
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`(?m)^\t\w+\s+Code = "([A-Z_]+)"$`).FindAllStringSubmatch(string(source), -1)
	if len(written) < 19 || len(written) != len(Codes()) {
		t.Errorf("%d codes are written down, and %d listed", len(written), len(Codes()))
	}
	for _, code := range written {
		if !slices.Contains(Codes(), Code(code[1])) {
			t.Errorf("%s is not listed", code[1])
		}
	}
}
