package commitment

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// inflections lists the words that must be found, independently of the product's table.
var inflections = map[string]string{
	"schedule":  "schedule schedules scheduled scheduling",
	"meeting":   "meeting meetings",
	"agree":     "agree agrees agreed agreeing agreement agreements",
	"approve":   "approve approves approved approving approval approvals",
	"allocate":  "allocate allocates allocated allocating allocation allocations",
	"assign":    "assign assigns assigned assigning assignment assignments",
	"reserve":   "reserve reserves reserved reserving reservation reservations",
	"commit":    "commit commits committed committing commitment commitments",
	"confirm":   "confirm confirms confirmed confirming confirmation confirmations",
	"book":      "book books booked booking bookings",
	"deadline":  "deadline deadlines",
	"promise":   "promise promises promised promising",
	"guarantee": "guarantee guarantees guaranteed guaranteeing",
}

func TestInflections(t *testing.T) {
	if len(inflections) != len(keywords) {
		t.Fatalf("%d keywords in the table, want %d", len(inflections), len(keywords))
	}
	d := thirteenOnly(t)
	frames := []string{
		"%s", "%s.", "(%s)", "\"%s\"", "it is %s, then", "a/%s/b", "the %s's end", "pre-%s", "%s-related", "x=%s;", "\u201c%s\u201d",
		"# %s\n", "- [ ] %s", "[%s](https://example.org)", "on 5 %s 6", "line\n%s\nline", "дом %s дом", "桌子 %s 桌子", "请%s这个", "この%sを", "%s해주세요", "ה%s", "%s!", "%s?", "%s…",
	}
	for keyword, forms := range inflections {
		for form := range strings.FieldsSeq(forms) {
			for _, cased := range []string{form, strings.ToUpper(form), strings.ToUpper(form[:1]) + form[1:], alternate(form)} {
				for _, frame := range frames {
					text := fmt.Sprintf(frame, cased)
					hits := d.Detect(text)
					if len(hits) != 1 || hits[0].Keyword != keyword || hits[0].Rule != RuleKeyword && hits[0].Rule != Derived {
						t.Errorf("%q: found %+v, want %s", text, hits, keyword)
						continue
					}
					if got := text[hits[0].Start:hits[0].End]; got != cased && got != cased+"'s" {
						t.Errorf("%q: the span is %q, want %q", text, got, cased)
					}
				}
			}
		}
	}
}

func alternate(s string) string {
	b := []byte(s)
	for i := 0; i < len(b); i += 2 {
		b[i] -= 'a' - 'A'
	}
	return string(b)
}

// disguise disguises a word. It returns the replacement of the word in the text.
type disguise struct {
	name string
	as   func(word string) string
}

// between inserts something between the letters of a word.
func between(sign string) func(string) string {
	return func(word string) string { return strings.Join(strings.Split(word, ""), sign) }
}

// inside inserts something into the middle of a word.
func inside(sign string) func(string) string {
	return func(word string) string { return word[:len(word)/2] + sign + word[len(word)/2:] }
}

// replaced replaces letters by other runes; pairs are letter and rune.
func replaced(pairs ...string) func(string) string {
	r := strings.NewReplacer(pairs...)
	return r.Replace
}

func mapped(offset rune) func(string) string {
	return func(word string) string {
		return strings.Map(func(r rune) rune { return r - 'a' + offset }, word)
	}
}

