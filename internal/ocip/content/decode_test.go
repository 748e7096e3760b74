package content

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/base/text"
)

// TestDecodedOnce hides secrets in the encodings of queries, pages, programs and configurations.
func TestDecodedOnce(t *testing.T) {
	token := "ghp_" + body(mixed, 36)
	assigned := "password: Tr0ub4dor&3"
	each := func(f func(c byte) string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				b.WriteString(f(s[i]))
			}
			return b.String()
		}
	}
	std, raw := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	wrap := func(s string) string {
		s = std([]byte(strings.Repeat("nothing here ", 6) + s + " and so on, for a while longer"))
		for i := 64; i < len(s); i += 65 {
			s = s[:i] + "\n" + s[i:]
		}
		return s
	}
	d := detector(t)
	for name, encode := range map[string]func(string) string{
		"base64":           func(s string) string { return std([]byte(s)) },
		"base64 of URLs":   func(s string) string { return raw([]byte(s)) },
		"a block":          wrap,
		"hexadecimal":      func(s string) string { return hex.EncodeToString([]byte(s)) },
		"a query":          url.QueryEscape,
		"per cent":         each(func(c byte) string { return fmt.Sprintf("%%%02X", c) }),
		"one per cent":     func(s string) string { return s[:3] + fmt.Sprintf("%%%02x", s[3]) + s[4:] },
		"references":       each(func(c byte) string { return fmt.Sprintf("&#%d;", c) }),
		"hex references":   each(func(c byte) string { return fmt.Sprintf("&#x%x;", c) }),
		"named references": html.EscapeString,
		"a soft hyphen":    func(s string) string { return s[:9] + "&shy;" + s[9:] },
		"escapes":          each(func(c byte) string { return fmt.Sprintf(`\u%04x`, c) }),
		"one escape":       func(s string) string { return s[:3] + fmt.Sprintf(`\u%04X`, s[3]) + s[4:] },
		"braces":           each(func(c byte) string { return fmt.Sprintf(`\u{%x}`, c) }),
		"one in braces":    func(s string) string { return s[:3] + fmt.Sprintf(`\x{%X}`, s[3]) + s[4:] },
		"eight digits":     each(func(c byte) string { return fmt.Sprintf(`\U%08x`, c) }),
		"octal digits":     each(func(c byte) string { return fmt.Sprintf(`\%03o`, c) }),
		"bytes":            each(func(c byte) string { return fmt.Sprintf(`\x%02x`, c) }),
	} {
		t.Run(name, func(t *testing.T) {
			for secret, rule := range map[string]string{token: "credential.github-token", assigned: ruleAssignment} {
				if name == "a query" && secret == assigned {
					continue // its blank is a plus
				}
				encoded := encode(secret)
				before := "see "
				found := d.Detect(before + encoded + " there")
				if len(found) != 1 || found[0].Rule != rule || found[0].Level != Restricted {
					t.Fatalf("got %v in %q", found, encoded)
				}
				if f := found[0]; f.Start < len(before) || f.End > len(before)+len(encoded) || f.End-f.Start < 11 {
					t.Errorf("the span %d-%d in %q", f.Start, f.End, encoded)
				}
			}
		})
	}
	// The span covers the value if it can be distinguished.
	query := "user=bob&password%3ATr0ub4dor%263&x=1"
	if found := d.Detect(query); len(found) != 1 || query[found[0].Start:found[0].End] != "Tr0ub4dor%263" {
		t.Errorf("got %v", found)
	}
	jwt := std([]byte(jwtLike))
	if found := d.Detect("data: " + jwt); len(found) != 1 || found[0].Rule != ruleJWT {
		t.Errorf("got %v in %q", found, jwt)
	}
	// A text that only looks like an escape removes nothing, here the name.
	quoted := `{\"password\": \"Tr0ub\u0034dor&3\"}`
	if found := d.Detect(quoted); len(found) != 1 || quoted[found[0].Start:found[0].End] != `Tr0ub\u0034dor&3` {
		t.Errorf("got %v in %q", found, quoted)
	}
	slash := strings.ReplaceAll("https://hooks.slack.com/services/T0"+body(capped, 8)+"/B0"+body(capped, 8)+"/"+body(mixed, 24), "/", `\/`)
	if found := d.Detect(slash); len(found) != 1 || found[0].Rule != ruleSlackWebhook {
		t.Errorf("got %v in %q", found, slash)
	}
}

