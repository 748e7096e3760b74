package toolmap

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/mail"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrUnclear means that a call cannot be decided.
var ErrUnclear = errors.New("cannot tell what is sent to whom")

// Unclear returns an [ErrUnclear] with a reason.
func Unclear(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnclear}, args...)...)
}

// Recipients returns the sessions that a tool call sends to.
func (m *Map) Recipients(t *Tool, arguments []Member) (keys []string, err error) {
	m = m.of(t)
	add := func(value string) (err error) {
		if m.Channel != EmailChannel && strings.ContainsAny(value, several) {
			return Unclear("%q could be several: name each by itself, in a list", value)
		}
		keys, err = m.appendKeys(keys, value)
		return err
	}
	for _, to := range t.To {
		to = withoutMissing(to, arguments)
		parts := partPattern.FindAllStringSubmatch(to, -1)
		if len(parts) == 1 && parts[0][0] == to {
			given, ok := Find(arguments, parts[0][1])
			if !ok || given.Value.Kind() == 'n' {
				continue
			}
			values, err := m.each(&given)
			if err != nil {
				return nil, err
			}
			for _, v := range values {
				if err := add(v); err != nil {
					return nil, err
				}
			}
			continue
		}
		// A value must not contain a separator of the key, or of a URL that a server builds
		// from it: it would lead to another recipient.
		parting := partPattern.ReplaceAllString(to, "") + `/?#%\`
		// In one pass: braces within a value are no argument.
		key := partPattern.ReplaceAllStringFunc(to, func(part string) string {
			given, ok := Find(arguments, part[1:len(part)-1])
			if !ok {
				err = cmp.Or(err, Unclear("the argument %s is missing", part[1:len(part)-1]))
				return ""
			}
			value, wrong := m.scalar(&given, given.Value)
			if strings.ContainsAny(value, parting) || value == "." || value == ".." {
				wrong = cmp.Or(wrong, Unclear("the argument %s is %q, which is more than one name", given.Name, value))
			}
			err = cmp.Or(err, wrong)
			return value
		})
		if err != nil {
			return nil, err
		}
		if err := add(key); err != nil {
			return nil, err
		}
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) == 0 {
		return nil, Unclear("it names no recipient")
	}
	return keys, nil
}

// withoutMissing leaves out the optional parts of which an argument is missing.
func withoutMissing(to string, arguments []Member) string {
	return optional.ReplaceAllStringFunc(to, func(part string) string {
		for _, of := range partPattern.FindAllStringSubmatch(part, -1) {
			if given, ok := Find(arguments, of[1]); !ok || given.Value.Kind() == 'n' {
				return ""
			}
		}
		return part[1 : len(part)-1]
	})
}

// appendKeys adds the session keys of a recipient, or a sender, of the map's channel.
func (m *Map) appendKeys(keys []string, value string) ([]string, error) {
	if m.Channel != EmailChannel {
		if m.Lower {
			value = strings.ToLower(value)
		}
		return append(keys, m.Channel+":"+value), nil
	}
	list, err := mail.ParseAddressList(value)
	if err != nil {
		return keys, Unclear("%q is no list of addresses", value)
	}
	if !plainAddresses.MatchString(value) || strings.Contains(value, "=?") {
		return keys, Unclear("%q is written in a way in which programs find other addresses: write NAME <ADDRESS>, without quotes, comments and groups", value)
	}
	for _, a := range list {
		keys = append(keys, m.Channel+":"+strings.ToLower(a.Address))
	}
	return keys, nil
}

// EmailChannel is the channel whose recipients are addresses.
const EmailChannel = "email"

// several are the separators of names in a list, for programs that take one as a text.
const several = ",;\n\r\t"

// plainAddresses matches a list of addresses that all programs read in the same way: names
// and local parts contain no character that begins or ends an address, a comment or a group.
var plainAddresses = regexp.MustCompile(`^` + oneAddress + `(?:,` + oneAddress + `)*$`)

const (
	oneAddress = `\s*(?:` + bareAddress + `|` + addressName + `\s*<` + bareAddress + `>)\s*`
	// Mail programs convert letters beyond ASCII to others in an address.
	bareAddress = `[A-Za-z0-9!#$&'*+/=?^_{|}~.-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*`
	addressName = `(?:"[^"@<>\\(),;:]*(?:, ?[^"@<>\\(),;:]*)*"|[^"@<>\\(),;:\[\]]*)`
)

// upwards matches a path that leads out of a folder, also within a URL, in which such a path
// leads to another recipient.
var upwards = regexp.MustCompile(`(?i)(?:^|[/\\]|%2f|%5c)(?:\.|%2e){2}(?:$|[/\\?#]|%2f|%5c|%3f|%23)`)

// said is one text or number within an argument, or the name of a member.
type said struct {
	// name is the member's name, of which this is the value or which it is.
	name, value  string
	text, member bool
}

// saysOf returns everything that an argument says, in order.
func saysOf(a *Member) (all []said) {
	switch a.Value.Kind() { // most arguments say one thing or none
	case '"':
		value, _ := Text(a.Value)
		return []said{{a.Name, value, true, false}}
	case '0':
		return []said{{a.Name, string(a.Value), false, false}}
	case 't', 'f', 'n':
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(a.Value), jsontext.AllowInvalidUTF8(true))
	names := []string{a.Name} // the members being read, outermost first
	for {
		t, err := d.ReadToken()
		if err != nil {
			return all // it was read before: it has ended
		}
		depth := d.StackDepth()
		names = append(names[:min(len(names), depth+1)], make([]string, max(0, depth+1-len(names)))...)
		in, n := d.StackIndex(depth)
		switch {
		case t.Kind() == '"' && in == '{' && n%2 == 1:
			names[depth] = t.String()
			all = append(all, said{t.String(), t.String(), true, true})
		case t.Kind() == '"' || t.Kind() == '0':
			all = append(all, said{names[depth], t.String(), t.Kind() == '"', false})
		case t.Kind() == '[':
			names[depth] = names[depth-1] // the elements of a list are of its name
		}
	}
}

// Says returns every text in a value, also the names of members.
func Says(v jsontext.Value) (texts []string) {
	for _, s := range saysOf(&Member{Value: v}) {
		texts = append(texts, s.value)
	}
	return texts
}

// Steers reports whether a character ends a line or controls a program that displays or sends a text.
func Steers(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// Fits refuses a call with an argument that the map does not describe, or with a value that
// could mean more than the decision covers.
func (m *Map) Fits(t *Tool, arguments []Member) error {
	if err := t.unambiguous(arguments); err != nil {
		return err
	}
	m = m.of(t)
	known := t.Arguments()
	for i := range arguments {
		a := &arguments[i]
		if !t.Guessed && !slices.Contains(known, a.Name) {
			return Unclear("the argument %s is none of those that the map says the tool has", a.Name)
		}
		if slices.Contains(t.Text, a.Name) {
			continue
		}
		if m.forms[a.Name] != nil && bytes.IndexByte(a.Value, '{') >= 0 && a.Value.Kind() != '"' {
			return Unclear("the argument %s is neither a text nor a number", a.Name)
		}
		// A header of a mail is one line, and a guessed tool may use any argument for one.
		oneLine := m.Channel == EmailChannel || t.Guessed || !slices.Contains(t.With, a.Name)
		for _, s := range saysOf(a) {
			switch {
			case s.text && oneLine && strings.ContainsFunc(s.value, Steers):
				return Unclear("the argument %s has a line end or another control character in it", a.Name)
			case s.text && upwards.MatchString(s.value) && !slices.Contains(t.Title, a.Name) && !s.member:
				return Unclear("the argument %s has .. in it, which leads elsewhere", a.Name)
			case slices.Contains(t.Files, a.Name) && !filepath.IsAbs(s.value):
				return Unclear("the argument %s names files: write the whole path, from /", a.Name)
			}
			if err := m.formed(s.name, s.value); err != nil && !s.member {
				return err
			}
		}
	}
	return nil
}

// Allows refuses a call of any tool with an argument that the map forbids.
func (m *Map) Allows(arguments []Member) error {
	if len(m.Never) == 0 {
		return nil
	}
	for i := range arguments {
		for _, s := range append(saysOf(&arguments[i]), said{name: arguments[i].Name, member: true}) {
			if s.member && slices.ContainsFunc(m.Never, func(never string) bool { return Bare(never) == Bare(s.name) }) {
				return Unclear("the argument %s has the server send to somebody later, about which nobody can decide", s.name)
			}
		}
	}
	return nil
}

// formed refuses a value that does not match the form of its argument.
func (m *Map) formed(name, value string) error {
	if form := m.forms[name]; form != nil && !form.MatchString(value) {
		return Unclear("the argument %s is %q, and not of the form %s", name, value, m.Forms[name])
	}
	return nil
}

// scalar is a value that is one name.
func (m *Map) scalar(a *Member, v jsontext.Value) (string, error) {
	value := string(v)
	switch v.Kind() {
	case '"':
		value, _ = Text(v)
	case '0':
		// 1e3, 1000.0 and 1000 are one number, and behind 2^53 some are others for many programs.
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(n, 10) != value || n < -Exact || n > Exact {
			return "", Unclear("the argument %s is %s: write it as a whole number, or in quotes", a.Name, value)
		}
	default:
		return "", Unclear("the argument %s is neither a text nor a number", a.Name)
	}
	if value == "" || strings.TrimSpace(value) != value || upwards.MatchString(value) {
		return "", Unclear("the argument %s is %q", a.Name, value)
	}
	return value, m.formed(a.Name, value)
}

// each is the values of an argument that is one or a list.
func (m *Map) each(a *Member) (values []string, err error) {
	list := []jsontext.Value{a.Value}
	if a.Value.Kind() == '[' {
		if err := json.Unmarshal(a.Value, &list); err != nil {
			return nil, Unclear("the argument %s cannot be read", a.Name)
		}
	}
	for _, v := range list {
		value, err := m.scalar(a, v)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}