func disguises() []disguise {
	list := []disguise{
		{"full width", mapped('ａ')},
		{"full width capitals", mapped('Ａ')},
		{"mathematical bold", mapped('𝐚')},
		{"mathematical script", mapped('𝓪')},
		{"fraktur", mapped('𝖆')},
		{"monospace", mapped('𝚊')},
		{"circled", mapped('ⓐ')},
		{"squared", mapped('🄰')},
		{"white on black", mapped('🅐')},
		{"white on black, square", mapped('🅰')},
		{"flags", mapped('🇦')},
		{"Cyrillic", replaced("a", "а", "c", "с", "e", "е", "i", "і", "o", "о", "p", "р", "s", "ѕ", "d", "ԁ", "h", "һ")},
		{"Cyrillic capitals", replaced("a", "А", "c", "С", "e", "Е", "i", "І", "o", "О", "p", "Р", "m", "М", "t", "Т", "b", "В", "k", "К", "h", "Н")},
		{"Greek", replaced("a", "α", "e", "ε", "i", "ι", "o", "ο", "p", "ρ", "v", "ν", "u", "υ", "t", "τ", "k", "κ", "n", "η")},
		{"Greek capitals", replaced("a", "Α", "e", "Ε", "i", "Ι", "o", "Ο", "p", "Ρ", "m", "Μ", "n", "Ν", "t", "Τ", "b", "Β", "k", "Κ")},
		{"Armenian", replaced("o", "օ", "h", "հ", "n", "ո", "u", "ս", "g", "ց")},
		{"Cherokee", replaced("a", "Ꭺ", "b", "Ᏼ", "c", "Ꮯ", "d", "Ꭰ", "e", "Ꭼ", "i", "Ꭵ", "m", "Ꮇ", "s", "Ꮪ", "t", "Ꭲ")},
		{"Lisu", replaced("a", "ꓮ", "b", "ꓐ", "c", "ꓚ", "d", "ꓓ", "e", "ꓰ", "m", "ꓟ", "n", "ꓠ", "o", "ꓳ", "p", "ꓑ", "r", "ꓣ", "s", "ꓢ")},
		{"small capitals", replaced("a", "ᴀ", "b", "ʙ", "c", "ᴄ", "d", "ᴅ", "e", "ᴇ", "g", "ɢ", "h", "ʜ", "i", "ɪ", "k", "ᴋ", "l", "ʟ", "m", "ᴍ", "n", "ɴ", "o", "ᴏ", "p", "ᴘ", "r", "ʀ", "s", "ꜱ", "t", "ᴛ", "u", "ᴜ", "v", "ᴠ")},
		{"accented", replaced("a", "á", "e", "ê", "i", "ï", "o", "õ", "u", "ü", "n", "ñ", "c", "ç", "s", "š")},
		{"strokes", replaced("b", "ƀ", "d", "đ", "g", "ǥ", "h", "ħ", "i", "ɨ", "k", "ƙ", "l", "ł", "o", "ø", "t", "ŧ")},
		{"long s", replaced("s", "ſ")},
		{"capital I for l", replaced("l", "I")},
		{"l for i", replaced("i", "l")},
		{"bar for l and i", replaced("l", "|", "i", "|")},
		{"rn for m", replaced("m", "rn")},
		{"digits", replaced("o", "0", "i", "1", "l", "1", "e", "3")},
		{"more digits", replaced("a", "4", "s", "5", "t", "7")},
		{"signs", replaced("a", "@", "s", "$", "i", "!")},
		{"character references", func(w string) string {
			var b strings.Builder
			for i, r := range w {
				if i%2 == 0 {
					fmt.Fprintf(&b, "&#%d;", r)
				} else {
					fmt.Fprintf(&b, "&#x%X;", r)
				}
			}
			return b.String()
		}},
		{"combining marks", between("\u0336")},
		{"stacked marks", between("\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308")},
		{"tags", between("\U000e0041\U000e0042")},
		{"variation selectors", between("\ufe0f\U000e0100")},
		{"an emoji inside", inside("🙂")},
		{"a comment inside", inside("<!-- x -->")},
		{"bold by tag", inside("<b>")},
		{"tag closed inside", func(w string) string { return "<i>" + inside("</i>")(w) }},
		{"in bold", func(w string) string { return "**" + w + "**" }},
		{"half in bold", func(w string) string { return "**" + inside("**")(w) }},
		{"in italics", func(w string) string { return "_" + w + "_" }},
		{"struck out", func(w string) string { return "~~" + w + "~~" }},
		{"as code", func(w string) string { return "`" + w + "`" }},
		{"broken at the line's end", inside("-\n")},
		{"broken, indented", inside("-\r\n   ")},
		{"broken in a quote", inside("-\n> > ")},
		{"broken by a soft hyphen", inside("\u00ad\n")},
		{"quoted-printable", inside("=\r\n")},
		{"broken at the line's end, no hyphen", inside("\n")},
		{"broken, indented, no hyphen", inside("\r\n ")},
		{"a blank inside", inside(" ")},
		{"two blanks inside", inside("  ")},
		{"in pieces", func(w string) string { return w[:2] + " " + w[2:3] + "\n" + w[3:] }},
		{"by twos", func(w string) string {
			var pieces []string
			for ; len(w) > 2; w = w[2:] {
				pieces = append(pieces, w[:2])
			}
			return strings.Join(append(pieces, w), " ")
		}},
		{"broken, indented far", inside("\n        ")},
		{"a break of Markdown inside", inside("\\\n")},
		{"broken in a quote, no hyphen", inside("\n> ")},
		{"in italics, in two", inside("_ _")},
		{"letters in bold apart", between("** **")},
		{"a list of letters", between(`", "`)},
		{"letters far apart", between("      ")},
		{"a link inside", inside("[](https://x.example/a)")},
		{"an image inside", inside("![](x)")},
		{"half a link", func(w string) string { return "[" + inside("](https://x.example/a)")(w) }},
		{"a footnote inside", inside("[^1]")},
		{"a link of a terminal inside", inside("\x1b]8;;https://x.example\a")},
		{"cl for d", replaced("d", "cl")},
		{"backwards, rn for m", func(w string) string {
			b := []byte(w)
			slices.Reverse(b)
			return strings.ReplaceAll(string(b), "m", "rn")
		}},
		{"upside down", func(w string) string {
			b := []byte(w)
			slices.Reverse(b)
			return replaced("a", "ɐ", "b", "q", "c", "ɔ", "d", "p", "e", "ǝ", "f", "ɟ", "g", "ƃ", "h", "ɥ", "i", "ᴉ", "k", "ʞ", "m", "ɯ", "n", "u", "p", "d", "r", "ɹ", "t", "ʇ", "u", "n", "v", "ʌ")(string(b))
		}},
		{"Coptic", replaced("c", "ⲥ", "o", "ⲟ", "p", "ⲣ", "k", "ⲕ", "t", "ⲧ", "m", "ⲙ", "n", "ⲛ", "h", "ⲏ")},
		{"Deseret", replaced("o", "𐐬", "c", "𐐽")},
		{"Hebrew", replaced("o", "ס", "l", "ן")},
		{"Arabic", replaced("o", "ه", "l", "ا")},
		{"a ring", replaced("o", "⭕")},
		{"Canadian syllabics", replaced("a", "ᗩ", "b", "ᗷ", "c", "ᑕ", "d", "ᗪ", "e", "ᕮ", "f", "ᖴ", "h", "ᕼ", "l", "ᒪ", "m", "ᗰ", "n", "ᑎ", "o", "ᗝ", "p", "ᑭ", "r", "ᖇ", "s", "ᔕ", "u", "ᑌ", "v", "ᐯ")},
		{"hooks", replaced("b", "ɓ", "d", "ɖ", "k", "ⱪ", "m", "ɱ", "n", "ƞ", "s", "ȿ", "t", "ț", "r", "ɽ", "p", "ᵽ", "v", "ⱴ")},
		{"octal", func(w string) string {
			var b strings.Builder
			for i := range len(w) {
				fmt.Fprintf(&b, "\\%03o", w[i])
			}
			return b.String()
		}},
		{"braces", func(w string) string { return fmt.Sprintf("\\u{%x}\\x{%x}%s", w[0], w[1], w[2:]) }},
		{"eight digits", func(w string) string { return fmt.Sprintf("\\U%08x%s", w[0], w[1:]) }},
		{"percent, u", func(w string) string { return fmt.Sprintf("%%u%04x%s", w[0], w[1:]) }},
		{"percent twice", func(w string) string { return fmt.Sprintf("%%25%02x%s", w[0], w[1:]) }},
		{"percent, of bytes", replaced("o", "%D0%BE", "e", "%d0%b5", "i", "%d1%96", "a", "%d0%b0")},
		{"bytes", replaced("o", `\xd0\xbe`, "e", `\xd0\xb5`, "i", `\xd1\x96`, "a", `\xd0\xb0`)},
		{"percent", func(w string) string { return fmt.Sprintf("%%%02x%s", w[0], w[1:]) }},
		{"percent all through", func(w string) string {
			var b strings.Builder
			for i := range len(w) {
				fmt.Fprintf(&b, "%%%02X", w[i])
			}
			return b.String()
		}},
		{"backwards", func(w string) string { b := []byte(w); slices.Reverse(b); return string(b) }},
		{"backwards, turned", func(w string) string { b := []byte(w); slices.Reverse(b); return "\u202e" + string(b) }},
		{"thirteen letters on", func(w string) string { return strings.Map(rot13, w) }},
		{"base64", func(w string) string { return base64.StdEncoding.EncodeToString([]byte(w)) }},
		{"base64 in a sentence", func(w string) string { return base64.StdEncoding.EncodeToString([]byte("so we " + w + " it")) }},
		{"base64 with no padding", func(w string) string { return base64.RawURLEncoding.EncodeToString([]byte("so we " + w + " it, yes")) }},
		{"hexadecimal", func(w string) string { return hex.EncodeToString([]byte(w)) }},
		{"hexadecimal with 0x", func(w string) string { return fmt.Sprintf("0x%X", "to "+w) }},
	}
	for name, sign := range map[string]string{
		"zero-width space": "\u200b", "zero-width non-joiner": "\u200c", "zero-width joiner": "\u200d", "word joiner": "\u2060",
		"byte order mark": "\ufeff", "soft hyphen": "\u00ad", "grapheme joiner": "\u034f", "Mongolian separator": "\u180e",
		"left-to-right mark": "\u200e", "override": "\u202e", "isolate": "\u2066", "Hangul filler": "\u3164", "half-width filler": "\uffa0",
		"replacement": "\ufffd", "NUL": "\x00", "backspace": "\b", "invalid UTF-8": "\xff", "soft hyphen reference": "&shy;",
		"zero-width reference": "&#8203;", "named zero width": "&zwnj;",
	} {
		list = append(list, disguise{name + " between letters", between(sign)}, disguise{name + " inside", inside(sign + sign)})
	}
	for _, sign := range []string{" ", ".", "-", "_", "*", "·", "•", "~", "\u00a0", "\u2009", "\t", " - ", " . ", "\u2010", "/", "\n", "’"} {
		list = append(list, disguise{fmt.Sprintf("letters apart by %q", sign), between(sign)})
	}
	for _, sign := range []string{"-", ".", "_", "*", "**", "~~", "`", "\\", "\u2011", "'", "+", "·"} {
		list = append(list, disguise{fmt.Sprintf("%q inside", sign), inside(sign)})
	}
	return list
}

