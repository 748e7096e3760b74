package config

import (
	"bytes"
	"cmp"
	"fmt"
	"github.com/openclawos/ocipd/internal/keypath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// mask stands for what is not shown.
const mask = "***"

// The values of the tag show, which says of a key what of its value people, logs
// and records get to see. Without it a value is shown as it is, but for what no
// text is shown with, see scrub.
const (
	// showNothing is for what belongs to others: all is masked but the keys.
	showNothing = "nothing"
	// showData is for data that a policy decides by, which is needed to judge a
	// change: masked is what looks secret by its key or by itself.
	showData = "data"
	// showProgram is for a command, of which the program is shown alone.
	showProgram = "program"
	// showURL is for a place behind which there may be a password or a token.
	showURL = "url"
	// showRegexp is for an expression, which has to stay one.
	showRegexp = "regexp"
)

// maskedRegexp stands for an expression that is not shown, and is one.
const maskedRegexp = "[*]{3}"

// Redacted writes the configuration as YAML that [Parse] reads, for people to
// look at. Masked are all values of channels and apps but true, false and what
// is empty; the arguments of the notification's command; the headers of sinks; in
// policy.data what is under a key that looks secret, or looks like a token; and
// everywhere private keys, bearer tokens, and of URLs user names, passwords and
// queries.
func (c *Config) Redacted() ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(shown(reflect.ValueOf(c), "").Interface()); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return out.Bytes(), nil
}

// shown copies a value without what is not shown of it.
func shown(v reflect.Value, rule string) reflect.Value {
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		return v
	}
	out := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == treeType:
		return reflect.ValueOf(showTree(v.Interface().(map[string]any), rule))
	case v.Kind() == reflect.String:
		out.SetString(showText(v.String(), rule))
	case v.Kind() == reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(shown(v.Elem(), rule))
	case v.Kind() == reflect.Struct:
		out.Set(v)
		for i := range v.NumField() {
			if field := v.Type().Field(i); keyOf(field) != "" {
				out.Field(i).Set(shown(v.Field(i), cmp.Or(field.Tag.Get("show"), rule)))
			}
		}
	case v.Kind() == reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			if rule == showProgram && i > 0 {
				out.Index(i).SetString(showText(v.Index(i).String(), showNothing))
				continue
			}
			out.Index(i).Set(shown(v.Index(i), rule))
		}
	case v.Kind() == reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		for key, item := range v.Seq2() {
			out.SetMapIndex(key, shown(item, rule))
		}
	default:
		return v
	}
	return out
}

// Shown is the entry as [Config.Redacted] shows it.
func (c *Contact) Shown() Contact {
	out := *c
	for _, text := range []*string{&out.InstanceID, &out.UserID, &out.OrgUnit, &out.TenantID} {
		*text = scrub(*text)
	}
	for _, list := range []*[]string{&out.Sessions, &out.Members} {
		for i, text := range *list {
			if clean := scrub(text); clean != text {
				*list = slices.Clone(*list)
				(*list)[i] = clean
			}
		}
	}
	return out
}

// showTree is what is shown of a tree with keys of the operator's own.
func showTree(tree map[string]any, rule string) map[string]any {
	out := make(map[string]any, len(tree))
	for key, value := range tree {
		if rule == showData && looksSecret(key) {
			out[showKey(key)] = maskWhole(value)
			continue
		}
		out[showKey(key)] = showAny(value, rule)
	}
	return out
}

// showAny is what is shown of a value in such a tree.
func showAny(value any, rule string) any {
	switch v := value.(type) {
	case map[string]any:
		return showTree(v, rule)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = showAny(item, rule)
		}
		return out
	case string:
		return showText(v, rule)
	case nil, bool:
		return v
	}
	if rule == showNothing {
		return mask // a number
	}
	return value
}

