package mcpproxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// frame is one JSON-RPC message, as far as the proxy has to know it.
type frame struct {
	// id is as it was written, nil where there is none.
	id jsontext.Value
	// method is empty in answers.
	method string
	// params are where they stand in the line.
	params span
	// result is an answer's, and failure its error.
	result, failure jsontext.Value
}

// span is a part of a line.
type span struct{ from, to int }

// member is one member of an object: its name, and where its value stands in the line.
type member struct {
	name  string
	value jsontext.Value
	at    span
}

var errFrame = errors.New("not a JSON-RPC message that can be told apart")

// members reads an object strictly: nothing behind it, no name twice. Its values stand in
// the object still, and offsets are of the line in which that begins at base.
func members(object []byte, base int) (list []member, err error) {
	// Half a character written as an escape is the client's; bytes that are none are not.
	if !utf8.Valid(object) {
		return nil, fmt.Errorf("%w: it is not UTF-8", errFrame)
	}
	// Out of a buffer it is read where it stands: an answer may be long.
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, fmt.Errorf("%w: it is no object", errFrame)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFrame, err)
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFrame, err)
		}
		end := int(d.InputOffset())
		m.value = jsontext.Value(object[end-len(value) : end : end])
		m.at = span{base + end - len(value), base + end}
		list = append(list, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something stands behind it", errFrame)
	}
	return list, nil
}

// folded is a name as those compare it who do not tell letters' case apart, or leave out
// what joins words.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// bare is a name's letters and digits, as those compare it who overlook all else.
func bare(name string) string {
	return folded(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name))
}

// exactly refuses members that a lenient reader would take for one of the names, or for
// each other.
func exactly(list []member, names ...string) error {
	seen := make(map[string]string, len(list))
	for _, m := range list {
		f := cmp.Or(bare(m.name), m.name)
		if before, twice := seen[f]; twice {
			return fmt.Errorf("%w: %q and %q differ in case or signs alone", errFrame, before, m.name)
		}
		seen[f] = m.name
		for _, name := range names {
			if m.name != name && f == bare(name) {
				return fmt.Errorf("%w: %q is not %q", errFrame, m.name, name)
			}
		}
	}
	return nil
}

func find(list []member, name string) (m member, ok bool) {
	i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
	if i < 0 {
		return m, false
	}
	return list[i], true
}

// text reads a string. Half a character becomes U+FFFD, and so it goes on.
func text(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	// It was read before: all that can be wrong is half a character.
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b), true
}

// parse reads a line. Its end is LF or CRLF, and no other line break stands in it, so that
// nobody reads two messages where the proxy reads one.
func parse(line []byte) (f frame, err error) {
	body := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if bytes.ContainsAny(body, "\r\n") {
		return f, fmt.Errorf("%w: it has a line break in it", errFrame)
	}
	return parseBody(body)
}

// parseBody reads a message that stands for itself.
func parseBody(body []byte) (f frame, err error) {
	list, err := members(body, 0)
	if err == nil {
		err = exactly(list, "jsonrpc", "id", "method", "params", "result", "error")
	}
	if err != nil {
		return f, err
	}
	for _, m := range list {
		switch m.name {
		case "id":
			f.id = m.value
		case "method":
			var ok bool
			if f.method, ok = text(m.value); !ok || f.method == "" {
				return f, fmt.Errorf("%w: the method is no text", errFrame)
			}
		case "params":
			f.params = m.at
		case "result":
			f.result = m.value
		case "error":
			if m.value.Kind() != 'n' {
				f.failure = m.value
			}
		}
	}
	return f, nil
}

// doubtful reports whether an answer could be taken for something else, or for that of
// another call than its id says.
func (f *frame) doubtful() bool {
	said, _ := text(f.id)
	// Some make numbers of the digits of all scripts.
	foreign := strings.ContainsFunc(said, func(r rune) bool { return r > unicode.MaxASCII && unicode.IsDigit(r) })
	return (f.result != nil || f.failure != nil) && (f.method != "" || !f.answerable() || foreign)
}

// answerable reports whether a request has an id that can be answered.
func (f *frame) answerable() bool { return f.id.Kind() == '"' || f.id.Kind() == '0' }

// key names an id among those that are waited for.
func (f *frame) key() string { return keyOf(f.id) }

// keyOf is an id as all spell it who take it for the same: 3, 3.0 and 30e-1 are one, and for
// clients that make numbers of texts so are "3", " 0x3" and "+3".
func keyOf(id jsontext.Value) string {
	switch id.Kind() {
	case '"':
		said, _ := text(id)
		if n, ok := number(said); ok {
			return n
		}
		return `"` + said
	case '0':
		if n, ok := number(string(id)); ok {
			return n
		}
	}
	return string(id)
}