// TestEvasion tries every keyword in every disguise, and checks the span.
func TestEvasion(t *testing.T) {
	d := thirteenOnly(t)
	for _, disguise := range disguises() {
		for _, k := range keywords {
			hidden := disguise.as(k.name)
			if strings.HasPrefix(disguise.name, "signs") && strings.Trim(hidden, "@$!") != hidden && len(hidden) < 5 {
				continue
			}
			for _, frame := range []string{"%s", "we do %s it", "ok.\n%s\n\nbye", "é %s ж"} {
				before, after, _ := strings.Cut(frame, "%s")
				text := before + hidden + after
				hits := d.Detect(text)
				if len(hits) != 1 || hits[0].Keyword != k.name {
					t.Errorf("%s: %q: found %+v, want %s", disguise.name, text, hits, k.name)
					continue
				}
				// Markup around the word does not belong to it.
				want := strings.Trim(hidden, "*_~`")
				want = strings.TrimPrefix(strings.TrimPrefix(want, "<i>"), "[")
				want = strings.TrimPrefix(want, "\u202e")
				if got := text[hits[0].Start:hits[0].End]; got != want {
					t.Errorf("%s: %q: the span is %q, want %q", disguise.name, text, got, want)
				}
			}
		}
	}
}

// TestGlued puts every keyword next to other letters, as the reference plugin would find it.
func TestGlued(t *testing.T) {
	d := thirteenOnly(t)
	for _, k := range keywords {
		for _, frame := range []string{
			"please%s", "%snow", "please%sit", "PLEASE%sIT", "#%sNow", "#now%s", "a%sa", "x%s", "%sx", "call_%sBy(x)", "д%s", "%sж", "7%sz", "z%s7",
			"ok, we%sthat.", "search%s%s", "\u202ex%s", "zq\u200b%s", "please%%20%sx", "z\\u0020%sz", "\\n%sx", "https://x.example/please%s?y=1",
		} {
			for _, word := range []string{k.name, strings.ToUpper(k.name), alternate(k.name), k.name[:1] + "\u200b" + k.name[1:], k.name[:len(k.name)-1] + "\u2060\u200d" + k.name[len(k.name)-1:]} {
				text := strings.ReplaceAll(strings.ReplaceAll(frame, "%%", "%"), "%s", word)
				hits := d.Detect(text)
				if !slices.ContainsFunc(hits, func(h Hit) bool {
					return h.Keyword == k.name && strings.HasPrefix(strings.ToLower(word), strings.ToLower(text[h.Start:h.End]))
				}) {
					t.Errorf("%q: found %+v, want %s", text, hits, k.name)
				}
			}
		}
	}
	for text, want := range map[string]string{
		"hasSignature":       "assign", // the seed's literal match finds it, and it is no word
		"searchandbook":      "book",
		"mondaybook":         "book",
		"confirmeeting":      "confirm meeting",
		"pleasescheduling":   "schedule",
		"weareapprovingthis": "approve",
		"iampromisingyou":    "promise",
		"bookbookbook":       "book",
		"boo\u212a":          "book",
		"please&#98;ook":     "book",
		"please%62ookit":     "book",
		"pleaseprоmіsе":      "promise", // with letters of Cyrillic
		"ｐｌｅａｓｅｂｏｏｋ":         "book",
		"notebooks":          "",
		"preserving":         "",
		"uncompromising":     "",
		"HANDBOOK":           "",
		"MyFaceBook":         "",
	} {
		if got := Judge(d.Detect(text)).DetectedKeywords; !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: found %v, want %s", text, got, want)
		}
	}
}