// TestDisguised hides a token in the disguises of commitment keywords, which a reader still reads.
func TestDisguised(t *testing.T) {
	const cyrillic = "\u0440" // looks like a p
	token := "ghp_" + body(mixed, 36)
	inside := func(between string) func(string) string {
		return func(s string) string { return s[:17] + between + s[17:] }
	}
	all := func(between string) func(string) string {
		return func(s string) string { return strings.Join(strings.Split(s, ""), between) }
	}
	d := detector(t)
	for name, dress := range map[string]func(string) string{
		"bold":                func(s string) string { return s[:4] + "**" + s[4:] + "**" },
		"bold inside":         func(s string) string { return s[:9] + "**" + s[9:20] + "**" + s[20:] },
		"bold before the bar": func(s string) string { return s[:3] + "**" + s[3:] + "**" },
		"code":                func(s string) string { return s[:4] + "`" + s[4:] + "`" },
		"code inside":         func(s string) string { return s[:9] + "`" + s[9:20] + "`" + s[20:] },
		"struck out":          func(s string) string { return s[:9] + "~~" + s[9:20] + "~~" + s[20:] },
		"a stroke":            func(s string) string { return s[:3] + `\` + s[3:] },
		"one sign":            inside("*"),
		"a tag":               func(s string) string { return s[:9] + "<b>" + s[9:20] + "</b>" + s[20:] },
		"an empty tag":        inside("<wbr>"),
		"a comment":           inside("<!---->"),
		"accent":              inside("\u0301"),
		"accents":             all("\u0301"),
		"composed":            func(s string) string { return s[:2] + "\u1e55" + s[3:] },
		"enclosed":            inside("\u20dd"),
		"Cyrillic":            func(s string) string { return s[:2] + cyrillic + s[3:] },
		"Cyrillic first":      func(s string) string { return "\u0261" + s[1:] },
		"signs and accents":   func(s string) string { return s[:2] + "\u1e55" + s[3:9] + "**" + s[9:] },
		"backwards": func(s string) string {
			b := []byte(s)
			slices.Reverse(b)
			return string(b)
		},
		"thirteen letters on": func(s string) string {
			b := []byte(s)
			for i := range b {
				b[i] = thirteen(b[i])
			}
			return string(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const before = "see "
			written := dress(token)
			s := before + written + " there, été 2026"
			found := d.Detect(s)
			if len(found) != 1 || found[0].Rule != "credential.github-token" || found[0].Level != Restricted {
				t.Fatalf("got %v in %q", found, s)
			}
			if f := found[0]; f.Start < len(before) || f.End > len(before)+len(written) || f.End-f.Start < 36 {
				t.Errorf("the span %d-%d in %q", f.Start, f.End, s)
			}
		})
	}
	none(t, map[string]string{
		"emphasis":  "**one** *two* `three` ~~four~~ 5 a*b*c2 f<T>(x1) <b>6</b> C:\\dir_7\\file",
		"accents":   "développement2026 naïvetés-de-1999-à-2026 Größenverhältnisse_3 e\u0301te\u0301-2026-08-01",
		"backwards": "phg_ _phg gnihtemos-si-ereht-2026-dna tuc_ tuc-and-nothing-more-in-it-at-2026",
	})
}

// TestDecodedIsNoSecret has encoded texts that are no secrets, and markings, which people must be
// able to read.
func TestDecodedIsNoSecret(t *testing.T) {
	std := base64.StdEncoding.EncodeToString
	none(t, map[string]string{
		"prose":     std([]byte(prose[:300])),
		"a marking": std([]byte("TLP:RED and CONFIDENTIAL and nothing else")),
		"bytes":     std([]byte("\x89PNG\r\n\x1a\n password: Tr0ub4dor&3 ghp_" + body(mixed, 36))),
		"twice":     std([]byte(std([]byte("ghp_" + body(mixed, 36))))),
		"per cent":  "100%25 of it, 5% 6%, %zz, 12%",
		"page":      "a &amp; b &lt;c&gt; &nbsp; &copy; &unknown; & AT&T; \\u12 \\x \\u{41}",
		"path":      "/usr/local/share/documentation/packages/internal/and/so/on/and/so/forth",
	})
}

// TestWhatIsDroppedCountsForNothing fills rules with findings that are dropped in the end. They
// must not use up the limit before the real one beside them.
func TestWhatIsDroppedCountsForNothing(t *testing.T) {
	std := base64.StdEncoding.EncodeToString
	many := func(s string) string { return strings.Repeat(s, MaxPerRule) }
	d := detector(t)
	for name, tt := range map[string]struct{ filler, real, rule string }{
		"known better":         {many("token=sk_test_" + body(mixed, 24) + "\n"), "password=Tr0ub4dor&3", ruleAssignment},
		"a marking, encoded":   {std([]byte(many("TLP:RED "))) + "\n", "TLP:RED", ruleRed},
		"of a longer, escaped": {many(strings.Repeat("y", 600) + "AKIAIOSFODNN7REALKEY" + strings.Repeat("-", 492) + "%41\n"), "AKIAIOSFODNN7%52EALKEY", "credential.aws-access-key-id"},
	} {
		found := d.Scan([]text.Passage{{Text: tt.filler}, {Member: "last", Text: tt.real}})
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == tt.rule && f.Member == "last" }) {
			t.Errorf("%s: not found behind %d others: %v", name, MaxPerRule, found)
		}
	}
}

// FuzzDecoded checks that findings behind encodings are the same in a base64 block as without it,
// and that spans stay inside.
func FuzzDecoded(f *testing.F) {
	for _, s := range []string{"ghp_" + body(mixed, 36), "password: Tr0ub4dor&3 and more of it", "%41%4b&#73;\\u0041", "&shy;%%%\\/\\/&#x10ffff;"} {
		f.Add(s)
	}
	d := detector(f)
	f.Fuzz(func(t *testing.T, s string) {
		for _, one := range d.Detect(s) {
			if one.Start < 0 || one.Start >= one.End || one.End > len(s) {
				t.Fatalf("%+v of %q", one, s)
			}
		}
		if len(s) < 18 || len(s) > 1<<10 || !readable([]byte(s)) {
			return
		}
		secrets := 0
		for _, one := range (&pass{d: d, hit: func(int, int) {}}).builtin(nil, s) {
			if hides(one.Rule) {
				secrets++
			}
		}
		if behind := d.Detect(base64.StdEncoding.EncodeToString([]byte(s))); secrets > 0 && len(behind) == 0 {
			t.Errorf("%d in %q, none in its base64", secrets, s)
		}
	})
}

// TestInPieces checks a token that a program concatenates from strings, and that no two other
// strings count as one.
func TestInPieces(t *testing.T) {
	d := detector(t)
	token := "ghp_" + body(mixed, 36)
	for _, written := range []string{
		`"%s" + "%s"`, `'%s' . '%s'`, "`%s``%s`", `"%s" "%s"`, "\"%s\"\n    \"%s\"", `["%s", "%s"]`, `"%s" & "%s"`, `'%s' || '%s'`, "\"%s\" +\n\t\"%s\"", "\"%s\" \\\n\"%s\"",
		"%s\n\n%s", "%s\n  \n%s", "%s**%s", "%s*%s", "%s~~%s", "%s<b>%s", "%s<br/>%s", "[%s](https://x.example)%s",
	} {
		for _, at := range []int{8, 12, 30, len(token) - 2} {
			s := "key := " + fmt.Sprintf(written, token[:at], token[at:]) + " // so"
			found := d.Detect(s)
			if len(found) != 1 || found[0].Rule != "credential.github-token" || !strings.HasSuffix(s[:found[0].End], token[at:]) {
				t.Errorf("%q: found %+v", s, found)
			}
		}
	}
	for _, written := range []string{"it is %s\n%s as always", "it is %s\n\n%s as always", "%s\r\n \r\n%s"} {
		for at := 1; at < len(token); at++ {
			if found := d.Detect(fmt.Sprintf(written, token[:at], token[at:])); len(found) != 1 {
				t.Errorf("%q, cut at %d: found %+v", written, at, found)
			}
		}
	}
	// Strings of one list are read as one, and others are not.
	passages := func(members ...string) (list []text.Passage) {
		for i, m := range members {
			list = append(list, text.Passage{Member: m, Text: []string{"so " + token[:12], token[12:20], token[20:] + " as always"}[i]})
		}
		return list
	}
	for members, want := range map[[3]string]int{
		{"p.parts[0].text", "p.parts[1].text", "p.parts[2].text"}: 1, {"p[0]", "p[1]", "p[10]"}: 1, {"p[0].a", "p[0].b", "p[0].c"}: 0, {"a", "b", "c"}: 0, {"p[0].a", "p[1].b", "p[2].a"}: 0,
	} {
		found := d.Scan(passages(members[:]...))
		if len(found) != want || want == 1 && (found[0].Member != members[0] || found[0].Rule != "credential.github-token" || found[0].Start != 3 || found[0].End != 15) {
			t.Errorf("%v: found %+v", members, found)
		}
	}
	for _, apart := range []string{" ", "\u00a0", "\u2009"} {
		s := "it is " + token[:14] + apart + token[14:30] + apart + token[30:] + " as always"
		if found := d.Detect(s); len(found) != 1 {
			t.Errorf("%q: found %+v", s, found)
		}
	}
	three := fmt.Sprintf(`"%s" + "%s" + "%s"`, token[:10], token[10:14], token[14:])
	if found := d.Detect(three); len(found) != 1 {
		t.Errorf("%q: found %+v", three, found)
	}
	for _, s := range []string{
		`"` + token[:12] + `" and "` + token[12:] + `"`, `"` + token[:12] + `" + '` + token[12:] + `'`, `"ghp_" + "` + body(mixed, 20) + `"`,
		`"` + token[:12] + `" + "…"`, `["ghp_prefix", "gho_prefix", "ghu_prefix", "ghs_prefix", "ghr_prefix"]`, token[:12] + ` + ` + token[12:14],
		token[:30] + " is the beginning of it, and the rest was never sent to You or Me, as far as Anna says", token[:20] + " 1234567890123456", token[:12] + "**bold** and " + token[12:24],
	} {
		if found := d.Detect(s); len(found) > 0 {
			t.Errorf("%q: found %+v", s, found)
		}
	}
}
