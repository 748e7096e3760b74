package ocip

import (
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// A finding in a long text is found once, at its own position, wherever it is and however the text
// is written.
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
	const key, promise = "AKIAIOSFODNN7SAMPLED", "please approve it"
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
		w := rules.Weigher(nil, 1<<10)
		for rest := text; rest != ""; {
			n := min(len(rest), 70_000)
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		other := rules.Weigher(nil, 1<<10)
		if _, err := io.WriteString(other, key); err != nil {
			t.Fatal(err)
		}
		found, extracts := Together([]NamedText{{"file a", w.Found()}, {"file b", other.Found()}})
		if f := found.findings; len(f) != 2 || text[f[0].Start:f[0].End] != key || f[0].Member != "file a" || f[1].Start != 0 || f[1].Member != "file b" {
			t.Errorf("at %d: found %+v", at, f)
		}
		whole := map[string]string{"file a": text, "file b": key}
		shown := make(map[string]int)
		for _, e := range extracts {
			if in := whole[e.Member]; e.Of != len(in) || e.At < shown[e.Member] || in[e.At:e.At+len(e.Text)] != e.Text {
				t.Errorf("at %d: of %s with %d bytes %d are shown from %d on, of %d", at, e.Member, len(in), len(e.Text), e.At, e.Of)
			}
			shown[e.Member] = e.At + len(e.Text)
		}
		if last := extracts[len(extracts)-2]; extracts[0].At != 0 || len(extracts[0].Text) < 1<<10 || len(extracts) > 3 ||
			!strings.Contains(last.Text, key+" "+promise) || extracts[len(extracts)-1].Text != key {
			t.Errorf("at %d: shown are %+v", at, extracts)
		}
		if h := found.hits; len(h) != 1 || !strings.Contains(promise, text[h[0].Start:h[0].End]) {
			t.Errorf("at %d: found %+v", at, h)
		}
	}
}

// A file of nothing but findings has the same findings as such a text.
func TestWeigherKeepsFew(t *testing.T) {
	detector, err := content.New(content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := (&Rules{Content: detector}).Weigher(nil, 0)
	for range 10 * window / 21 {
		if _, err := io.WriteString(w, "AKIAIOSFODNN7SAMPLED "); err != nil {
			t.Fatal(err)
		}
	}
	one := w.Found()
	if found, extracts := Together([]NamedText{{"file a", one}}); len(found.findings) != content.MaxPerRule || len(extracts) != 1 || len(extracts[0].Text) > 10*content.MaxPerRule*around {
		t.Errorf("%d findings, shown are %d parts", len(found.findings), len(extracts))
	}
	// Several such files have as many as one.
	shown := 0
	found, extracts := Together([]NamedText{{"file a", one}, {"file b", one}, {"file c", one}})
	for _, e := range extracts {
		shown += len(e.Text)
	}
	if len(found.findings) != content.MaxPerRule || shown > 10*content.MaxPerRule*around {
		t.Errorf("of three files there are %d findings, and %d bytes are shown", len(found.findings), shown)
	}
	if one.Size() > 128<<10 {
		t.Errorf("it keeps %d bytes", one.Size())
	}
}

// For a text without a finding, and without rules, people see the beginning, in whole characters.
// For one with findings, they see each byte once.
func TestExtracts(t *testing.T) {
	var texts []NamedText
	for _, text := range []string{"short", "aaaaaaaaaéé", ""} {
		w := (*Rules)(nil).Weigher(nil, 10)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, NamedText{"file " + text, w.Found()})
	}
	_, got := Together(texts)
	want := []Extract{{Member: "file short", Of: 5, Text: "short"}, {Member: "file aaaaaaaaaéé", Of: 13, Text: "aaaaaaaaa"}}
	if !slices.Equal(got, want) {
		t.Errorf("shown are %+v", got)
	}

	text := strings.Repeat("é", 5000)
	passages := []Passage{{Text: "I promise"}, {Member: "metadata.a", Text: text}, {Member: "metadata.b", Text: "nothing"}}
	found := []Detection{
		{Rule: "in the text", Start: 2, End: 9}, {Rule: "late", Member: "metadata.a", Start: 9990, End: 10000}, {Rule: "in the middle", Member: "metadata.a", Start: 5000, End: 5100},
		{Rule: "beside it", Member: "metadata.a", Start: 5080, End: 5200}, {Rule: "of no place", Member: "metadata.b"},
	}
	got = Extracts(found, passages)
	if len(got) != 3 || got[0].At != 0 || len(got[0].Text) != beginning || got[1].At != 5000-around || len(got[1].Text) != 200+2*around ||
		got[2].At != 9990-around || got[2].At+len(got[2].Text) != len(text) {
		t.Fatalf("shown are %+v", got)
	}
	for _, e := range got {
		if e.Member != "metadata.a" || e.Of != len(text) || e.Text != text[e.At:e.At+len(e.Text)] || !utf8.ValidString(e.Text) {
			t.Errorf("shown is %+v", e)
		}
	}
}

// Different members keep different names, however long their names are.
func TestClipMember(t *testing.T) {
	long := strings.Repeat("é", 300)
	for _, name := range []string{"", "metadata.note", long, long + "a", long + "b"} {
		got := ClipMember(name)
		if len(got) > maxProblem+len("…") || !utf8.ValidString(got) || len(name) <= maxProblem && got != name {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	if ClipMember(long+"a") == ClipMember(long+"b") {
		t.Error("two members have one name")
	}
}