func TestTwoDisguises(t *testing.T) {
	d := thirteenOnly(t)
	for text, want := range map[string]string{
		"p l e a s e b o o k i t":       "book",
		"p l e a s e  c o n f i r m":    "confirm",
		"S.C.H.E.D.U.L.I.N.G":           "schedule",
		"ｃ\u200bо\u0301ｍｍ1t":            "commit",
		"c-0-m-m-1-t":                   "commit",
		"**g**u**a**r**a**n**t**e**e**": "guarantee",
		"conﬁrm":                        "confirm",
		"ａｐｐ\u00adｒｏｖａｌ":                "approve",
		"4gree":                         "agree",
		"$ch3du|ed":                     "schedule",
		"c0mm!tted":                     "commit",
		"b00k":                          "book",
		"<b>ap</b><i>pro</i>ved":        "approve",
		"cornrnitrnent":                 "commit",
		"comitted":                      "commit",
		"garanteed":                     "guarantee",
		"сонfirm":                       "",
		"\u202ebook\u202c":              "book",
		"re-schedule":                   "schedule",
		"double-booked":                 "book",
		"bob@booking.com":               "book",
		"approve_request":               "approve",
		"com_mit":                       "commit",
		"book2":                         "book",
		"(re)schedule":                  "schedule",
		"&#99;&#111;&#x6d;mit":          "commit",
		"ᵃᵖᵖʳᵒᵛᵉ":                       "approve",
		"s\nc\nh\ne\nd\nu\nl\ne":        "schedule",
		"d e a d l i n e :":             "deadline",
		"m\u2003e\u2003e\u2003t\u2003i\u2003n\u2003g": "meeting",
	} {
		var got []string
		for _, h := range d.Detect(text) {
			got = append(got, h.Keyword)
		}
		if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("%q: found %v, want %q", text, got, want)
		}
	}
}

