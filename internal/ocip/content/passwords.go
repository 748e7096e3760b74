package content

import (
	"slices"
	"strings"
)

// passwordNames are people's words for a password in messages, in the languages of the commitments:
// English, German, Spanish, French, Italian, Dutch, Portuguese, Japanese and Chinese.
var passwordNames = []string{
	"password", "passwd", "pwd", "passcode", "passphrase", "passwort", "kennwort", "zugangscode", "contrase\u00f1a", "clave",
	"mot de passe", "code secret", "code d'acc\u00e8s", "parola d'ordine", "codice di accesso", "wachtwoord", "toegangscode", "senha",
	"palavra-passe", "\u30d1\u30b9\u30ef\u30fc\u30c9", "\u6697\u8a3c\u756a\u53f7", "\u5bc6\u7801", "\u5bc6\u78bc", "\u53e3\u4ee4",
}

// pinNames are the names of a number that opens something, and codeNames those of one that works
// once.
var (
	pinNames  = []string{"pin", "pin code", "pin-code", "geheimzahl", "pincode"}
	codeNames = []string{
		"otp", "verification code", "one-time code", "security code", "2fa code", "login code", "best\u00e4tigungscode", "sicherheitscode",
		"c\u00f3digo de verificaci\u00f3n", "code de v\u00e9rification", "codice di verifica", "verificatiecode", "c\u00f3digo de verifica\u00e7\u00e3o",
		"\u8a8d\u8a3c\u30b3\u30fc\u30c9", "\u78ba\u8a8d\u30b3\u30fc\u30c9", "\u9a8c\u8bc1\u7801", "\u9a57\u8b49\u78bc",
	}
)

// opens is the kind of secret that a name announces.
type opens uint8

const (
	byPassword opens = iota
	byPIN            // four digits, or more if people say so
	byCode           // some digits
)

// saying are the words and signs between a name and its value, in the same languages.
var saying = []string{
	"is", "was", "are", "will be", "ist", "war", "lautet", "es", "era", "est", "\u00e9tait", "\u00e8", "\u00e9", "luidt", "\u306f", "\u662f", "\u4e3a", "\u70ba",
}

func passwordAnchors() []anchor {
	var all []anchor
	for by, names := range [][]string{byPassword: passwordNames, byPIN: pinNames, byCode: codeNames} {
		for _, name := range names {
			all = append(all, anchor{name, func(s *scan, end int) { s.password(end, len(name), opens(by)) }})
		}
	}
	for _, name := range []string{"pw:", "pw "} { // half of all texts contain a word of two letters
		all = append(all, anchor{name, func(s *scan, end int) { s.password(end-1, len("pw"), byPassword) }})
	}
	return all
}

// password weighs "the password is …" in people's messages. An invented password is weaker than a
// random one. The name therefore has to be a whole word, and the value has to follow it alone.
func (s *scan) password(end, size int, by opens) {
	const longest = 64
	ascii := s.text[end-size] < 0x80
	if s.full(rulePassword) || ascii && s.is(end-size-1, word|dash|dot) {
		return
	}
	at, prose, ok := s.says(end)
	beside := !ok && by == byPassword && s.is(end, space) // "password lipstick16"
	if !ok && !beside {
		return
	}
	if s.is(at, quote) {
		at++
	}
	stop := at
	for limit := min(at+longest, len(s.text)); stop < limit; stop++ {
		if c := s.text[stop]; !kindOf(c).in(alnum|under|dash|dot|sign) || c >= 0x80 {
			break
		}
	}
	if strings.IndexByte("(){}[]<>/\\+=:|", s.at(stop)) >= 0 && stop < len(s.text) || s.is(stop-1, dot) && s.is(stop-2, dot) {
		return // code, a path, or cut off
	}
	for stop > at && s.is(stop-1, dot|sign) {
		if s.text[stop-1] == '?' {
			return // a question for it
		}
		if s.text[stop-1] != '.' && s.text[stop-1] != '!' {
			break
		}
		stop--
	}
	if value := s.text[at:stop]; value != "" && s.madeUp(value, by, prose) && (!beside || wordAndNumber(value)) {
		s.add(rulePassword, Restricted, at, stop)
	}
}

