package content

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// said shows findings as member:rule:words.
func said(passages []text.Passage, found []Finding) string {
	var parts []string
	for _, f := range found {
		for _, p := range passages {
			if p.Member == f.Member {
				parts = append(parts, f.Member+":"+f.Rule+":"+p.Text[f.Start:f.End])
			}
		}
	}
	return strings.Join(parts, "|")
}

func TestScan(t *testing.T) {
	d, err := New(Options{Patterns: []Pattern{{Name: "file", Regexp: `^FILE-\d+$`, Level: Confidential}, {Name: "odd", Regexp: `a[^z]+b`, Level: Internal}}})
	if err != nil {
		t.Fatal(err)
	}
	const rest = "IOSFODNN7SAMPLED"
	const aws = "credential.aws-access-key-id"
	for _, tt := range []struct {
		name     string
		passages []text.Passage
		as       []text.Rendering
		want     string
	}{
		{"none", nil, nil, ""},
		{"members", []text.Passage{{Text: "see attached"}, {Member: "metadata.note", Text: "it is AKIA" + rest + "."}}, nil, "metadata.note:" + aws + ":AKIA" + rest},
		{"borders", []text.Passage{{Text: "AKIA"}, {Member: "a", Text: rest}, {Member: "b", Text: "password:"}, {Member: "c", Text: "hX7#kQ92mmZp"}}, nil, ""},
		{"a border ends a token", []text.Passage{{Text: "x"}, {Member: "a", Text: "AKIA" + rest}, {Member: "b", Text: "x"}}, nil, "a:" + aws + ":AKIA" + rest},
		{"patterns", []text.Passage{{Text: "a x"}, {Member: "a", Text: "FILE-12"}, {Member: "b", Text: "y b"}}, nil, "a:operator.file:FILE-12"},

		{"irc", []text.Passage{{Text: `\x41KIA` + rest}}, []text.Rendering{text.RenderIRC}, ":" + aws + `:\x41KIA` + rest},
		{"irc, control", []text.Passage{{Text: "AKIA\x02" + rest}}, []text.Rendering{text.RenderIRC}, ":" + aws + ":AKIA\x02" + rest},
		{"html, tag", []text.Passage{{Text: "so AKIA<b>" + rest + "</b>"}}, []text.Rendering{text.RenderHTML}, ":" + aws + ":AKIA<b>" + rest},
		{"html, reference", []text.Passage{{Text: "&#65;KIA" + rest}}, []text.Rendering{text.RenderHTML}, ":" + aws + ":&#65;KIA" + rest},
		{"markdown", []text.Passage{{Text: "AKIA**" + rest[:4] + "**" + rest[4:]}}, []text.Rendering{text.RenderMarkdown}, ":" + aws + ":AKIA**" + rest[:4] + "**" + rest[4:]},
		{"both as one", []text.Passage{{Text: "<b>AKIA" + rest + "</b>"}}, []text.Rendering{text.RenderHTML}, ":" + aws + ":AKIA" + rest},
		{"hidden besides", []text.Passage{{Text: "&#65;K\u200bIA" + rest}}, []text.Rendering{text.RenderHTML}, ":" + aws + ":&#65;K\u200bIA" + rest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := said(tt.passages, d.Scan(tt.passages, tt.as...)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestClients05SecretsBehindTheAppsEscapes checks keys that the channel's app would have shown
// whole.
func TestClients05SecretsBehindTheAppsEscapes(t *testing.T) {
	d := detector(t)
	for s, as := range map[string]text.Rendering{
		`\x41KIAIOSFODNN7SAMPLED`:                              text.RenderIRC,
		"AKIA\x02IOSFODNN7SAMPLED":                             text.RenderIRC,
		`AKIA\0IOSFODNN7SAMPLED`:                               text.RenderIRC,
		"AKIA<b>IOSFODNN7SAMPLED</b>":                          text.RenderHTML,
		"&#65;KIAIOSFODNN7SAMPLED":                             text.RenderHTML,
		"AKIA**IOSFODNN7**SAMPLED":                             text.RenderMarkdown,
		"AKIA\x1b[1mIOSFODNN7SAMPLED":                          text.RenderNone,
		"ghp&#95;0123456789abcdefghijABCDEFGHIJ012345":         text.RenderHTML,
		`ghp\u005f0123456789abcdefghijABCDEFGHIJ012345`:        text.RenderIRC,
		"\x1b[31mghp_0123456789abcdefghijABCDEFGHIJ012345\x1b": text.RenderNone,
	} {
		if found := d.Scan([]text.Passage{{Text: s}}, as); Highest(found) != Restricted {
			t.Errorf("%q, %q: %v", s, as, found)
		}
	}
}

// TestScanIsBounded puts many findings into every member: the limit applies to all of them
// together, and a more serious finding in the last is kept.
func TestScanIsBounded(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var passages []text.Passage
	for i := range 1000 {
		passages = append(passages, text.Passage{Member: fmt.Sprint(i), Text: "internal use only"})
	}
	passages = append(passages, text.Passage{Member: "last", Text: "AKIAIOSFODNN7SAMPLED"})
	found := d.Scan(passages)
	if len(found) > MaxPerRule+1 || found[len(found)-1].Member != "last" || Highest(found) != Restricted {
		t.Errorf("%d findings, the last %+v", len(found), found[len(found)-1])
	}
}

// FuzzScan checks that each string of a message is scanned as if it were alone, and that every span
// is inside its string.
func FuzzScan(f *testing.F) {
	f.Add("AKIA", "IOSFODNN7SAMPLED password: hX7#kQ92mmZp")
	f.Add("\\x41KIAIOSFODNN7SAMPLED", "4111<b>1111</b>11111111")
	d, err := New(Options{Patterns: []Pattern{{Name: "odd", Regexp: `a[^z]+b`, Level: Internal}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 4<<10 {
			return
		}
		found := d.Scan([]text.Passage{{Member: "a", Text: a}, {Member: "b", Text: b}}, text.Renderings()...)
		counts := map[string]int{}
		for _, one := range found {
			s := map[string]string{"a": a, "b": b}[one.Member]
			if one.Start < 0 || one.Start >= one.End || one.End > len(s) {
				t.Fatalf("%+v of %q", one, s)
			}
			counts[one.Member]++
		}
		for member, s := range map[string]string{"a": a, "b": b} {
			if alone := d.Scan([]text.Passage{{Text: s}}, text.Renderings()...); len(found) < MaxPerRule/2 && len(alone) != counts[member] {
				t.Errorf("%q has %d findings alone, %d beside %q and %q", s, len(alone), counts[member], a, b)
			}
		}
	})
}

// TestWhatDoesNotShowHidesNoSecret puts every invisible character into a key, before one and after
// one.
func TestWhatDoesNotShowHidesNoSecret(t *testing.T) {
	d := detector(t)
	for r := range rune(unicode.MaxRune + 1) {
		if text.Shows(r) || r > 0x20000 && r%997 != 0 && r>>12 != 0xe0 {
			continue // most of the higher planes is unassigned, and alike
		}
		for _, s := range []string{"AKIA" + string(r) + "IOSFODNN7SAMPLED", "x" + string(r) + "AKIAIOSFODNN7SAMPLED" + string(r) + "x"} {
			if inside := s[0] == 'A'; inside && (unicode.IsSpace(r) || unicode.In(r, unicode.Z, unicode.Co, unicode.Cs) || r == '\u2800' || r == '\ufffd') {
				continue // a blank or a box, which the reader sees
			}
			if found := d.Detect(s); len(found) != 1 || !strings.Contains(s[found[0].Start:found[0].End], "IOSFODNN7SAMPLED") {
				t.Errorf("%q: %v", s, found)
			}
		}
	}
}