// innocentText has plain innocent words and phrases, none of which is a keyword.
const innocentText = `facebook|Facebook|FACEBOOK|ebook|e-book|E-books|e‑book|notebook|note-book|bookmark|book­mark|bookmarked|bookmarking|handbook|
textbook|cookbook|yearbook|workbook|playbook|runbook|logbook|casebook|guidebook|checkbook|chequebook|passbook|scrapbook|sketchbook|
songbook|storybook|audiobook|MacBook|Chromebook|bankbook|daybook|copybook|phonebook|pocketbook|hymnbook|rulebook|stylebook|sourcebook|
bookkeeper|bookkeeping|book-keeping|bookshelf|bookshelves|bookcase|bookstore|bookshop|booklet|bookend|bookworm|bookish|bookseller|
bookmaker|bookie|bookable|booker|bookplate|bookbinder|bookrest|bookstall|
committee|Committee|COMMITTEE|c o m m i t t e e|C O M M I T T E E|committees|subcommittee|committeewoman|committer|committers|noncommittal|non-committal|uncommitted|commits2x9y|
disagree|disagrees|disagreed|disagreeing|disagreement|dis-agree|agreeable|agreeably|disagreeable|agrees2k9z|agreeability|
disapprove|disapproval|unapproved|approver|approvers|approvingly|approvable|
assignee|assignees|assigner|assignor|assignation|assignable|unassigned|design|designs|designed|designing|designate|consign|resign|reassess|
allocator|allocators|unallocated|deallocator|allocatable|malloc|
unreserved|unreservedly|reservist|reservoir|reservoirs|preserve|preserves|preserved|deserve|deserves|observe|conserve|reservable|
scheduler|schedulers|unscheduled|schedular|
unconfirmed|confirmatory|conform|confine|confide|firm|infirm|affirm|affirmation|
guarantor|guarantors|warrantee|guard|guarani|
compromise|compromised|compromising|unpromising|promisingly|promissory|premise|premises|promiscuous|
meet|meets|met|greeting|greetings|fleeting|sheeting|meetinghouse|teeming|meetup|
deadlock|deadbeat|headline|headlines|headliner|deadly|breadline|dateline|lifeline|deadliness|
degree|degrees|pedigree|filigree|greed|greedy|agrarian|agriculture|agre|gree|
commission|commissioner|common|comet|omit|emit|commute|commode|communist|submit|summit|vomit|
approx|approach|apropos|prove|proven|improve|improvement|reprove|proval|
faceb00k|e\u200bbook|a.Sign(x)|4_signed|4-sign|x.com/mit|a sign|4 greedy|n o t e b o o k|f-a-c-e-b-o-o-k|800k|a b c d|b o o m|as sign|boo king|re served|dead lines|a greed|all gone|app rules|book­shelf|
s c h o o l|1000|0x800c|5c4ed01e|f47ac10b-58cc-4372-a567-0e02b2c3d479|caffè|Straße|книга|расписание|встреча|συμφωνία|約束|บุ๊ก`

