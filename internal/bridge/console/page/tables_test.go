package page_test

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/text"
)

// table writes the characters with a property as the bounds of ranges, each as its distance to the
// one before, in base 36.
func table(has func(rune) bool) string {
	var bounds []string
	was, in := rune(0), false
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if has(r) != in {
			bounds = append(bounds, strconv.FormatInt(int64(r-was), 36))
			was, in = r, !in
		}
	}
	return strings.Join(bounds, " ")
}

// TestTables holds the page's tables to the rules of Go: characters that do not show, marks, and the
// filters of `ocipd audit query`. UPDATE_SAMPLES=1 writes them.
func TestTables(t *testing.T) {
	var filters [][3]string
	for _, m := range audit.Filters() {
		filters = append(filters, [3]string{m.Filter, cmp.Or(m.Flag, m.Filter), strings.ReplaceAll(m.Usage(), "`", "")})
	}
	list, err := json.Marshal(filters)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("// Made by UPDATE_SAMPLES=1 go test -run TestTables from internal/base/text and internal/audit. Do not edit.\nexport const HIDDEN = %q;\nexport const MARKS = %q;\nexport const FILTERS = %s;\n",
		table(func(r rune) bool { return !text.Shows(r) }), table(text.IsMark), list)
	const file = "src/tables.js"
	if os.Getenv("UPDATE_SAMPLES") != "" {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not made from the tables of Go: %v", file, err)
	}
}
