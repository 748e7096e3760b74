package mcpproxy

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
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

// parse reads a line. Its end is LF or CRLF, and no other line break stands in it, so that
// nobody reads two messages where the proxy reads one.
func parse(line []byte) (f frame, err error) {
	body := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if bytes.ContainsAny(body, "\r\n") {
		return f, fmt.Errorf("%w: it has a line break in it", toolmap.ErrFrame)
	}
	return parseBody(body)
}

// parseBody reads a message that stands for itself.
func parseBody(body []byte) (f frame, err error) {
	list, err := toolmap.Members(body, 0)
	if err == nil {
		err = toolmap.Exactly(list, "jsonrpc", "id", "method", "params", "result", "error")
	}
	if err != nil {
		return f, err
	}
	for _, m := range list {
		switch m.Name {
		case "id":
			f.id = m.Value
		case "method":
			var ok bool
			if f.method, ok = toolmap.Text(m.Value); !ok || f.method == "" {
				return f, fmt.Errorf("%w: the method is no text", toolmap.ErrFrame)
			}
		case "params":
			f.params = span{m.From, m.To}
		case "result":
			f.result = m.Value
		case "error":
			if m.Value.Kind() != 'n' {
				f.failure = m.Value
			}
		}
	}
	return f, nil
}

// doubtful reports whether an answer could be taken for something else, or for that of
// another call than its id says.
func (f *frame) doubtful() bool {
	said, _ := toolmap.Text(f.id)
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
		said, _ := toolmap.Text(id)
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

// maxID bounds an id that is a text.
const maxID = 256

// plain reports whether an id is one that all programs read and write as the same: a whole
// number that every double has, or a short text of visible ASCII. Of others nobody knows
// what a server makes of them, and so what it answers would not be known for the answer.
func (f *frame) plain() bool {
	switch f.id.Kind() {
	case '0':
		n, err := strconv.ParseInt(string(f.id), 10, 64)
		return err == nil && -toolmap.Exact <= n && n <= toolmap.Exact
	case '"':
		said, _ := toolmap.Text(f.id)
		if len(said) > maxID || strings.ContainsFunc(said, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return false
		}
		n, ok := number(said)
		if !ok {
			return true
		}
		value, err := strconv.ParseFloat(n, 64)
		return err == nil && value == math.Trunc(value) && math.Abs(value) <= toolmap.Exact
	}
	return false
}

// toolCall is a request to call a tool.
type toolCall struct {
	frame
	line []byte
	tool string
	// whole is set for a request that is no call of a tool, and goes as it is.
	whole bool
	// members are all that it says, and arguments those of the tool.
	members   []toolmap.Member
	arguments []toolmap.Member
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
	params, err := toolmap.Members(line[f.params.from:f.params.to], f.params.from)
	if err == nil {
		err = toolmap.Exactly(params, "name", "arguments", metaMember, "task", answersMember, stateMember)
	}
	if err != nil {
		return nil, err
	}
	c.members = params
	var ok bool
	name, _ := toolmap.Find(params, "name")
	if c.tool, ok = toolmap.Text(name.Value); !ok {
		return nil, fmt.Errorf("%w: the tool has no name", toolmap.ErrFrame)
	}
	c.asTask = has(params, "task")
	if meta, ok := toolmap.Find(params, metaMember); ok && meta.Value.Kind() == '{' {
		list, err := toolmap.Members(meta.Value, 0)
		if err != nil {
			return nil, err
		}
		if token, ok := toolmap.Find(list, tokenMember); ok && (&frame{id: token.Value}).plain() {
			c.progress = token.Value
		}
	}
	if answers, ok := toolmap.Find(params, answersMember); ok && answers.Value.Kind() != 'n' {
		c.answers = answers.Value
	}
	given, ok := toolmap.Find(params, "arguments")
	if !ok || given.Value.Kind() == 'n' {
		return c, nil
	}
	c.arguments, err = toolmap.Members(given.Value, given.From)
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
	b := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s`, c.id, api.String(c.tool))
	if arguments != nil {
		b = fmt.Appendf(b, `,"arguments":%s`, arguments)
	}
	add := func(name string, value jsontext.Value) { b = fmt.Appendf(b, `,%s:%s`, api.String(name), value) }
	if answers != nil {
		add(answersMember, answers)
	}
	for _, m := range c.members {
		switch {
		case m.Name == stateMember && m.Value.Kind() == '"':
			add(m.Name, m.Value)
		case m.Name == "task" && m.Value.Kind() == '{':
			add(m.Name, only(m.Value, func(t *toolmap.Member) bool { return t.Name == "ttl" && t.Value.Kind() == '0' }))
		case m.Name == metaMember && m.Value.Kind() == '{':
			add(m.Name, only(m.Value, func(t *toolmap.Member) bool {
				return t.Name == tokenMember && c.progress != nil || strings.HasPrefix(t.Name, protocolPrefix)
			}))
		}
	}
	return append(b, "}}\n"...)
}

// only is an object, which was read before, with those of its members that are kept.
func only(object jsontext.Value, keep func(*toolmap.Member) bool) jsontext.Value {
	list, _ := toolmap.Members(object, 0)
	b := jsontext.Value("{")
	for i := range list {
		if m := &list[i]; keep(m) {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(append(b, api.String(m.Name)...), ':'), m.Value...)
		}
	}
	return append(b, '}')
}