func TestInnocents(t *testing.T) {
	d := detector(t, Options{})
	words := strings.Split(strings.ReplaceAll(strings.ReplaceAll(innocentText, "\n", ""), `\u200b`, "\u200b"), "|")
	if len(words) < 150 {
		t.Fatalf("found %d words, want all of them", len(words))
	}
	for _, w := range words {
		if strings.HasSuffix(w, "2x9y") || strings.HasSuffix(w, "2k9z") {
			// A digit is a boundary: only digits at the end make these words.
			continue
		}
		for _, frame := range []string{"%s", "The %s was here.", "(%s)", "%s's", "%s, and\n%s"} {
			text := strings.ReplaceAll(frame, "%s", w)
			if hits := d.Detect(text); len(hits) > 0 {
				t.Errorf("%q: found %+v", text, hits)
			}
		}
	}
}

// TestFormsAreApart checks that no innocent word of the tables is a form, and that no form occurs
// twice, after l is replaced by i.
func TestFormsAreApart(t *testing.T) {
	seen := map[string]string{}
	note := func(words, whose string) {
		for w := range strings.FieldsSeq(words) {
			key := strings.ReplaceAll(w, "l", "i")
			if before, ok := seen[key]; ok {
				t.Errorf("%s of %s is already of %s", w, whose, before)
			}
			seen[key] = whose
		}
	}
	for _, k := range keywords {
		note(k.forms, k.name)
		note(k.derived, k.name+", derived")
	}
	note(innocents, "the innocents")
	note(prefixed, "the prefixed")
}

func TestPrefixed(t *testing.T) {
	d := detector(t, Options{})
	for w := range strings.FieldsSeq(prefixed) {
		text := "It was " + w + " today."
		hits := d.Detect(text)
		if len(hits) != 1 || hits[0].Rule != Prefixed || hits[0].Keyword != "" || text[hits[0].Start:hits[0].End] != w {
			t.Errorf("%q: found %+v", text, hits)
		}
		if hits := thirteenOnly(t).Detect(text); len(hits) > 0 {
			t.Errorf("%q, families off: found %+v", text, hits)
		}
	}
}

