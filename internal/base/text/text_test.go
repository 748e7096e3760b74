package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestShows(t *testing.T) {
	for _, r := range "aZ09 ~é\u3000日本한글عربעברक😀ﬁ£–…‹\u0301" {
		if !Shows(r) {
			t.Errorf("U+%04X does not show", r)
		}
	}
	for _, r := range []rune{
		-1, 0, '\n', '\t', 0x1b, 0x7f, 0x85, 0x9b, 0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x180e, 0x2000, 0x200b, 0x200c,
		0x200d, 0x200e, 0x2028, 0x2029, 0x202e, 0x202f, 0x2060, 0x2066, 0x206f, 0x2800, 0x3164, 0xe000, 0xfe0f, 0xfeff, 0xffa0,
		0xfff9, 0xfffd, 0xfffe, 0x13441, 0x16fe4, 0x1d159, 0x1d173, 0xe0001, 0xe0041, 0xe0100, 0xf0000, 0x10ffff, 0x110000,
	} {
		if Shows(r) {
			t.Errorf("U+%04X shows", r)
		}
	}
	for r := range rune(unicode.MaxRune + 1) {
		if Shows(r) && (!unicode.IsPrint(r) && r != '\u3000' || unicode.In(r, unicode.Cf, unicode.Cc, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp)) {
			t.Errorf("U+%04X shows", r)
		}
	}
}

func TestVisible(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"plain, naïve, 日本", "plain, naïve, 日本"},
		{"a\u202eb", "a‹U+202E›b"},
		{"a\xffb", "a‹0xFF›b"},
		{"‹U+202E›", "‹U+2039›U+202E‹U+203A›"},
		{"a\tb\nc", "a‹tab›b‹U+000A›c"},
		{"\u0301a", "‹U+0301›a"},
		{"a\u0301\u0301\u0301\u0301\u0301b", "a\u0301\u0301\u0301\u0301‹U+0301›b"},
		{"\U000e0041", "‹U+E0041›"},
	} {
		if got := Visible(tt.text); got != tt.want {
			t.Errorf("Visible(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	for _, tt := range []struct{ json, want string }{
		{`{"a":"b"}`, `{"a":"b"}`},
		{"{\n\t\"a\": 1\r\n}", "{\n\t\"a\": 1\r\n}"},
		{"\"\u202e\u3164\u115f\u034f\u200b\ufeff\u2060\"", `"\u202e\u3164\u115f\u034f\u200b\ufeff\u2060"`},
		{"\"\U000e0041\u0085\x7f\u009b\"", `"\udb40\udc41\u0085\u007f\u009b"`},
		{`"\\\"` + "\u2028" + `"`, `"\\\"\u2028"`},
		{"\"日本 😀\"", "\"日本 😀\""},
		{"\"\xff\"", `"\ufffd"`},
	} {
		if got := string(AppendJSON(nil, tt.json)); got != tt.want {
			t.Errorf("AppendJSON(%q) = %q, want %q", tt.json, got, tt.want)
		}
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add("a\u202e\"\\\n")
	f.Add("\U000e0041\x7f")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		out := AppendJSON(nil, string(plain))
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != s {
			t.Errorf("%q became %s: %q, %v", s, out, back, err)
		}
		if !Showable(string(out)) {
			t.Errorf("%q became %q", s, out)
		}
	})
}

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"irc:#team", ""},
		{"telegram:日本 グループ", ""},
		{"signal:é", ""},
		{"telegram:rival ", "ends with a blank (U+0020 at byte 14)"},
		{" telegram:rival", "begins with a blank (U+0020 at byte 0)"},
		{"rival\u3000", "ends with a blank (U+3000 at byte 5)"},
		{"ri\u200bval", "U+200B at byte 2 does not show as what it is"},
		{"日\u202eval", "U+202E at byte 3 does not show as what it is"},
		{"rival\n", "U+000A at byte 5 does not show as what it is"},
		{"a\xffb", "byte 1 (0xFF) is no UTF-8"},
		{"a\ufffdb", "U+FFFD at byte 1 does not show as what it is"},
		{"cafe\u0301", "U+0065 at byte 3 is not in Unicode's composed form (NFC), which has U+00E9 there"},
		{"\u212b", "U+212B at byte 0 is not in Unicode's composed form (NFC), which has U+00C5 there"},
		{"a\u0323\u0307", "U+0061 at byte 0 is not in Unicode's composed form (NFC), which has U+1EA1 there"},
	} {
		got := ""
		if err := Canonical(tt.text); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Canonical(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"irc:#team", "cafe\u0301", "a\u200b", " x", strings.Repeat("\u0301", 40), "\u0958", "\u1100\u1161"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := Canonical(s)
		good := utf8.ValidString(s) && Showable(s) && s == strings.Trim(s, " \u3000") && norm.NFC.String(s) == s
		if good != (err == nil) {
			t.Errorf("Canonical(%q) = %v", s, err)
		}
		if err == nil {
			return
		}
		if !Showable(err.Error()) || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("Canonical(%q) = %q", s, err)
		}
	})
}

