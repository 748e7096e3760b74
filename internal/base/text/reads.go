package text

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// How a person reads characters that stand for letters of ASCII is said here alone, for
// all who look for what a disguise hides.

// lookalikes lists, for each letter, runes of other scripts and of the phonetic
// alphabets that a reader takes for it. Accented, full-width, circled and
// mathematical letters are not here: their decomposition tells.
var lookalikes = [...]struct {
	letter byte
	runes  string
}{
	{'a', "аАαΑɑᴀ⍺ɐᎪꓮɒᗩⱥᶏ"},
	{'b', "ЬьВвΒβʙᏴɓƀƄƅꓐßᖯ"},
	{'c', "сСϲϹᴄᏟƈȼ¢©ⲥⲤꓚↄɔᑕ"},
	{'d', "ԁԀɗđĐðÐᴅᎠɖꓒꓓ∂ȡ"},
	{'e', "еЕεΕҽҼєЄэЭɛ℮ᴇᎬɘəǝƏƐꓰ∊ᕮɇ"},
	{'f', "ƒғꞙϜϝꓝẝʄ"},
	{'g', "ɡցɢǥɠԍᏀꓖƃ"},
	{'h', "һҺНнΗʜհᎻħĦђћɦꓧɥⱨ"},
	{'i', "іІιΙıɪⅰɩɨᎥꓲ׀ᴉ"},
	{'j', "јЈʝϳꓙɟɉ"},
	{'k', "кКκΚᴋᏦƙĸқꓗʞⱪ"},
	{'l', "ӏӀłŁɫƚʟᏞꓡɭⵏ∣│ȴɬ"},
	{'m', "мМΜᴍᎷɱꓟϻⲙⲘ"},
	{'n', "пПոηɴΝŋŊɳиИᴎꓠɲᑎƞȵ"},
	{'o', "оОοΟᴏσօՕøØөӨɵꓳ०ⲟᗝㅇᄋⱺ"},
	{'p', "рРρΡᴘᏢþƿƤꓑⲣƥᵽ"},
	{'q', "ԛԚɋ"},
	{'r', "гГʀᎡɾɼɍяЯᴦꓣɹ"},
	{'s', "ѕЅꜱՏᏚʂƨƧꓢᔕȿ"},
	{'t', "тТτΤᴛᎢŧŦƫƭꓔ†ʇȶʈ"},
	{'u', "υսᴜʊμՍꓴцЦʉ"},
	{'v', "νѵѴᴠᏙʋꓦ∨ʌⱴ"},
	{'w', "ԝԜѡωᴡᏔшШɯꓪʍⱳ"},
	{'x', "хХχΧ×ꓫ"},
	{'y', "уУγΥүҮʏყꓬʎɏƴ"},
	{'z', "ᴢʐΖᏃƶƵꓜɀ"},
}

// Letters returns the characters beyond ASCII that look like one small letter of it,
// accents apart, and which: those of Unicode's list of confusable characters, and of
// other scripts and alphabets. Of the characters that are made of others only few are
// there: their decomposition tells, see [Reads].
var Letters = sync.OnceValue(func() map[rune]byte {
	table := prototypes()
	like := make(map[rune]byte, 2048)
	for r, looks := range table {
		if r < utf8.RuneSelf || !Shows(r) || norm.NFKD.String(string(r)) != string(r) {
			continue
		}
		for range 2 {
			if next, found := table[firstRune(looks)]; found && firstRune(looks) >= utf8.RuneSelf {
				looks = next
			}
		}
		looks = strings.ToLower(strings.TrimRightFunc(looks, unicode.IsMark))
		switch {
		case looks == "rn": // as the table has each m
			like[r] = 'm'
		case len(looks) == 1 && looks[0] >= 'a' && looks[0] <= 'z':
			like[r] = looks[0]
		}
	}
	for _, row := range lookalikes {
		for _, r := range row.runes {
			like[r] = row.letter
		}
	}
	return like
})

// Reads returns the character of ASCII that a character beyond it is read as, whatever
// accents, circles, styles or alphabets it is dressed in: 0 where nothing is seen of it,
// as of an accent that stands by itself. It is not ok where a character reads as itself.
func Reads(r rune) (c byte, ok bool) {
	if r < utf8.RuneSelf {
		return 0, false
	}
	if letter, found := Letters()[r]; found {
		if unicode.IsUpper(r) {
			letter -= 'a' - 'A'
		}
		return letter, true
	}
	switch {
	case r >= 0x1f1e6 && r <= 0x1f1ff: // the letters flags are made of
		return 'A' + byte(r-0x1f1e6), true
	case r >= 0x1f150 && r <= 0x1f169: // white on black, round
		return 'A' + byte(r-0x1f150), true
	case r >= 0x1f170 && r <= 0x1f189: // white on black, square
		return 'A' + byte(r-0x1f170), true
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point):
		return 0, true
	}
	for _, part := range norm.NFKD.String(string(r)) {
		if part == r || ok && !unicode.IsMark(part) {
			return 0, false // itself, or several characters
		}
		if !unicode.IsMark(part) {
			if c, ok = Reads(part); !ok && part < utf8.RuneSelf {
				c, ok = byte(part), true
			}
			if !ok || c == 0 {
				return 0, false
			}
		}
	}
	return c, ok
}

// reading writes each character as it is read.
func reading(e *edit) {
	for at := 0; at < len(e.src); {
		if e.src[at] < utf8.RuneSelf {
			at++
			continue
		}
		r, size := utf8.DecodeRuneInString(e.src[at:])
		if c, ok := Reads(r); ok && c != 0 {
			e.replace(at, at+size, string(rune(c)))
		} else if ok {
			e.replace(at, at+size, "")
		}
		at += size
	}
}