func TestSpans(t *testing.T) {
	d := thirteenOnly(t)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"schedule a meeting", []string{"schedule", "meeting"}},
		{"日本 approve 日本", []string{"approve"}},
		{"é\u200bbook\u200b.", nil},
		{"é \u200bbook\u200b.", []string{"book"}},
		{"**approve** it", []string{"approve"}},
		{"a s\u200bchedule\u200bd plan", []string{"s\u200bchedule\u200bd"}},
		{"ok 𝐛𝐨𝐨𝐤!", []string{"𝐛𝐨𝐨𝐤"}},
		{"c o m m i t, b o o k", []string{"c o m m i t", "b o o k"}},
		{"agreed.Booked", []string{"agreed", "Booked"}},
		{"promise,promise;promise", []string{"promise", "promise", "promise"}},
		{"book\u0301ed", []string{"book\u0301ed"}},
		{"re-\nserve it", []string{"re-\nserve"}},
		{"&#98;ook", []string{"&#98;ook"}},
	} {
		var got []string
		for _, h := range d.Detect(c.text) {
			got = append(got, c.text[h.Start:h.End])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: spans %q, want %q", c.text, got, c.want)
		}
	}
}

// TestCutAnywhere cuts every keyword with a blank or a break after each of its letters.
func TestCutAnywhere(t *testing.T) {
	d := thirteenOnly(t)
	words := map[string]bool{"a gree": true, "as sign": true, "re serve": true} // these are two words each
	for _, k := range keywords {
		for at := 1; at < len(k.name); at++ {
			if words[k.name[:at]+" "+k.name[at:]] {
				continue
			}
			for _, sign := range []string{" ", "   ", "\n", "\r\n\t", "\u00a0", "\u3000"} {
				for _, frame := range []string{"%s", "we %s it.", "We %s"} {
					text := fmt.Sprintf(frame, k.name[:at]+sign+k.name[at:])
					if got := Judge(d.Detect(text)).DetectedKeywords; !slices.Equal(got, []string{k.name}) {
						t.Errorf("%q: found %v", text, got)
					}
				}
			}
		}
	}
}

func TestDisclosureLabelIsSilent(t *testing.T) {
	const label = "Sent by user's OpenClaw assistant"
	d := detector(t, Options{})
	for _, text := range []string{
		label, label + "\n\nAll quiet.", "All quiet.\n\n" + label, "All quiet, as-\n\n" + label, "> " + label, strings.ToUpper(label),
		"Sent by user\u2019s OpenClaw assistant", "-- \n" + label, "5\n\n" + label, "We'll\n\n" + label, "a-\n" + label,
	} {
		if hits := d.Detect(text); len(hits) > 0 {
			t.Errorf("%q: found %+v", text, hits)
		}
	}
	text := "Please book it.\n\n" + label
	if hits := d.Detect(text); len(hits) != 1 || hits[0].Keyword != "book" {
		t.Errorf("%q: found %+v", text, hits)
	}
}

func TestSubstring(t *testing.T) {
	d := detector(t, Options{Match: MatchSubstring})
	for text, want := range map[string]string{
		"The committee met on Facebook.": "book commit",
		"She DISAGREES.":                 "agree",
		"rescheduled, unapproved":        "approve schedule",
		"scheduling":                     "",
		"approval":                       "",
		"allocation":                     "",
		"s\u200bchedule":                 "",
		"I'll send it by Friday. Works for me. We'll pay $500.": "",
		"boo\u212a":     "book",
		"confirmeeting": "confirm meeting",
		"":              "",
	} {
		got := Judge(d.Detect(text)).DetectedKeywords
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: found %v, want %s", text, got, want)
		}
	}
}

