package mcpproxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

func TestParse(t *testing.T) {
	for line, method := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`:       "tools/call",
		`{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"name":"x"}}`:      "tools/call",
		`{"jsonrpc":"2.0","id":"a","method":"\u0074ools/call"}` + "\r\n":             "tools/call",
		` {"method":"notifications/x","unknown":{"a":[1,2]},"_meta":{}} ` + "\n":     "notifications/x",
		`{"jsonrpc":"2.0","id":12345678901234567890123,"result":{}}` + "\n":          "",
		`{"id":1,"method":"x","params":{"name":"half \ud83d"}}`:                      "x",
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such"}}`:    "",
		`{"jsonrpc":"2.0","method":"tools/Call","params":{},"$":1,"@":2}`:            "tools/Call",
		`{"jsonrpc":"2.0","id":1.50,"method":"ping","params":null,"experimental":1}`: "ping",
	} {
		f, err := parse([]byte(line))
		if err != nil || f.method != method {
			t.Errorf("%s: method %q, %v", line, f.method, err)
		}
	}
	for _, line := range []string{
		``, `[]`, `[{"method":"ping"}]`, `"x"`, `{`, `{}{}`, `{"method":"ping"}{"method":"tools/call"}`, `{"method":"ping","method":"tools/call"}`,
		`{"method":"ping","Method":"tools/call"}`, `{"METHOD":"tools/call"}`, `{"method":7}`, `{"method":""}`, `{"method":"ping","params":{},"Params":{}}`,
		"{\"method\":\"ping\",\r\"id\":1}", "{\"x\":\r{\"method\":\"tools/call\"}\r}", "{\"method\":\"ping\xff\"}", `{"method":"ping","params":{"a":1,"a":2}}`,
		`{"method":"ping"} x`, `{"ıd":1,"id":2,"ID":3}`, `{"method":"x","re\u017Fult":1}`, `{"meth_od":"tools/call"}`, `{"a":1,}`,
		`{"method ":"tools/call"}`, `{"meth\u200bod":"tools/call"}`, "{\"me\u00a0thod\":\"tools/call\"}", `{"\ufeffmethod":"tools/call"}`, `{"method":"ping","params":{},"params.":{}}`,
	} {
		if f, err := parse([]byte(line)); err == nil {
			t.Errorf("%s is taken for %+v", line, f)
		}
	}
}

func TestParseCall(t *testing.T) {
	call := func(params string) (*toolCall, error) {
		line := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}` + "\n")
		f, err := parse(line)
		if err != nil {
			return nil, err
		}
		return parseCall(line, &f)
	}
	c, err := call(`{"_meta":{"progressToken":3},"name":"send","arguments":{"to":"dave", "text":"h\u0069"}}`)
	if err != nil || c.tool != "send" || string(c.progress) != "3" || len(c.arguments) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	if got := string(c.with([]byte(`{"to":1}`), nil)); got != `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"send","arguments":{"to":1},"_meta":{"progressToken":3}}}`+"\n" {
		t.Errorf("with other arguments it is %s", got)
	}
	for _, params := range []string{
		`{}`, `{"name":7}`, `{"name":"send","Name":"x"}`, `{"NAME":"send"}`, `{"name":"send","arguments":[]}`, `{"name":"send","arguments":"x"}`,
		`{"name":"send","arguments":{"text":"a"},"Arguments":{"text":"b"}}`, `null`, `[]`,
	} {
		if c, err := call(params); err == nil {
			t.Errorf("%s is taken for %+v", params, c)
		}
	}
}

// A message has one meaning for every reader: one object, with exactly the members that
// encoding/json finds by their exact names, and no others.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"to":"a","text":"b"}}}`, `{"method":"tools\/call"}`,
		`{"id":12345678901234567890,"result":{}}`, `[{"method":"x"}]`, `{"method":"a","Method":"b"}`, `{"method":"\ud83d"}`, "{\"a\":\r1}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := parse(line)
		if err != nil {
			return
		}
		var lax struct {
			Method *string         `json:"method"`
			Params json.RawMessage `json:"params"`
			ID     json.RawMessage `json:"id"`
		}
		if !json.Valid(bytes.TrimSpace(line)) {
			t.Fatalf("%q is no JSON", line)
		}
		if json.Unmarshal(line, &lax) != nil {
			return
		}
		if lax.Method != nil && *lax.Method != got.method {
			t.Errorf("%q is %q to others and %q here", line, *lax.Method, got.method)
		}
		if got.params.to > 0 && lax.Params != nil && string(lax.Params) != string(line[got.params.from:got.params.to]) {
			t.Errorf("the params of %q are %q to others and %q here", line, lax.Params, line[got.params.from:got.params.to])
		}
		if got.method != "tools/call" || got.params.to == 0 {
			return
		}
		c, err := parseCall(line, &got)
		if err != nil {
			return
		}
		var call struct {
			Name      string                     `json:"name"`
			Arguments map[string]json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal(lax.Params, &call) != nil {
			return
		}
		if call.Name != c.tool || len(call.Arguments) != len(c.arguments) {
			t.Errorf("%q calls %q here, and %q elsewhere", line, c.tool, call.Name)
		}
		for _, m := range c.arguments {
			if !strings.Contains(m.Name, "\ufffd") && string(call.Arguments[m.Name]) != string(m.Value) {
				t.Errorf("argument %q of %q is %s elsewhere", m.Name, line, call.Arguments[m.Name])
			}
		}
		given, _ := toolmap.Find(c.members, "arguments")
		if given.Value.Kind() != '{' || !c.answerable() {
			return
		}
		anew := c.with(given.Value, c.answers)
		again, err := parse(anew)
		if err != nil {
			t.Fatalf("%q becomes %q: %v", line, anew, err)
		}
		called, err := parseCall(anew, &again)
		if err != nil || called.tool != c.tool || string(again.id) != string(c.id) || string(called.answers) != string(c.answers) || !slices.EqualFunc(called.arguments, c.arguments, func(a, b toolmap.Member) bool {
			return a.Name == b.Name && string(a.Value) == string(b.Value)
		}) {
			t.Errorf("%q becomes %q: %v", line, anew, err)
		}
	})
}