// whose are the words for the purpose of a password, in the same languages.
var whose = []string{
	"for ", "of ", "to ", "f\u00fcr ", "zum ", "zur ", "vom ", "para ", "de ", "del ", "do ", "da ", "pour ", "du ", "per ", "di ", "voor ", "van ",
}

// says returns the start of the value that a text gives to a name that ends at end. Prose is set
// for a verb, as in people's messages, and not for a sign alone.
func (s *scan) says(end int) (at int, prose, ok bool) {
	at = s.run(end, quote, end+1)
	at = s.pastPurpose(s.run(at, space, at+3))
	if next := s.verb(at); next > at {
		at, prose = next, true
	}
	colon := s.at(at) == ':'
	if colon {
		at = s.run(at+1, space|newline, at+4)
	}
	return at, prose, prose || colon
}

// verb returns the end of the word between a name and its value, including blanks, or at if there
// is none.
func (s *scan) verb(at int) int {
	for _, w := range saying {
		if !s.hasFold(at, w) {
			continue
		}
		if next := at + len(w); w[0] >= 0x80 || s.is(next, space|newline) || s.at(next) == ':' {
			return s.run(next, space, next+3)
		}
	}
	return at
}

// pastPurpose returns the position of the verb or the colon after "for the alarm", or at.
func (s *scan) pastPurpose(at int) int {
	const words, longest = 4, 24
	for _, w := range whose {
		if !s.hasFold(at, w) {
			continue
		}
		next := at + len(w)
		for range words {
			end := next
			for end < len(s.text) && end-next < longest && (kindOf(s.text[end]).in(letter|dash) || s.text[end] >= 0x80) {
				end++
			}
			switch {
			case end == next:
				return at
			case s.at(end) == ':':
				return end
			}
			if next = s.run(end, space, end+2); s.verb(next) > next {
				return next
			}
		}
	}
	return at
}

// madeUp reports whether a value looks like an invented password or PIN: letters with digits, or
// digits alone if those are usual.
func (s *scan) madeUp(value string, by opens, prose bool) bool {
	m := weigh(value)
	letters := m.lower + m.upper
	if letters == 0 && m.digits == len(value) {
		switch {
		case by == byPIN && !prose:
			return len(value) == 4
		case by != byPassword:
			return len(value) >= 4 && len(value) <= 8
		case prose:
			return len(value) >= 6 && len(value) <= 16
		}
		return false
	}
	const shortest = 6
	if by != byPassword || len(value) < shortest || letters < 2 || m.digits == 0 || m.distinct < 4 || s.standIn(value) || isUUID(value) {
		return false
	}
	return !technical(strings.ToLower(value)) && kindOf(value[0]).in(alnum)
}

// wordAndNumber reports whether a value is a word followed by a number, like most invented
// passwords.
func wordAndNumber(value string) bool {
	m := weigh(value)
	return m.lower >= 4 && m.upper <= 1 && m.digits >= 2 && m.turns == 1 && m.lower+m.upper+m.digits == len(value) && kindOf(value[0]).in(letter)
}

// technical reports whether a word is the name of a method, a format or a measure. In manuals, such
// words follow the word password.
func technical(word string) bool {
	name := strings.TrimRight(word, "0123456789")
	return slices.Contains([]string{
		"sha", "base", "oauth", "argon", "pbkdf", "aes", "rsa", "md", "utf", "ascii", "level", "version", "step", "section", "chapter", "page",
		"field", "input", "param", "arg", "value", "test", "text", "string", "line", "item", "option", "ipv", "http", "windows",
	}, name) || strings.Contains(word, "-char") || strings.Contains(word, "character") || strings.HasPrefix(word, "length")
}
