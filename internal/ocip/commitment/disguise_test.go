package commitment

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// TestCuesInDisguise disguises one cue of each family so that a reader can still read it.
func TestCuesInDisguise(t *testing.T) {
	d := detector(t, Options{})
	cues := map[string]string{
		"I'll send it by Friday.":              FirstPersonFuture,
		"Works for me.":                        Acceptance,
		"Roger that.":                          Acceptance,
		"We can pay $500.":                     Money,
		"We vow to deliver it.":                Pledge,
		"We hereby order 100 units.":           Pledge,
		"Consider this our binding contract.":  Pledge,
		"The company will pay 5000 on Friday.": FirstPersonFuture,
		"Your order has been cancelled.":       Done,
	}
	jsoned := func(s string) string {
		raw, err := json.Marshal(map[string]string{"reply": "Thanks.\n" + s})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	each := func(format string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for _, r := range s {
				fmt.Fprintf(&b, format, r)
			}
			return b.String()
		}
	}
	dresses := map[string]func(string) string{
		"as it is":            func(s string) string { return s },
		"capitals":            strings.ToUpper,
		"Cyrillic":            replaced("a", "а", "e", "е", "o", "о", "p", "р", "c", "с", "y", "у", "x", "х", "i", "і"),
		"full width":          func(s string) string { return strings.Map(wide, s) },
		"bold letters":        func(s string) string { return strings.Map(bold, s) },
		"zero width":          between("\u200b"),
		"soft hyphens":        between("\u00ad"),
		"references":          each("&#%d;"),
		"escapes":             each(`\u%04x`),
		"escapes with braces": each(`\u{%x}`),
		"per cent":            each("%%%02x"),
		"a URL":               url.PathEscape,
		"a form":              url.QueryEscape,
		"blanks that stay":    replaced(" ", "\u00a0"),
		"references to them":  replaced(" ", "&nbsp;"),
		"broken lines":        replaced(" ", "\n"),
		"broken, indented":    replaced(" ", "\r\n   "),
		"JSON":                jsoned,
		"JSON in JSON":        func(s string) string { return jsoned(jsoned(s)) },
		"an acute accent":     replaced("'", "\u00b4"),
		"emoji between":       replaced(" ", " 🙂 "),
		"a terminal's colour": func(s string) string { return "\x1b[1;31m" + s + "\x1b[0m" },
		"a heading":           func(s string) string { return "## " + s },
		"a link":              func(s string) string { return "[" + s + "](https://x.example)" },
		"half in Coptic":      replaced("o", "ⲟ", "c", "ⲥ"),
	}
	for cue, family := range cues {
		for name, dress := range dresses {
			s := dress(cue)
			hits := d.Detect(s)
			if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Name() == family && !h.Shadow }) {
				t.Errorf("%s: %q: found %+v, want %s", name, s, hits, family)
			}
			for _, h := range hits {
				if !boundary(s, h.Start) || !boundary(s, h.End) {
					t.Errorf("%s: %q: the span of %+v", name, s, h)
				}
			}
		}
	}
	// Line ends of a page, and of its source.
	for cue, family := range cues {
		s := strings.ReplaceAll(cue, " ", "<br>\n")
		hits := d.Scan([]text.Passage{{Text: s, Prose: true}}, text.RenderHTML)
		if !slices.ContainsFunc(hits, func(h Hit) bool { return h.Name() == family && !h.Shadow }) {
			t.Errorf("%q: found %+v, want %s", s, hits, family)
		}
	}
}

func wide(r rune) rune {
	if r > ' ' && r < 0x7f {
		return r + 0xfee0
	}
	return r
}

func bold(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r - 'a' + '𝐚'
	}
	return r
}

// TestNothingIsConcealed checks that ordinary text needs only the first scan.
func TestNothingIsConcealed(t *testing.T) {
	d := detector(t, Options{})
	for _, s := range []string{
		"It’s “done” – see § 4 … ✔️ 👩‍💻 🙂", "Größe, élève, ação, naïve, Straße", "Встреча в пятницу", "会议安排在星期五，（好的）？", "予約の確認、～です！",
		"a+1, 50% of it, AT&T, C:\\dir\\file, R&D", prose,
	} {
		g := gathering{d: d}
		g.look(s, text.View{Text: s})
		if len(g.concealed) > 0 {
			t.Errorf("%q is taken for disguised", s)
		}
	}
}

// TestConcealedFarAway checks that a disguise is found at any place of a long text, and that its
// surroundings cause no false hit.
func TestConcealedFarAway(t *testing.T) {
	d := detector(t, Options{})
	long := strings.Repeat(prose, 20)
	for _, s := range []string{
		long + "Wе саn рау $500. " + long,
		"Wе саn рау $500. " + long,
		long + "Wе саn рау $500.",
		long + "\\u0041 " + long + "Wе саn рау $500. " + long + "\\u0042",
	} {
		hits := d.Detect(s)
		if len(hits) != 1 || hits[0].Rule != Money || !strings.HasPrefix(s[hits[0].Start:], "Wе") || !strings.HasSuffix(s[:hits[0].End], "$500") {
			t.Errorf("%.40q…: found %+v", s, hits)
		}
	}
	for at := range len(prose) {
		s := prose + prose + prose[:at] + "\u200b" + prose[at:] + prose + prose
		for cut := range 3 {
			if hits := d.Detect(strings.Replace(s, "One more question", "No deal. Will do it? One more question", cut)); len(hits) > 0 {
				t.Fatalf("%q: found %+v", s, hits)
			}
		}
	}
}
