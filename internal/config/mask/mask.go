// Package mask says what people, logs and records get to see of a setting's value:
// secrets are not shown, whoever looks.
package mask

import (
	"regexp"
	"strings"
	"unicode"
)

// Mark stands for what is not shown.
const Mark = "***"

// The rules: what of a value people, logs and records get to see. Under no rule a value
// is shown as it is, but for what no text is shown with, see [Scrub].
const (
	// Nothing is for what belongs to others: all is masked but the keys.
	Nothing = "nothing"
	// Data is for data that a policy decides by, which is needed to judge a
	// change: masked is what looks secret by its key or by itself.
	Data = "data"
	// Program is for a command, of which the program is shown alone.
	Program = "program"
	// URLs is for a place behind which there may be a password or a token.
	URLs = "url"
	// Regexp is for an expression, which has to stay one.
	Regexp = "regexp"
)

// regexpMark stands for an expression that is not shown, and is one.
const regexpMark = "[*]{3}"

// Tree is what is shown of a tree with keys of the operator's own.
func Tree(tree map[string]any, rule string) map[string]any {
	out := make(map[string]any, len(tree))
	for key, value := range tree {
		if rule == Data && SecretName(key) {
			out[Key(key)] = Whole(value)
			continue
		}
		out[Key(key)] = Value(value, rule)
	}
	return out
}

// Value is what is shown of a value in such a tree.
func Value(value any, rule string) any {
	switch v := value.(type) {
	case map[string]any:
		return Tree(v, rule)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = Value(item, rule)
		}
		return out
	case string:
		return Text(v, rule)
	case nil, bool:
		return v
	}
	if rule == Nothing {
		return Mark // a number
	}
	return value
}

// Whole masks a value and all below it. What is empty stays so, to show that
// nothing is set.
func Whole(value any) any {
	if empty(value) {
		return value
	}
	return Mark
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// Key is what is shown of a key of the operator's own.
func Key(key string) string {
	if Scrub(key) != key || holdsToken(key) {
		return Mark
	}
	return key
}

// Text is what is shown of a text under a rule.
func Text(text, rule string) string {
	if text == "" {
		return ""
	}
	switch rule {
	case Nothing:
		return Mark
	case Data:
		if holdsToken(text) {
			return Mark
		}
		return header.ReplaceAllString(Scrub(text), "${1}"+Mark)
	case Program:
		// Whoever wrote the arguments behind the program meant a shell's line.
		if program, _, ok := strings.Cut(text, " "); ok {
			return Scrub(program) + " " + Mark
		}
	case URLs:
		return URL(text)
	case Regexp:
		if privateKey.MatchString(text) || holdsToken(text) {
			return regexpMark
		}
		return text
	}
	return Scrub(text)
}

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN.*?(?:-----END[^-]*-----|$)|AGE-SECRET-KEY-\S*`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer\s+)[^\s"',;]+`)
	assigned   = regexp.MustCompile(`(?i)((?:token|secret|passwd|password|pwd|api[_-]?key|credentials?|authorization)=)[^\s"',;&]+`)
	header     = regexp.MustCompile(`(?i)((?:authorization|cookie|x-api-key|(?:token|secret|password)):\s*)[^"'\n]+`)
	// userinfo is what a URL holds between its scheme and its host. Greedy, so that
	// a password with an @ in it is hidden whole.
	userinfo = regexp.MustCompile(`://[^\s"'<>]*@`)
	// query is what follows its path.
	query = regexp.MustCompile(`(://[^\s"'<>?#]*)[?#][^\s"'<>]+`)
)

// Scrub takes out of a text what is shown nowhere: private keys, bearer tokens,
// passwords behind an equals sign, and of URLs user names, passwords and queries.
func Scrub(text string) string {
	// Nearly no text has any of them, and this is asked of each entry of a long
	// directory.
	if strings.Contains(text, "-----BEGIN") || strings.Contains(text, "AGE-SECRET-KEY-") {
		text = privateKey.ReplaceAllString(text, Mark)
	}
	if containsBearer(text) {
		text = bearer.ReplaceAllString(text, "${1}"+Mark)
	}
	if strings.Contains(text, "://") {
		text = userinfo.ReplaceAllString(text, "://"+Mark+"@")
		text = query.ReplaceAllString(text, "${1}?"+Mark)
	}
	if strings.IndexByte(text, '=') >= 0 {
		text = assigned.ReplaceAllString(text, "${1}"+Mark)
	}
	return text
}

func containsBearer(text string) bool {
	const word = "bearer"
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i]|0x20 == word[0] && strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// URL is what is shown of a URL, a file's name, or what a database's driver
// takes: not who logs in, and not the query.
func URL(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || strings.Contains(scheme, "/") {
		return Scrub(url)
	}
	file := scheme == "sqlite" || scheme == "file"
	rest, slashes := strings.CutPrefix(rest, "//")
	scheme += ":"
	if slashes {
		scheme += "//"
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 && (slashes || !file) {
		if rest = Mark + rest[i:]; !slashes {
			scheme = "" // user:password@…
		}
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 && i < len(rest)-1 {
		rest = rest[:i] + "?" + Mark
	}
	return Scrub(scheme + rest)
}

// SecretName reports whether what stands under a key is a secret by its name.
func SecretName(key string) bool {
	lower := strings.ToLower(key)
	// Words are not secret for being keys to something.
	lower = strings.ReplaceAll(lower, "keyword", "")
	for _, part := range []string{
		"token", "secret", "pass", "pwd", "key", "credential", "authorization", "authentication", "oauth", "cookie", "bearer", "private", "sasl", "webhook",
	} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	for _, word := range words(key) {
		switch word {
		case "auth", "pin", "pins", "dsn", "salt", "pepper", "otp", "hmac", "nonce", "seed", "signature", "cred", "creds", "jwt", "header", "headers":
			return true
		}
	}
	return false
}

// words are the words of a key, in small letters: clientPin, client_pin and
// CLIENT-PIN have two.
func words(key string) []string {
	var b strings.Builder
	before := ' '
	for _, r := range key {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		before = r
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) })
}

// Bounds of what is taken for a token: so many letters and digits without a mark
// between them, or fewer that change so often between small letters, capitals and
// digits as words and dates do not.
const (
	tokenLength      = 32
	shortTokenLength = 16
	tokenStretch     = 5
)

// holdsToken reports whether a text holds what looks made by chance.
func holdsToken(text string) bool {
	const small, capital, digit = 1, 2, 3
	plain, marked, changes, before := 0, 0, 0, 0
	for i := range len(text) + 1 {
		var c byte
		if i < len(text) {
			c = text[i]
		}
		class := 0
		switch {
		case c >= 'a' && c <= 'z':
			class = small
		case c >= 'A' && c <= 'Z':
			class = capital
		case c >= '0' && c <= '9':
			class = digit
		}
		switch {
		case class != 0:
			plain++
			marked++
			if plain >= tokenLength {
				return true
			}
			// A small letter after a capital begins a word.
			if before != 0 && class != before && (before != capital || class != small) {
				changes++
			}
			before = class
		case strings.IndexByte("-_+/=.", c) >= 0 && c != 0:
			plain = 0
			marked++
		default:
			if marked >= shortTokenLength && changes*tokenStretch >= marked {
				return true
			}
			plain, marked, changes, before = 0, 0, 0, 0
		}
	}
	return false
}
