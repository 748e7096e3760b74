package commitment

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func detector(tb testing.TB, o Options) *Detector {
	tb.Helper()
	d, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// thirteenOnly finds the thirteen keywords and no cues.
func thirteenOnly(tb testing.TB) *Detector {
	tb.Helper()
	off := map[string]Mode{}
	for _, family := range Families() {
		if family != Derived {
			off[family] = Off
		}
	}
	return detector(tb, Options{Families: off})
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/commitments.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Match Match
		Cases []struct {
			Text     string
			Keywords []string
			Note     string
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 50 {
		t.Fatalf("found %d cases, want all of them", len(file.Cases))
	}
	d := detector(t, Options{Match: file.Match})
	for _, c := range file.Cases {
		hits := d.Detect(c.Text)
		result := Judge(hits)
		if !slices.Equal(result.DetectedKeywords, c.Keywords) {
			t.Errorf("%q (%s): found %v, want %v", c.Text, c.Note, result.DetectedKeywords, c.Keywords)
		}
		if result.RequiresHuman != (len(c.Keywords) > 0) {
			t.Errorf("%q (%s): requires a human: %v, from %+v", c.Text, c.Note, result.RequiresHuman, hits)
		}
	}
}
