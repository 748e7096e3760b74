package ocip

import (
	"io"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// What stands in a long text is found once, wherever it stands and however the text
// is written, and never in another place than it is in.
func TestWeigher(t *testing.T) {
	detector, err := content.New(content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	promises, err := commitment.New(commitment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules := &Rules{Content: detector, Commitments: promises}
	const key, promise = "AKIAIOSFODNN7EXAMPLE", "please approve it"
	const length = 2*window + reach
	var places []int
	for border := 0; border < length; border += window - reach {
		for _, at := range []int{border - len(key) + 1, border - 3, border, border + lead - 3, border + lead, border + reach - 3, border + reach} {
			if at >= 0 && at <= length-2*len(key) {
				places = append(places, at)
			}
		}
	}
	filler := strings.Repeat("all is well ", length/12+1)[:length]
	for _, at := range append(places, length-2*len(key)) {
		text := filler[:at] + " " + key + " " + promise + ". " + filler[at:]
		w := rules.Weigher(nil)
		w.Begin("file a")
		for rest := text; rest != ""; {
			n := min(len(rest), 70_000)
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		w.Begin("file b")
		if _, err := io.WriteString(w, key); err != nil {
			t.Fatal(err)
		}
		found := w.Found()
		if f := found.findings; len(f) != 2 || text[f[0].Start:f[0].End] != key || f[0].Member != "file a" || f[1].Start != 0 || f[1].Member != "file b" {
			t.Errorf("at %d: found %+v", at, f)
		}
		if h := found.hits; len(h) != 1 || !strings.Contains(promise, text[h[0].Start:h[0].End]) {
			t.Errorf("at %d: found %+v", at, h)
		}
	}
}

// A file that is nothing but findings is told like a text that is.
func TestWeigherKeepsFew(t *testing.T) {
	detector, err := content.New(content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := (&Rules{Content: detector}).Weigher(nil)
	for range 10 * window / 21 {
		if _, err := io.WriteString(w, "AKIAIOSFODNN7EXAMPLE "); err != nil {
			t.Fatal(err)
		}
	}
	if found := w.Found().findings; len(found) != content.MaxPerRule {
		t.Errorf("%d findings", len(found))
	}
}