// maskWhole masks a value and all below it. What is empty stays so, to show that
// nothing is set.
func maskWhole(value any) any {
	if empty(value) {
		return value
	}
	return mask
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

// showKey is what is shown of a key of the operator's own.
func showKey(key string) string {
	if scrub(key) != key || holdsToken(key) {
		return mask
	}
	return key
}

func showText(text, rule string) string {
	if text == "" {
		return ""
	}
	switch rule {
	case showNothing:
		return mask
	case showData:
		if holdsToken(text) {
			return mask
		}
		return header.ReplaceAllString(scrub(text), "${1}"+mask)
	case showProgram:
		// Whoever wrote the arguments behind the program meant a shell's line.
		if program, _, ok := strings.Cut(text, " "); ok {
			return scrub(program) + " " + mask
		}
	case showURL:
		return RedactURL(text)
	case showRegexp:
		if privateKey.MatchString(text) || holdsToken(text) {
			return maskedRegexp
		}
		return text
	}
	return scrub(text)
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

// scrub takes out of a text what is shown nowhere: private keys, bearer tokens,
// passwords behind an equals sign, and of URLs user names, passwords and queries.
func scrub(text string) string {
	// Nearly no text has any of them, and this is asked of each entry of a long
	// directory.
	if strings.Contains(text, "-----BEGIN") || strings.Contains(text, "AGE-SECRET-KEY-") {
		text = privateKey.ReplaceAllString(text, mask)
	}
	if containsBearer(text) {
		text = bearer.ReplaceAllString(text, "${1}"+mask)
	}
	if strings.Contains(text, "://") {
		text = userinfo.ReplaceAllString(text, "://"+mask+"@")
		text = query.ReplaceAllString(text, "${1}?"+mask)
	}
	if strings.IndexByte(text, '=') >= 0 {
		text = assigned.ReplaceAllString(text, "${1}"+mask)
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

// RedactURL is what is shown of a URL, a file's name, or what a database's driver
// takes: not who logs in, and not the query.
func RedactURL(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || strings.Contains(scheme, "/") {
		return scrub(url)
	}
	file := scheme == "sqlite" || scheme == "file"
	rest, slashes := strings.CutPrefix(rest, "//")
	scheme += ":"
	if slashes {
		scheme += "//"
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 && (slashes || !file) {
		if rest = mask + rest[i:]; !slashes {
			scheme = "" // user:password@…
		}
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 && i < len(rest)-1 {
		rest = rest[:i] + "?" + mask
	}
	return scrub(scheme + rest)
}

// looksSecret reports whether what stands under a key is a secret by its name.
func looksSecret(key string) bool {
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

// ruleAt is what the tag show says of a key, given as it stands in the file or as
// [Config.Since] names it.
func ruleAt(at keypath.Path) (rule string) {
	t := reflect.TypeFor[Config]()
	for _, s := range at {
		switch t.Kind() {
		case reflect.Struct:
			field, ok := fieldOf(t, s.Key)
			if !ok {
				return rule
			}
			rule, t = cmp.Or(field.Tag.Get("show"), rule), field.Type
			if keyOf(field) == rest {
				t = treeType.Elem()
			}
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		default:
			return rule
		}
	}
	return rule
}

// fieldOf is the field of a struct that takes a key.
func fieldOf(t reflect.Type, key string) (taken reflect.StructField, ok bool) {
	for field := range t.Fields() {
		switch keyOf(field) {
		case "":
		case key:
			return field, true
		case rest:
			taken, ok = field, true
		}
	}
	return taken, ok
}

// shown is the path without what a key of the operator's own, or the name of an
// entry, should not hold.
func masked(p keypath.Path) string {
	clean := p
	for i, s := range p {
		key := scrub(s.Key)
		if s.Index < 0 && ruleAt(p[:i]) != "" {
			key = showKey(s.Key)
		}
		if key == s.Key {
			continue
		}
		if &clean[0] == &p[0] {
			clean = slices.Clone(p)
		}
		clean[i].Key = key
	}
	return clean.String()
}
