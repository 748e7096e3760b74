package text

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Only this file defines how a person reads characters that stand for letters of ASCII. All
// detectors of disguises use it.

// lookalikes lists, for each letter, runes of other scripts and of the phonetic alphabets that a
// reader takes for it. Accented, full-width, circled and mathematical letters are not here: their
// decomposition gives the letter.
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

// Letters maps characters beyond ASCII to the small letter of ASCII that they look like, apart from
// accents. It contains those of Unicode's list of confusable characters, and those of other scripts
// and alphabets. It contains only few composed characters: their decomposition gives the letter,
// see [Reads].
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
		case looks == "rn": // the table has this for each m
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

// Reads returns the ASCII character that a reader takes a character beyond ASCII for, without its
// accents, circles and style, and from any alphabet. It returns 0 for a character that does not show, such as
// an accent that stands by itself. It is not ok if a character reads as itself.
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

// reading replaces each character by the one that a reader reads.
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