func TestFold(t *testing.T) {
	for _, tt := range []struct {
		text string
		rule Case
		want string
	}{
		{"RIVAL[É]~", CaseNone, "RIVAL[É]~"},
		{"RIVAL[É]~", "", "RIVAL[É]~"},
		{"RIVAL[É]~", CaseASCII, "rival[É]~"},
		{"RIVAL[É]\\~", CaseRFC1459, "rival{É}|^"},
		{"RIVAL[É]~", CaseUnicode, "rival[é]~"},
		{"Rival", CaseUnicode, "rival"},
		{"cafe\u0301", CaseNone, "café"},
		{"STRASSE", CaseUnicode, "strasse"},
		{"Straße", CaseUnicode, "strasse"},
		{"ΣΑΣ", CaseUnicode, "σασ"},
		{"σας", CaseUnicode, "σασ"},
	} {
		if got := Fold(tt.text, tt.rule); got != tt.want {
			t.Errorf("Fold(%q, %q) = %q, want %q", tt.text, tt.rule, got, tt.want)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add("RIVAL[É]~")
	f.Add("\u0345\u0399ẞ\u212a\u1e9b\u0323")
	f.Add("\uabbc0\u13f8")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range Cases() {
			once := Fold(s, c)
			if twice := Fold(once, c); twice != once {
				t.Errorf("%s: %q becomes %q and then %q", c, s, once, twice)
			}
		}
	})
}

func TestSkeleton(t *testing.T) {
	for _, alike := range [][]string{
		{"telegram:rival", "telegram:Rival", "telegram:rIvaI", "telegram:riva1", "tеlegram:rival ", "telegram:ri\u200bval", "telegram:ｒｉｖａｌ", "teIegrarn:rival", "telegram:ꭇɪvаⅼ"},
		{"вова", "ВОВА", "ʙова", "bоbа"},
		{"Вob", "bob", "BOB", "𝐛𝗼𝚋"},
		{"café", "cafe\u0301", "CAFÉ"},
		{"paypal", "раураl", "PΑYPAL"},
		{"a b", "a\u00a0b", "a\u3000b", "a\u2003b"},
		{"ops-team", "ops‐team", "ops–team", "0ps−tеam"},
	} {
		for _, one := range alike {
			if got, want := Skeleton(one), Skeleton(alike[0]); got != want {
				t.Errorf("%q has the skeleton %q, %q has %q", one, got, alike[0], want)
			}
		}
	}
	for _, apart := range [][2]string{{"bob", "rob"}, {"nina", "vina"}, {"telegram:1001", "telegram:1007"}, {"ab", "a b"}, {"", "a"}, {"cafe", "café"}} {
		if Skeleton(apart[0]) == Skeleton(apart[1]) {
			t.Errorf("%q and %q have the skeleton %q", apart[0], apart[1], Skeleton(apart[0]))
		}
	}
}

