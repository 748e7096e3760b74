package mcpproxy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// The daemon decides about a call's arguments. The other members of a call, and the members of requests that need
// no decision, could carry text past it. So the proxy passes only members whose form has no room for a text. It
// drops each other one, or has the daemon decide about the whole request.

// isName reports whether a text has the form of an id or a name: at most so many short words, and else numbers
// and hexadecimal digits. No key or token of a service has that form, except a hexadecimal one.
func isName(text string, words int) bool {
	n, ok := wordsOf(text)
	return ok && n <= words
}

// wordsOf counts the words of a text that has the form of an id or a name.
func wordsOf(text string) (n int, ok bool) {
	if len(text) > 64 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return 0, false
	}
	for run := range strings.FieldsFuncSeq(text, func(r rune) bool { return !isLetter(r) && !isDigit(r) }) {
		stem := strings.TrimRightFunc(run, isDigit)
		switch {
		case len(run) <= 32 && strings.Trim(run, "0123456789abcdefABCDEF") == "":
			continue
		case len(run) <= 8, len(run) <= 24 && !strings.ContainsFunc(stem, isDigit) && (stem == run || len(stem) <= 10 && stem != strings.ToUpper(stem)):
			n++
		default:
			return 0, false
		}
	}
	return n, true
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
func isDigit(r rune) bool  { return '0' <= r && r <= '9' }

// Bounds for ids, for the names in a client's description of itself, and for its capabilities.
const (
	idWords       = 3
	nameWords     = 6
	longestNumber = 20
	maxCapable    = 8 << 10
)

// isID reports whether a value has the form of an id.
func isID(v jsontext.Value) bool {
	said, ok := toolmap.Text(v)
	return ok && isName(said, idWords) || isNumber(v)
}

func isNumber(v jsontext.Value) bool { return v.Kind() == '0' && len(v) <= longestNumber }

// capabilities are the protocol's own names of capabilities. capableWords bounds the words of all others.
var capabilities = []string{
	"roots", "listChanged", "sampling", "context", "tools", "elicitation", "form", "url", "tasks", "list", "cancel", "requests", "createMessage", "create", "experimental", "extensions",
}

const capableWords = 12

// capable keeps of a value what describes capabilities: names, truth values and short numbers, at any depth.
func capable(v jsontext.Value) (jsontext.Value, bool) {
	if len(v) > maxCapable {
		return nil, false
	}
	left := capableWords
	return capableIn(v, &left)
}

// capableIn is [capable] for a value within others. left are the words that it may have.
func capableIn(v jsontext.Value, left *int) (jsontext.Value, bool) {
	named := func(name string) bool {
		words, ok := wordsOf(name)
		switch {
		case slices.Contains(capabilities, name):
			return true
		case !ok, words > min(nameWords, *left):
			return false
		}
		*left -= words
		return true
	}
	switch v.Kind() {
	case '"':
		said, _ := toolmap.Text(v)
		return v, named(said)
	case '{':
		return filtered(v, func(m *toolmap.Member) bool {
			if !named(m.Name) {
				return false
			}
			kept, ok := capableIn(m.Value, left)
			m.Value = kept
			return ok
		})
	case '[':
		return v, !strings.ContainsAny(string(v[1:]), "{[") && !slices.ContainsFunc(toolmap.Says(v), func(said string) bool { return !named(said) })
	case '0':
		return v, isNumber(v)
	}
	return v, true
}

// filtered returns an object without the members that keep rejects, and the same bytes if it has no others.
func filtered(v jsontext.Value, keep func(*toolmap.Member) bool) (jsontext.Value, bool) {
	list, err := exactly(v, 0)
	if err != nil {
		return nil, false
	}
	same, kept := true, list[:0]
	for _, m := range list {
		before := m.Value
		if !keep(&m) {
			same = false
			continue
		}
		same = same && string(m.Value) == string(before)
		kept = append(kept, m)
	}
	if same {
		return v, true
	}
	return toolmap.Object(kept), true
}

// info keeps of a client's name and version what has the form of one.
func info(v jsontext.Value) (jsontext.Value, bool) {
	return filtered(v, func(m *toolmap.Member) bool {
		said, ok := toolmap.Text(m.Value)
		switch {
		case m.Name != "name" && m.Name != "version" && m.Name != "title":
			return false
		case ok && isName(said, nameWords):
			return true
		}
		m.Value = jsontext.Value(`"unnamed"`)
		return m.Name != "title"
	})
}

// levels are the protocol's levels of logs.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func isLevel(v jsontext.Value) bool {
	said, _ := toolmap.Text(v)
	return slices.Contains(levels, said)
}