// number is a number as all spell it, of what anybody could take for one.
func number(said string) (n string, ok bool) {
	said = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), r == '_', r == '+', r == '\ufeff':
			return -1
		}
		return unicode.ToLower(r)
	}, said)
	if said == "" {
		said = "0"
	}
	if whole := strings.TrimLeft(said, "0"); strings.Trim(whole, "0123456789") == "" {
		return cmp.Or(whole, "0"), true
	}
	for prefix, base := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if digits, ok := strings.CutPrefix(said, prefix); ok {
			n, err := strconv.ParseUint(digits, base, 64)
			return strconv.FormatUint(n, 10), err == nil
		}
	}
	f, err := strconv.ParseFloat(said, 64)
	return strconv.FormatFloat(f+0, 'f', -1, 64), err == nil
}

// maxID bounds an id that is a text, and exact is the largest whole number behind which
// programs that have doubles alone still count by ones.
const (
	maxID = 256
	exact = 1<<53 - 1
)

// plain reports whether an id is one that all programs read and write as the same: a whole
// number that every double has, or a short text of visible ASCII. Of others nobody knows
// what a server makes of them, and so what it answers would not be known for the answer.
func (f *frame) plain() bool {
	switch f.id.Kind() {
	case '0':
		n, err := strconv.ParseInt(string(f.id), 10, 64)
		return err == nil && -exact <= n && n <= exact
	case '"':
		said, _ := text(f.id)
		if len(said) > maxID || strings.ContainsFunc(said, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return false
		}
		n, ok := number(said)
		if !ok {
			return true
		}
		value, err := strconv.ParseFloat(n, 64)
		return err == nil && value == math.Trunc(value) && math.Abs(value) <= exact
	}
	return false
}

// toolCall is a request to call a tool.
type toolCall struct {
	frame
	line []byte
	tool string
	// params are all that it says, and arguments those of the tool.
	params    []member
	arguments []member
	// answers are the client's to what the server has asked it about the call, nil for none.
	answers jsontext.Value
	// asTask says that the result is asked for later.
	asTask bool
	// progress is the token that news of the call carry, nil for none.
	progress jsontext.Value
	// via is its way, and named names it.
	via   route
	named key
}

// parseCall reads the rest of a tools/call.
func parseCall(line []byte, f *frame) (*toolCall, error) {
	c := &toolCall{frame: *f, line: line}
	params, err := members(line[f.params.from:f.params.to], f.params.from)
	if err == nil {
		err = exactly(params, "name", "arguments", metaMember, "task", answersMember, stateMember)
	}
	if err != nil {
		return nil, err
	}
	c.params = params
	var ok bool
	name, _ := find(params, "name")
	if c.tool, ok = text(name.value); !ok {
		return nil, fmt.Errorf("%w: the tool has no name", errFrame)
	}
	c.asTask = has(params, "task")
	if meta, ok := find(params, metaMember); ok && meta.value.Kind() == '{' {
		list, err := members(meta.value, 0)
		if err != nil {
			return nil, err
		}
		if token, ok := find(list, tokenMember); ok && (&frame{id: token.value}).plain() {
			c.progress = token.value
		}
	}
	if answers, ok := find(params, answersMember); ok && answers.value.Kind() != 'n' {
		c.answers = answers.value
	}
	given, ok := find(params, "arguments")
	if !ok || given.value.Kind() == 'n' {
		return c, nil
	}
	c.arguments, err = members(given.value, given.at.from)
	return c, err
}

// Members of a call's params besides the tool's name and its arguments.
const (
	metaMember    = "_meta"
	tokenMember   = "progressToken"
	answersMember = "inputResponses"
	stateMember   = "requestState"
	// protocolPrefix begins the names of what the protocol itself has in _meta.
	protocolPrefix = "io.modelcontextprotocol/"
)

// with is the call written anew, with what was decided about it. Of the rest it has what is
// the protocol's: what a client puts beside that, nobody has decided about.
func (c *toolCall) with(arguments, answers jsontext.Value) []byte {
	b := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s`, c.id, api.String(c.tool), arguments)
	add := func(name string, value jsontext.Value) { b = fmt.Appendf(b, `,%s:%s`, api.String(name), value) }
	if answers != nil {
		add(answersMember, answers)
	}
	for _, m := range c.params {
		switch {
		case m.name == stateMember && m.value.Kind() == '"':
			add(m.name, m.value)
		case m.name == "task" && m.value.Kind() == '{':
			add(m.name, only(m.value, func(t *member) bool { return t.name == "ttl" && t.value.Kind() == '0' }))
		case m.name == metaMember && m.value.Kind() == '{':
			add(m.name, only(m.value, func(t *member) bool {
				return t.name == tokenMember && c.progress != nil || strings.HasPrefix(t.name, protocolPrefix)
			}))
		}
	}
	return append(b, "}}\n"...)
}

// only is an object, which was read before, with those of its members that are kept.
func only(object jsontext.Value, keep func(*member) bool) jsontext.Value {
	list, _ := members(object, 0)
	b := jsontext.Value("{")
	for i := range list {
		if m := &list[i]; keep(m) {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(append(b, api.String(m.name)...), ':'), m.value...)
		}
	}
	return append(b, '}')
}