// TestConfusables compares the table with the standard.
func TestConfusables(t *testing.T) {
	rows := 0
	for line := range strings.Lines(confusables) {
		if !strings.HasPrefix(line, "#") {
			rows++
		}
	}
	if rows != 6565 {
		t.Errorf("the table has %d rows, want the 6565 of Unicode 17", rows)
	}
	for r, looks := range prototypes() {
		if r == unicode.ReplacementChar || strings.ContainsRune(looks, unicode.ReplacementChar) || looks == "" {
			t.Errorf("U+%04X looks like %q", r, looks)
		}
	}
	for r, want := range map[rune]string{'а': "a", '0': "O", '1': "l", 'I': "l", 'm': "rn", '\u05ad': "\u0596", '\U0001d41b': "b"} {
		if got := prototypes()[r]; got != want {
			t.Errorf("U+%04X looks like %q, want %q", r, got, want)
		}
	}
}

// TestSkeletonOfEveryCharacter checks that the skeleton of a skeleton is itself, and that each
// letter of the alphabet has the skeleton of its other case.
func TestSkeletonOfEveryCharacter(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r > 0x30000 && r>>12 != 0xe0 {
			continue // nothing is there yet
		}
		s := string(r)
		once := Skeleton(s)
		if twice := Skeleton(once); twice != once {
			t.Errorf("U+%04X has the skeleton %q, which has %q", r, once, twice)
		}
		if !Shows(r) && !unicode.Is(unicode.Zs, r) && once != "" && utf8.ValidRune(r) {
			t.Errorf("U+%04X, which does not show, has the skeleton %q", r, once)
		}
	}
	for first := range rune(utf8.RuneSelf) {
		for second := range rune(utf8.RuneSelf) {
			if s := string(first) + string(second) + "x"; Skeleton(s) != skeleton(s) {
				t.Errorf("%q has the skeleton %q, and the slow way %q", s, Skeleton(s), skeleton(s))
			}
		}
	}
	for c := 'a'; c <= 'z'; c++ {
		if small, capital := Skeleton(string(c)), Skeleton(string(unicode.ToUpper(c))); small != capital {
			t.Errorf("%c has the skeleton %q, its capital %q", c, small, capital)
		}
	}
}

func FuzzSkeleton(f *testing.F) {
	for _, s := range []string{"telegram:rIvaI", "ВОВА", "\u0345\u0399ẞ", "a\u0301\u200b\u0301", "  x\u3000", "\xff\u1e9b\u0323", "\u0315\u0310"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := Skeleton(s)
		if twice := Skeleton(once); twice != once {
			t.Errorf("%q has the skeleton %q, which has %q", s, once, twice)
		}
		if slow := skeleton(s); slow != once {
			t.Errorf("%q has the skeleton %q, and the slow way %q", s, once, slow)
		}
		if !utf8.ValidString(once) || !Showable(once) {
			t.Errorf("%q has the skeleton %q", s, once)
		}
		if hidden := Skeleton(strings.Join(strings.Split(s, ""), "\u200b")); utf8.ValidString(s) && hidden != once {
			t.Errorf("%q has the skeleton %q, and %q with what does not show between", s, once, hidden)
		}
	})
}

// TestFoldOfEveryCharacter checks that folding twice changes nothing more.
func TestFoldOfEveryCharacter(t *testing.T) {
	for r := range rune(tableEnd) {
		for _, c := range Cases() {
			once := Fold(string(r), c)
			if twice := Fold(once, c); twice != once {
				t.Errorf("%s: U+%04X becomes %q and then %q", c, r, once, twice)
			}
		}
		small, capital := Fold(string(unicode.ToLower(r)), CaseUnicode), Fold(string(unicode.ToUpper(r)), CaseUnicode)
		if r != 'ı' && r != 'İ' && small != capital {
			t.Errorf("U+%04X: %q and %q", r, small, capital)
		}
	}
}