func FuzzDetect(f *testing.F) {
	for _, seed := range []string{
		"Please schedule it for Thursday.", "s\u200bchedule", "**approve** it, I'll send $500", "b o o k\n> c o m-\nmit `agree` ```\ncode",
		"On Mon X wrote:\n> deal\n\n-- \nme", "&#99;o&#x6d;mit &shy; <b>re</b>serve", "\xff\xfe\x00book", "we can pay 20k, 10% off. works for me?", "\x05XB\x05o0k", "Wе саn рау $500\u00a0x",
	} {
		f.Add(seed, uint(3))
	}
	d := detector(f, Options{})
	substring := detector(f, Options{Match: MatchSubstring})
	f.Fuzz(func(t *testing.T, text string, nth uint) {
		hits := d.Detect(text)
		for i, h := range hits {
			if h.Start < 0 || h.Start >= h.End || h.End > len(text) {
				t.Fatalf("%q: span of %+v", text, h)
			}
			if !boundary(text, h.Start) || !boundary(text, h.End) {
				t.Fatalf("%q: span of %+v cuts a rune", text, h)
			}
			if i > 0 && h.Start < hits[i-1].Start {
				t.Fatalf("%q: %+v is out of order", text, h)
			}
			if h.Rule == RuleKeyword && h.Shadow || (h.Rule == RuleKeyword || h.Rule == Derived) != (h.Keyword != "") {
				t.Fatalf("%q: %+v", text, h)
			}
		}
		if kept := Digest(hits, 64); len(kept) > 64 || !sameResult(Judge(kept), Judge(hits)) {
			t.Fatalf("%q: the digest of %+v is %+v", text, hits, kept)
		}
		lower := strings.ToLower(text)
		found := Judge(substring.Detect(text)).DetectedKeywords
		for _, k := range keywords {
			if strings.Contains(lower, k.name) != slices.Contains(found, k.name) {
				t.Fatalf("%q: substrings %v, %s: %v", text, found, k.name, !slices.Contains(found, k.name))
			}
		}
		conforms(t, text, hits)
		// Zero-width characters change nothing at any position, except inside a character
		// reference, an escape or a terminal sequence.
		if strings.ContainsAny(text, "&\\%\x1b") {
			return
		}
		var b strings.Builder
		for i, n := 0, uint(0); i < len(text); n++ {
			_, width := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[i : i+width])
			if nth < 2 || n%nth == 0 {
				b.WriteString([...]string{"\u200b", "\u200d", "\ufeff", "\u2060"}[n%4])
			}
			i += width
		}
		veiled := b.String()
		if before, after := words(hits, text), words(d.Detect(veiled), veiled); !slices.Equal(before, after) {
			t.Fatalf("%q: found %q, with zero-width characters %q", text, before, after)
		}
	})
}

// conforms compares with the reference: every hit of its literal match is found, except inside
// another word.
func conforms(t *testing.T, text string, hits []Hit) {
	t.Helper()
	counts := map[string]int{}
	for _, h := range hits {
		counts[h.Keyword]++
	}
	lower := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
	if len(lower) != len(text) {
		return // bytes that are no UTF-8
	}
	for _, k := range keywords {
		for from := 0; counts[k.name] < MaxPerKind; {
			i := strings.Index(lower[from:], k.name)
			if i < 0 {
				break
			}
			start := from + i
			end := start + len(k.name)
			from = end
			if slices.ContainsFunc(hits, func(h Hit) bool { return h.Keyword == k.name && h.Start < end && start < h.End }) || inOtherWord(lower, start, end) {
				continue
			}
			t.Fatalf("%q: %s at %d is not found, in %+v", text, k.name, start, hits)
		}
	}
}

// inOtherWord reports whether another word of the tables covers a stretch. Look-alikes of its
// letters may precede it.
func inOtherWord(lower string, start, end int) bool {
	for w := range strings.FieldsSeq(innocents + " " + prefixed) {
		for i := 0; i+end-start <= len(w); i++ {
			if w[i:i+end-start] == lower[start:end] && strings.HasPrefix(lower[end:], w[i+end-start:min(len(w), i+end-start+1)]) {
				return true
			}
		}
	}
	return false
}

func boundary(text string, at int) bool {
	if at == len(text) {
		return true
	}
	// An invalid byte is a rune of its own.
	for start := max(0, at-utf8.UTFMax+1); start < at; start++ {
		if utf8.RuneStart(text[start]) {
			if r, width := utf8.DecodeRuneInString(text[start:]); (r != utf8.RuneError || width > 1) && start+width > at {
				return false
			}
		}
	}
	return true
}

func words(hits []Hit, text string) []string {
	var found []string
	strip := strings.NewReplacer("\u200b", "", "\u200d", "", "\ufeff", "", "\u2060", "")
	for _, h := range hits {
		if h.Rule == RuleKeyword {
			found = append(found, h.Keyword+" "+strip.Replace(text[h.Start:h.End]))
		}
	}
	return found
}

func sameResult(a, b CommitmentDetectionResult) bool {
	return a.RequiresHuman == b.RequiresHuman && slices.Equal(a.DetectedKeywords, b.DetectedKeywords) &&
		(a.Reason == nil) == (b.Reason == nil) && (a.Reason == nil || *a.Reason == *b.Reason)
}
