package commitment

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// said shows hits as member:name:words.
func said(passages []text.Passage, hits []Hit) string {
	var parts []string
	for _, h := range hits {
		for _, p := range passages {
			if p.Member == h.Member {
				parts = append(parts, h.Member+":"+h.Name()+":"+p.Text[h.Start:h.End])
			}
		}
	}
	return strings.Join(parts, "|")
}

func TestScan(t *testing.T) {
	d := detector(t, Options{})
	for _, tt := range []struct {
		name     string
		passages []text.Passage
		as       []text.Rendering
		want     string
	}{
		{"none", nil, nil, ""},
		{"members", []text.Passage{
			{Text: "see attached", Prose: true},
			{Member: "metadata.note", Text: "I promise a discount", Prose: true},
			{Member: "exchange.data[0].description", Text: "a meeting on Friday", Prose: true},
		}, nil, "metadata.note:promise:promise|exchange.data[0].description:meeting:meeting"},
		{"no prose", []text.Passage{{Member: "metadata.exchange.type", Text: "meeting_scheduling"}, {Member: "metadata.target", Text: "#book-club"}}, nil, ""},
		{"borders", []text.Passage{{Text: "pro", Prose: true}, {Member: "a", Text: "mise", Prose: true}, {Member: "b", Text: "I will", Prose: true}, {Member: "c", Text: "send it", Prose: true}}, nil, ""},
		{"a border ends a word", []text.Passage{{Text: "x", Prose: true}, {Member: "a", Text: "promise", Prose: true}, {Member: "b", Text: "d", Prose: true}}, nil, "a:promise:promise"},

		{"irc", []text.Passage{{Text: `I \x70\x72omise to pay`, Prose: true}}, []text.Rendering{text.RenderIRC}, `:promise:\x70\x72omise`},
		{"irc, nothing", []text.Passage{{Text: `pro\0mise`, Prose: true}}, []text.Rendering{text.RenderIRC}, `:promise:pro\0mise`},
		{"irc, written through the other", []text.Passage{{Text: `\x5cu0070romise`, Prose: true}}, []text.Rendering{text.RenderIRC}, `:promise:\x5cu0070romise`},
		{"both as one", []text.Passage{{Text: "a <b>promise</b>", Prose: true}}, []text.Rendering{text.RenderHTML}, ":promise:promise"},
		{"the written one too", []text.Passage{{Text: `promise and &#97;gree`, Prose: true}}, []text.Rendering{text.RenderHTML}, ":promise:promise|:agree:&#97;gree"},
		{"a cue in a quote stays one", []text.Passage{{Text: "see\n> I'll send it by Friday\nno", Prose: true}}, []text.Rendering{text.RenderIRC}, ":first-person-future:I'll send"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hits := d.Scan(tt.passages, tt.as...)
			if got := said(tt.passages, hits); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	hits := d.Scan([]text.Passage{{Text: "see\n> I'll send it by Friday\nno", Prose: true}}, text.RenderIRC)
	if len(hits) != 1 || hits[0].Zone != ZoneQuote || !hits[0].Shadow {
		t.Errorf("a quoted cue that IRC puts on one line is %+v", hits)
	}
}

// TestScanIsBounded puts many findings into every member: the limit applies to all together.
func TestScanIsBounded(t *testing.T) {
	d := detector(t, Options{})
	var passages []text.Passage
	for range 1000 {
		passages = append(passages, text.Passage{Member: "m", Text: "promise &#112;romise", Prose: true})
	}
	if hits := d.Scan(passages, text.RenderHTML); len(hits) > 2*MaxPerKind {
		t.Errorf("%d hits", len(hits))
	}
}

// FuzzScan checks that each string of a message is scanned as if it were alone, and that every span
// is inside its string.
func FuzzScan(f *testing.F) {
	f.Add("I pro", "mise \\x70romise <b>x</b>")
	f.Add("```\nagree", "> on\nI'll send it")
	d := detector(f, Options{})
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 4<<10 {
			return
		}
		hits := d.Scan([]text.Passage{{Member: "a", Text: a, Prose: true}, {Member: "b", Text: b, Prose: true}}, text.Renderings()...)
		counts := map[string]int{}
		for _, h := range hits {
			s := map[string]string{"a": a, "b": b}[h.Member]
			if h.Start < 0 || h.Start >= h.End || h.End > len(s) {
				t.Fatalf("%+v of %q", h, s)
			}
			counts[h.Member]++
		}
		for member, s := range map[string]string{"a": a, "b": b} {
			if alone := d.Scan([]text.Passage{{Text: s, Prose: true}}, text.Renderings()...); len(hits) < MaxPerKind && len(alone) != counts[member] {
				t.Errorf("%q has %d hits alone, %d beside %q and %q", s, len(alone), counts[member], a, b)
			}
		}
	})
}
