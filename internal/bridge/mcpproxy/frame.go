package mcpproxy

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// frame holds the parts of a JSON-RPC message that the proxy needs.
type frame struct {
	// id is the original text, or nil.
	id jsontext.Value
	// method is empty in answers.
	method string
	// params is the position of the params in the line.
	params span
	// result and failure are an answer's result and error.
	result, failure jsontext.Value
	// more is set if the message has members that the protocol does not have.
	more bool
}

// frameNames are the members of a message.
var frameNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// span is a part of a line.
type span struct{ from, to int }

// parse parses a line. It ends in LF or CRLF, and contains no other line break. Otherwise
// another program could read two messages instead of one.
func parse(line []byte) (f frame, err error) {
	body := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if bytes.ContainsAny(body, "\r\n") {
		return f, fmt.Errorf("%w: it has a line break in it", toolmap.ErrFrame)
	}
	return parseBody(body)
}

// withoutHalves writes U+FFFD for each escaped half of a character in a message of the client, as the daemon
// reads it. Otherwise a person would approve one call, and another one would look the same.
func withoutHalves(line []byte) []byte {
	if !bytes.Contains(line, []byte(`\ud`)) && !bytes.Contains(line, []byte(`\uD`)) {
		return line
	}
	body := bytes.TrimRight(line, "\r\n")
	if !utf8.Valid(body) || jsontext.Value(body).IsValid() {
		return line
	}
	whole, err := encode(jsontext.Value(body))
	if err != nil {
		return line // it is refused for what is wrong with it besides
	}
	return append(whole, line[len(body):]...)
}

// parseBody parses a message without a line end.
func parseBody(body []byte) (f frame, err error) {
	list, err := toolmap.Members(body, 0)
	if err != nil {
		return f, err
	}
	return frameOf(list)
}

// frameOf is the message with the members.
func frameOf(list []toolmap.Member) (f frame, err error) {
	for _, m := range list {
		f.more = f.more || !slices.Contains(frameNames, m.Name) || m.Name == "jsonrpc" && string(m.Value) != `"2.0"`
	}
	if f.more {
		if err := toolmap.Exactly(list, frameNames...); err != nil {
			return f, err
		}
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

// doubtful reports whether a client could take an answer for something else, or for the
// answer to another call.
func (f *frame) doubtful() bool {
	said, _ := toolmap.Text(f.id)
	// Some programs parse digits of any script as numbers.
	foreign := strings.ContainsFunc(said, func(r rune) bool { return r > unicode.MaxASCII && unicode.IsDigit(r) })
	return (f.result != nil || f.failure != nil) && (f.method != "" || !f.answerable() || foreign)
}

// answerable reports whether a request's id is a string or a number.
func (f *frame) answerable() bool { return f.id.Kind() == '"' || f.id.Kind() == '0' }

// key identifies an id among those in progress.
func (f *frame) key() string { return keyOf(f.id) }

// keyOf normalizes an id, so that ids that some program considers equal have the same key. 3, 3.0
// and 30e-1 are equal; for clients that convert strings to numbers, so are "3", " 0x3" and "+3".
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

// number normalizes a text that some program could take for a number.
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

// maxID bounds a string id.
const maxID = 256

// plain reports whether all programs read and write an id in the same way: an integer that
// a double represents exactly, or a short string of visible ASCII. A server could change
// another id, and the proxy would not recognize the answer.
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
	// whole is set for a request other than tools/call, which passes unchanged.
	whole bool
	// members are all params, and arguments the tool's arguments.
	members   []toolmap.Member
	arguments []toolmap.Member
	// answers are the client's answers to the server's questions about the call, or nil.
	answers jsontext.Value
	// asTask is set if the client fetches the result later.
	asTask bool
	// meta is what passes of the call's metadata, or nil.
	meta jsontext.Value
	// progress is the token for progress messages, or nil.
	progress jsontext.Value
	// via is the call's route, and named its key.
	via   route
	named key
}

// exactly returns the members of an object that all readers understand in one way.
func exactly(v jsontext.Value, from int, names ...string) ([]toolmap.Member, error) {
	list, err := toolmap.Members(v, from)
	if err == nil {
		err = toolmap.Exactly(list, names...)
	}
	return list, err
}

// parseCall parses the params of a tools/call.
func parseCall(line []byte, f *frame) (*toolCall, error) {
	c := &toolCall{frame: *f, line: line}
	params, err := exactly(line[f.params.from:f.params.to], f.params.from, "name", "arguments", metaMember, "task", answersMember, stateMember)
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
	if about, ok := toolmap.Find(params, metaMember); ok && about.Value.Kind() == '{' {
		list, err := toolmap.Members(about.Value, 0)
		if err != nil {
			return nil, err
		}
		if token, ok := toolmap.Find(list, tokenMember); ok && (&frame{id: token.Value}).plain() {
			c.progress = token.Value
		}
		c.meta, _ = meta(about.Value)
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
	// protocolPrefix begins the protocol's own names in _meta.
	protocolPrefix = "io.modelcontextprotocol/"
)

// with encodes the call again with the decided arguments and answers. It keeps only the protocol's own other
// members in forms that say nothing, because nobody has decided about the rest, and the server's own state.
func (c *toolCall) with(arguments, answers jsontext.Value) []byte {
	b := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s`, c.id, api.String(c.tool))
	if arguments != nil {
		b = fmt.Appendf(b, `,"arguments":%s`, arguments)
	}
	add := func(name, value string) { b = fmt.Appendf(b, `,%s:%s`, api.String(name), value) }
	if answers != nil {
		add(answersMember, string(answers))
	}
	for _, m := range c.members {
		switch {
		case m.Name == stateMember && m.Value.Kind() == '"':
			add(m.Name, string(m.Value))
		case m.Name == "task" && m.Value.Kind() == '{':
			ttl, _ := filtered(m.Value, func(t *toolmap.Member) bool { return t.Name == "ttl" && isNumber(t.Value) })
			add(m.Name, cmp.Or(string(ttl), "{}"))
		case m.Name == metaMember && c.meta != nil:
			add(m.Name, string(c.meta))
		}
	}
	return append(b, "}}\n"...)
}

// anew is a message of the client written from the members that the protocol has.
func (f *frame) anew(line []byte) []byte {
	b := []byte(`{"jsonrpc":"2.0"`)
	if f.id != nil {
		b = fmt.Appendf(b, `,"id":%s`, f.id)
	}
	b = fmt.Appendf(b, `,"method":%s`, api.String(f.method))
	if f.params.to > 0 {
		b = fmt.Appendf(b, `,"params":%s`, line[f.params.from:f.params.to])
	}
	return append(b, "}\n"...)
}

// withParams is a message of the client with other params.
func (f *frame) withParams(params jsontext.Value) []byte {
	g := *f
	g.params = span{0, len(params)}
	return g.anew(params)
}

// outOfForm reports why a message of the client is none of the protocol's.
func outOfForm(f *frame) string {
	switch {
	case f.method != "" && (f.result != nil || f.failure != nil):
		return "it is a request and an answer"
	case f.id != nil && strings.HasPrefix(f.method, "notifications/"):
		return "a notification has no id"
	case f.method != "tools/call" && toolmap.Bare(f.method) == toolmap.Bare("tools/call"):
		return fmt.Sprintf("the method %q is not tools/call", f.method)
	}
	return ""
}
