// Package mask hides secrets in a setting's value from people, logs and records.
package mask

import (
	"regexp"
	"strings"
	"unicode"
)

// Mark stands for hidden text.
const Mark = "***"

// The rules: how much of a value people, logs and records see. Without a rule, a value is
// shown as it is, except for secrets that [Scrub] removes from every text.
const (
	// Nothing is for others' settings: it masks all but the keys.
	Nothing = "nothing"
	// Data is for data of the policy, which people need to judge a change: it masks values
	// that look secret by their key or by themselves.
	Data = "data"
	// Program is for a command: it shows only the program.
	Program = "program"
	// URLs is for a URL, which may contain a password or a token.
	URLs = "url"
	// Regexp is for an expression, which has to remain one.
	Regexp = "regexp"
)

// regexpMark stands for a hidden expression, and is a valid one.
const regexpMark = "[*]{3}"

// Tree is the shown form of a tree with the operator's own keys.
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

// Value is the shown form of a value in such a tree.
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

// Whole masks a value and everything below it. Empty values stay empty, to show that
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

// Key is the shown form of an operator's own key.
func Key(key string) string {
	if Scrub(key) != key || holdsToken(key) {
		return Mark
	}
	return key
}

// Text is the shown form of a text under a rule.
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
		// The operator meant a shell's command line with arguments.
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
	// userinfo matches the part of a URL between scheme and host. It is greedy, so that it
	// hides a password with an @ completely.
	userinfo = regexp.MustCompile(`://[^\s"'<>]*@`)
	// query matches the part after the path.
	query = regexp.MustCompile(`(://[^\s"'<>?#]*)[?#][^\s"'<>]+`)
)

// Scrub removes secrets from a text: private keys, bearer tokens, passwords after an equals
// sign, and in URLs user names, passwords and queries.
func Scrub(text string) string {
	// Almost no text has any of them, and this is called for each entry of a long directory.
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

// URL is the shown form of a URL, a file's name, or the argument of a database's driver,
// without user information and query.
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

// SecretName reports whether the value of a key is secret according to the key's name.
func SecretName(key string) bool {
	lower := strings.ToLower(key)
	// A "keyword" is not a secret.
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

// words are the words of a key in small letters: clientPin, client_pin and CLIENT-PIN have two.
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

// Limits for a token: so many letters and digits without punctuation, or fewer that change
// between small letters, capitals and digits more often than words and dates do.
const (
	tokenLength      = 32
	shortTokenLength = 16
	tokenStretch     = 5
)

// holdsToken reports whether a text contains something that looks random.
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
			// A small letter after a capital continues a word.
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