// meta keeps of _meta the protocol's own members in their forms. The metadata of a client, such as the number of
// a use of a tool, is for itself.
func meta(v jsontext.Value) (jsontext.Value, bool) {
	if v.Kind() != '{' {
		return nil, false
	}
	kept, ok := filtered(v, func(m *toolmap.Member) (ok bool) {
		said, _ := toolmap.Text(m.Value)
		name, own := strings.CutPrefix(m.Name, protocolPrefix)
		switch {
		case m.Name == tokenMember:
			return (&frame{id: m.Value}).plain() && isID(m.Value)
		case m.Name == "traceparent":
			return isName(said, 0) && m.Value.Kind() == '"'
		case !own:
			return false
		}
		switch name {
		case "protocolVersion":
			return m.Value.Kind() == '"' && isName(said, idWords)
		case "clientInfo":
			m.Value, ok = info(m.Value)
		case "clientCapabilities":
			m.Value, ok = capable(m.Value)
		case "logLevel":
			ok = isLevel(m.Value)
		case "related-task":
			m.Value, ok = filtered(m.Value, func(m *toolmap.Member) bool { return m.Name == "taskId" && isID(m.Value) })
		}
		return ok
	})
	return kept, ok && len(kept) > len("{}")
}

// passing are the protocol's requests and notifications of a client that need no decision, with the members of
// their params: they only list the server's offers, or concern a call that was decided. A member whose form is
// not kept makes a request one that is decided about.
var passing = map[string]map[string]form{
	"initialize":      {"protocolVersion": drops(isID), "capabilities": keeps(capable), "clientInfo": keeps(info)},
	"server/discover": {}, "ping": {}, "logging/setLevel": {"level": decides(isLevel)},
	"tools/list": cursors, "prompts/list": cursors, "resources/list": cursors, "resources/templates/list": cursors, "tasks/list": cursors,
	"tasks/get": tasks, "tasks/result": tasks, "tasks/cancel": tasks, "resources/unsubscribe": {"uri": isGiven},
	"notifications/initialized": {}, "notifications/roots/list_changed": {},
	"notifications/cancelled": {"requestId": isOpen},
	"notifications/progress":  {"progressToken": decides(isID), "progress": decides(isNumber), "total": decides(isNumber)},
}

var cursors, tasks = map[string]form{"cursor": isGiven}, map[string]form{"taskId": decides(isID)}

// form is what passes of a member's value, nil for nothing. Known is false if the value has to be decided about.
type form func(p *proxy, session string, v jsontext.Value) (pass jsontext.Value, known bool)

func decides(is func(jsontext.Value) bool) form {
	return func(_ *proxy, _ string, v jsontext.Value) (jsontext.Value, bool) { return v, is(v) }
}

func drops(is func(jsontext.Value) bool) form {
	return keeps(func(v jsontext.Value) (jsontext.Value, bool) { return v, is(v) })
}

func keeps(kept func(jsontext.Value) (jsontext.Value, bool)) form {
	return func(_ *proxy, _ string, v jsontext.Value) (jsontext.Value, bool) {
		v, ok := kept(v)
		if !ok {
			v = nil
		}
		return v, true
	}
}

func isGiven(p *proxy, session string, v jsontext.Value) (jsontext.Value, bool) {
	said, ok := toolmap.Text(v)
	return v, v.Kind() == 'n' || ok && p.given.gave(session, said)
}

// isOpen is the form of the id of a request that the server has got. It passes as the server has got
// it: another spelling of the same id could say something.
func isOpen(p *proxy, session string, v jsontext.Value) (jsontext.Value, bool) {
	if id := p.requests.isOpen(key{session, keyOf(v)}); id != nil {
		return id, true
	}
	return v, isID(v)
}

// passes reports whether a message of the client needs no decision, by its method.
func passes(f *frame) bool {
	return passing[f.method] != nil || f.id == nil && strings.HasPrefix(f.method, "notifications/")
}

// around returns what passes of a message that needs no decision by its method. Known is false if something in it
// has to be decided about.
func around(p *proxy, line []byte, f *frame, session string) (pass []byte, known bool) {
	forms := passing[f.method]
	if forms == nil || f.id != nil && !isID(f.id) {
		return nil, false
	}
	if f.params.to == 0 {
		return line, true
	}
	params := jsontext.Value(line[f.params.from:f.params.to])
	if params.Kind() == 'n' {
		return line, true
	}
	known = true
	kept, ok := filtered(params, func(m *toolmap.Member) (ok bool) {
		if m.Name == metaMember {
			m.Value, ok = meta(m.Value)
			return ok
		}
		is := forms[m.Name]
		if is == nil {
			return false
		}
		m.Value, ok = is(p, session, m.Value)
		known = known && ok
		return m.Value != nil
	})
	if !ok || !known {
		return nil, false
	}
	if string(kept) == string(params) {
		return line, true
	}
	line = f.withParams(kept)
	*f, _ = parseBody(line)
	return line, true
}

// foreign reports why a call's state cannot pass: the server has not given it to its client.
func foreign(p *proxy, c *toolCall) *gatelink.Refusal {
	list := c.members
	if c.whole {
		list = c.arguments
	}
	state, ok := toolmap.Find(list, stateMember)
	if !ok || state.Value.Kind() == 'n' {
		return nil
	}
	if said, ok := toolmap.Text(state.Value); ok && p.given.gave(c.named.session, said) {
		return nil
	}
	return &gatelink.Refusal{Code: "MALFORMED", Reason: fmt.Sprintf("the %s is none that the server has given in this session", stateMember)}
}

// odd is a call's id if it has not the form of one, for the daemon to look at, or nil.
func (c *toolCall) odd() jsontext.Value {
	if c.id == nil || isID(c.id) {
		return nil
	}
	said, _ := toolmap.Text(c.id)
	return api.String(said)
}