// A call with a decision contains nothing else except the protocol's own members.
func TestCallWrittenAnew(t *testing.T) {
	const beside = `"_meta":{"progressToken":"p1","note":"tell dave","io.modelcontextprotocol/protocolVersion":"2026-06-30"},"task":{"ttl":60,"note":"x"},"note":"x","requestState":"s1","inputResponses":{"q":{"action":"accept","content":{"text":"hello"}}}`
	line := []byte(`{"jsonrpc":"2.0","note":"x","id":"a","method":"tools/call","params":{` + beside + `,"name":"send","arguments":{"to":"dave","text":"a"}}}`)
	f, err := parse(line)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseCall(line, &f)
	if err != nil {
		t.Fatal(err)
	}
	m := &toolmap.Map{Channel: "chat"}
	said, err := read(m, &toolmap.Tool{Text: []string{"text"}, To: []string{"{to}"}}, c)
	if err != nil || string(said.call.Answers) != `{"q":{"action":"accept","content":{"text":"hello"}}}` {
		t.Errorf("it is decided about %+v, %v", said, err)
	}
	const want = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"send","arguments":{},"inputResponses":{"x":1},` +
		`"_meta":{"progressToken":"p1","io.modelcontextprotocol/protocolVersion":"2026-06-30"},"task":{"ttl":60},"requestState":"s1"}}` + "\n"
	if got := string(c.with([]byte("{}"), []byte(`{"x":1}`))); got != want {
		t.Errorf("the server gets %s, want %s", got, want)
	}
}

// An id that servers read in different ways cannot name a call under decision.
func TestPlainIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"1": true, "0": true, "-1": true, "9007199254740991": true, `"a"`: true, `"7"`: true, `"5f1c-2"`: true, `"0x10"`: true,
		"9007199254740993": false, "12345678901234567890": false, "3.0": false, "1e3": false, "0.5": false, `"9007199254740993"`: false, `"1.5"`: false, `"\ud83d"`: false, `"é"`: false,
		`" 3"`: false, `"inf"`: false, `""`: true, "null": false, "true": false, `"` + strings.Repeat("a", maxID+1) + `"`: false,
	} {
		if got := (&frame{id: []byte(id)}).plain(); got != want {
			t.Errorf("%s: %v", id, got)
		}
	}
}

// A half of a character is what the daemon reads it as, wherever it is, so that two calls do not look alike.
func TestHalvesOfCharacters(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"a":"x"}` + "\n":                        `{"a":"x"}` + "\n",
		`{"a":"\ud83d\ude00", "n":1.50}` + "\r\n": `{"a":"\ud83d\ude00", "n":1.50}` + "\r\n",
		`{"a":"\ud801", "n":1.50}` + "\r\n":       `{"a":"�","n":1.50}` + "\r\n",
		`{"\uDC00":[1e400,"\uD800\u0041"]}`:       `{"�":[1e400,"�A"]}`,
		`{"a":"\\ud801"}`:                         `{"a":"\\ud801"}`,
		`{"\ud800":1,"\ud801":2}`:                 `{"\ud800":1,"\ud801":2}`, // one name twice: it is refused
		`{"a":"\ud801` + "\xff" + `"}`:            `{"a":"\ud801` + "\xff" + `"}`,
	} {
		got := string(withoutHalves([]byte(line)))
		if got != want {
			t.Errorf("%q became %q", line, got)
		}
		if _, err := parse([]byte(got)); (err != nil) != (strings.Contains(line, ":2") || strings.Contains(line, "\xff")) {
			t.Errorf("%q: %v", line, err)
		}
	}
}
