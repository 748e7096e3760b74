package ipc

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// nested is a value with this many lists in it.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestParseRequestRefuses(t *testing.T) {
	const head = `{"id":"r1","type":"request",`
	for _, tc := range []struct {
		name, line string
		id         string
		says       string
	}{
		{"nothing", ` `, "", "EOF"},
		{"half an object", head, "r1", "EOF"},
		{"no JSON", `hello`, "", "invalid character"},
		{"a list", `[1]`, "", "the line is a list"},
		{"a string", `"x"`, "", "the line is a string"},
		{"null", `null`, "", "id is missing"},
		{"a key twice", head + `"method":"a","method":"b"}`, "r1", "duplicate"},
		{"the id twice", `{"id":"r1","id":"r2","type":"request","method":"a"}`, "r1", "duplicate"},
		{"a key twice by an escape", head + `"method":"a","m\u0065thod":"b"}`, "r1", "duplicate"},
		{"a key twice inside params", head + `"method":"a","params":{"x":1,"x":2}}`, "r1", "duplicate"},
		{"a key twice inside an unknown member", head + `"method":"a","extra":{"x":1,"x":2}}`, "r1", "duplicate"},
		{"not UTF-8", head + "\"method\":\"\xff\"}", "r1", "UTF-8"},
		{"not UTF-8 in params", head + "\"method\":\"a\",\"params\":{\"x\":\"\xc3\x28\"}}", "r1", "UTF-8"},
		{"half a character in the id", `{"id":"r\ud83d","type":"request","method":"a"}`, "", "surrogate"},
		{"half a character and a key twice", head + `"method":"a","params":{"x":"\ud83d","x":2}}`, "r1", "surrogate"},
		{"two keys of half a character", head + `"method":"a","params":{"\ud83d":1,"\ud83e":2}}`, "r1", "surrogate"},
		{"half a character and not UTF-8", head + "\"method\":\"a\",\"params\":{\"x\":\"\\ud83d\xff\"}}", "r1", "surrogate"},
		{"half an escape", head + `"method":"a","params":{"x":"\ud83"}}`, "r1", "escape"},
		{"something behind it", head + `"method":"a"} x`, "r1", "after top-level value"},
		{"two objects", head + `"method":"a"}{}`, "r1", "after top-level value"},
		{"too deep", head + `"method":"a","params":` + nested(MaxDepth) + `}`, "r1", "nested deeper than 64"},
		{"far too deep", head + `"method":"a","params":` + nested(100_000) + `}`, "r1", "nested deeper than 64"},
		{"deep without an end", `{"id":"r1","x":` + strings.Repeat(`{"a":`, 50_000), "r1", "nested deeper than 64"},
		{"deep in front of the id", `{"x":` + nested(100) + `,"id":"r1"}`, "r1", "nested deeper than 64"},
		{"no id", `{"type":"request","method":"a"}`, "", "id is missing"},
		{"null for the id", `{"id":null,"type":"request","method":"a"}`, "", "id is missing"},
		{"a number for the id", `{"id":7,"type":"request","method":"a"}`, "", "id is a number"},
		{"an endless id", `{"id":"` + strings.Repeat("x", maxID+1) + `","type":"request","method":"a"}`, "", "longer than 256"},
		{"no type", `{"id":"r1","method":"a"}`, "r1", "type is missing"},
		{"a response", `{"id":"r1","type":"response","method":"a"}`, "r1", `type "response"`},
		{"type in capitals", `{"id":"r1","type":"REQUEST","method":"a"}`, "r1", `type "REQUEST"`},
		{"keys in capitals", `{"ID":"r1","Type":"request","Method":"a"}`, "", "id is missing"},
		{"no method", head + `"params":{}}`, "r1", "method is missing"},
		{"a list for the method", head + `"method":[]}`, "r1", "method is a list"},
		{"a string for the timestamp", head + `"timestamp":"now","method":"a"}`, "r1", "timestamp is a string"},
		{"a timestamp without bounds", head + `"timestamp":1e999,"method":"a"}`, "r1", "timestamp"},
		{"a number for the token", head + `"method":"a","token":5}`, "r1", "token is a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := ParseRequest([]byte(tc.line))
			e := api.AsError(err)
			if err == nil || e.Code != api.InvalidRequest || r.ID != tc.id || !strings.Contains(e.Message, tc.says) {
				t.Errorf("got id %q and %v, want id %q and INVALID_REQUEST with %q", r.ID, err, tc.id, tc.says)
			}
		})
	}
}

func TestParseRequestTakes(t *testing.T) {
	for _, line := range []string{
		`{"id":"a1b2c3","type":"request","timestamp":1707000000000,"method":"app.heartbeat","params":{}}`,
		` { "method" : "a" , "type" : "request" , "id" : "x" } `,
		`{"id":"x","type":"request","method":"a","timestamp":1707000000000.25,"trace":{"deep":[[[1]]]},"v":2}`,
		`{"id":"x","type":"request","method":"a","params":` + nested(MaxDepth-1) + `}`,
		`{"id":"x","type":"request","method":"a","params":{"s":"[[[[{{{{\"[[[["}}`,
		`{"\u0069d":"x","type":"request","method":"a"}`,
		`{"id":"` + strings.Repeat("x", maxID) + `","type":"request","method":"a"}`,
	} {
		if _, err := ParseRequest([]byte(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// Half of a character, as is left of an emoji that a text was cut in, becomes the
// replacement character; a whole one, however it is written, stays.
func TestHalvesOfCharactersAreMended(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
		halves           int
	}{
		{"the first half", `\ud83d`, "\ufffd", 1},
		{"the second half", `\udE00!`, "\ufffd!", 1},
		{"a pair", `\ud83d\ude00`, "😀", 0},
		{"a pair in capitals", `\uD83D\uDE00`, "😀", 0},
		{"two first halves and a second", `\ud83d\ud83d\ude00`, "\ufffd😀", 1},
		{"in the wrong order", `\ude00\ud83d`, "\ufffd\ufffd", 2},
		{"the first half and a letter", `\ud83dA`, "\ufffdA", 1},
		{"the first half and another escape", `\ud83d\n\u0041`, "\ufffd\nA", 1},
		{"behind a backslash", `\\\ud83d`, `\` + "\ufffd", 1},
		{"no escape", `\\ud83d`, `\ud83d`, 0},
		{"one that is cut and one as it is", `締\ud83d🤝`, "締\ufffd🤝", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := []byte(`{"id":"r1","type":"request","method":"a","params":{"content":"` + tc.text + `"}}`)
			was := string(line)
			r, err := ParseRequest(line)
			if err != nil {
				t.Fatal(err)
			}
			p, err := (&method{decode: func(raw jsontext.Value) (any, error) { return decodeParams[api.DispatchParams](raw) }}).read(&Request{
				Params: []byte(`{"sessionKey":"a:b",` + string(r.Params[1:])), mended: r.mended,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.(*api.DispatchParams); got.Content != tc.want || got.Halves != tc.halves {
				t.Errorf("got %q with %d halves, want %q with %d", got.Content, got.Halves, tc.want, tc.halves)
			}
			if string(line) != was {
				t.Errorf("the line itself became %q", line)
			}
		})
	}
}

// A number that breaks other readers, or that none can hold, is refused by name.
func TestNumbersAreBounded(t *testing.T) {
	long := strings.Repeat("7", 5000)
	for _, tc := range []struct{ params, path string }{
		{`{"metadata":{"n":` + long + `}}`, "metadata.n"},
		{`{"metadata":{"a":[1,{"b/c":` + long + `}]}}`, "metadata.a.1.b/c"},
		{`{"metadata":{"n":-0.` + long + `}}`, "metadata.n"},
		{`{"metadata":{"n":1e999}}`, "metadata.n"},
		{`{"metadata":{"n":-1E400}}`, "metadata.n"},
		{strings.Repeat("1", maxNumber+1), "params"},
		{`{"metadata":{"n":` + strings.Repeat("1", maxNumber) + `,"m":1e308,"o":1e-999,"s":"` + long + `","\"":-1.5E+3}}`, ""},
		{`{"s":"\\\"` + long + `\\","n":[0,-0,1.5]}`, ""},
	} {
		r, err := ParseRequest([]byte(`{"id":"r1","type":"request","timestamp":` + "1.0" + `,"method":"a","params":` + tc.params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&method{decode: func(jsontext.Value) (any, error) { return nil, nil }}).read(&r)
		if tc.path == "" {
			if err != nil {
				t.Errorf("%.80s: %v", tc.params, err)
			}
			continue
		}
		refusedParams(t, err)
		if details := api.AsError(err).Details.([]api.FieldError); details[0].Path != tc.path {
			t.Errorf("%.80s: names %q, want %q", tc.params, details[0].Path, tc.path)
		}
	}
}

// FuzzParseRequest holds whatever is accepted against the JSON library, and
// asks that it survives being written and read again.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a1b2c3","type":"request","timestamp":1707000000000,"method":"app.register","params":{"manifest":{"id":"@openclawos/telegram","name":"Telegram","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":{"channels":{"provides":["telegram"]}}}}}`,
		`{"id":"1","type":"request","timestamp":1.5e3,"method":"m","params":[1,2.50,"\u00e9\n"],"token":"t","x":null}`,
		`{"id":"1","id":"2"}`, `{"id":"1","type":"response"}`, "{\"id\":\"\xff\"}", `{"id":"1"} {}`, `{"x":` + nested(70) + `,"id":"1"}`,
		`{"id":"\ud83d\ude00","type":"request","method":"\ud800"}`, `{"id":"\ud83d","type":"request","method":"a","params":["\udc00\\\ud83d\ud83d\ude00"]}`, `null`, `[]`, `{"id":7}`, "\ufeff{}", `{"id":"1","type":"request","method":"m","params":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseRequest(line)
		if err != nil {
			refusedWell(t, line, r, err)
			return
		}
		if mended, n := mendSurrogates(line); n != r.mended || !jsontext.Value(mended).IsValid() || n > 0 == jsontext.Value(line).IsValid() {
			t.Fatalf("accepted, though it is not a JSON text of RFC 7493: %q, mended %q", line, mended)
		}
		if d := deepest(line); d > MaxDepth {
			t.Fatalf("accepted at depth %d", d)
		}
		again := reread(t, &r)
		if again.ID != r.ID || again.Type != r.Type || again.Timestamp != r.Timestamp || again.Method != r.Method || again.Token != r.Token {
			t.Fatalf("read again it is %+v, was %+v", again, r)
		}
		if deepest, odd := survey(line); deepest > MaxDepth || odd != r.oddNumbers || !odd && checkNumbers(r.Params) != nil {
			t.Fatalf("the survey says depth %d, odd numbers %t; %v", deepest, odd, checkNumbers(r.Params))
		}
		if want, got := plain(r.Params), plain(again.Params); !reflect.DeepEqual(want, got) {
			t.Fatalf("read again the params are %v, were %v", got, want)
		}
	})
}

// refusedWell checks the answer to a line that was not accepted.
func refusedWell(t *testing.T, line []byte, r Request, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidRequest || e.Message == "" || !utf8.ValidString(e.Message) {
		t.Fatalf("refused with %v", err)
	}
	if len(r.ID) > maxID || !utf8.ValidString(r.ID) {
		t.Fatalf("salvaged %q", r.ID)
	}
	var sent struct {
		ID string `json:"id"`
	}
	// The id of whatever is JSON at all is found.
	if json.Unmarshal(line, &sent) == nil && jsontext.Value(line).Kind() == '{' && len(sent.ID) <= maxID && r.ID != sent.ID {
		t.Fatalf("salvaged %q, want %q", r.ID, sent.ID)
	}
}

func reread(t *testing.T, r *Request) Request {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("cannot write what was accepted: %v", err)
	}
	again, err := ParseRequest(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return again
}

// plain is a value without its spelling. What no float64 holds stays text.
func plain(v jsontext.Value) any {
	var x any
	if json.Unmarshal(v, &x) != nil {
		return v.String()
	}
	return x
}

// deepest measures a valid text with the library's own decoder.
func deepest(line []byte) (deepest int) {
	d := jsontext.NewDecoder(bytes.NewReader(line))
	for {
		if _, err := d.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, d.StackDepth())
	}
}

// sampleParams holds, for every method, parameters it must take and some it
// must refuse.
func sampleParams() map[string]struct{ good, bad []string } {
	return map[string]struct{ good, bad []string }{
		"app.register": {
			good: []string{`{"manifest":{"id":"@openclawos/telegram","name":"Telegram","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":{"channels":{"provides":["telegram"]}}}}`},
			bad: []string{`{}`, `{"manifest":null}`, `{"manifest":{"id":"","version":"1","type":"thing","protocol":{"version":"2.0"}}}`,
				`{"manifest":{"capabilities":{"channels":{"provides":["",{}]}}}}`, `{"manifest":[]}`},
		},
		"app.heartbeat":         {good: []string{`{}`, `null`, ``, `{"status":{"load":0.5}}`, `{"status":null}`}, bad: []string{`{"status":[]}`, `{"status":1}`, `[]`, `"x"`, `{"status":{"x":"` + strings.Repeat("x", 5000) + `"}}`}},
		"app.ready":             {good: []string{`{}`, `{"metadata":{"a":1}}`}, bad: []string{`[]`, `7`}},
		"app.shutdown":          {good: []string{`{}`, `{"reason":"done","timeout":1000}`}, bad: []string{`{"timeout":-1}`, `{"timeout":1.5}`, `{"timeout":1e99}`, `{"reason":7}`}},
		"capability.register":   {good: []string{`{"type":"channel","config":{"channelId":"telegram"}}`, `{"type":"hook","config":{"event":"message_sending","intercept":true}}`, `{}`, `{"type":"cable","config":{}}`, `{"type":"tool","config":null}`, `{"type":"tool","config":{"toolId":7}}`}, bad: []string{`{"type":"tool","config":"x"}`, `{"type":7}`}},
		"capability.unregister": {good: []string{`{"capabilityId":"x"}`}, bad: []string{`{}`, `{"capabilityId":7}`}},
		"hook.subscribe":        {good: []string{`{"events":["message_sending"]}`, `{"events":[]}`}, bad: []string{`{}`, `{"events":null}`, `{"events":"x"}`, `{"events":[""]}`, `{"events":[1]}`}},
		"hook.unsubscribe":      {good: []string{`{"events":["message_sending"]}`}, bad: []string{`{}`, `{"events":{}}`}},
		"hook.result":           {good: []string{`{"eventId":"e","result":{"content":"x"}}`, `{"eventId":"e","result":null}`, `{"eventId":"e"}`}, bad: []string{`{}`, `{"eventId":7}`}},
		"config.get":            {good: []string{`{}`, `{"path":"channels.telegram"}`, `{"path":""}`}, bad: []string{`{"path":7}`, `{"path":"` + strings.Repeat("x", 5000) + `"}`}},
		"config.watch":          {good: []string{`{}`, `{"paths":["channels"]}`, `{"paths":null}`}, bad: []string{`{"paths":"x"}`, `{"paths":[1]}`}},
		"session.get":           {good: []string{`{"key":"telegram:1"}`}, bad: []string{`{}`, `{"key":"telegram"}`, `{"key":":x"}`, `{"key":"x:"}`, `{"key":7}`}},
		"session.list":          {good: []string{`{}`, `{"filter":{"agentId":"a","channelId":"c","accountId":"x","active":true},"limit":10,"offset":5}`, `{"filter":null,"limit":0}`}, bad: []string{`{"limit":-1}`, `{"limit":1001}`, `{"offset":-1}`, `{"limit":1.5}`, `{"filter":{"active":"yes"}}`, `{"filter":[]}`}},
		"message.dispatch":      {good: []string{`{"sessionKey":"telegram:1","content":"hi","metadata":{"a":[1]}}`, `{"sessionKey":"agent:bob:main","content":"hi"}`}, bad: []string{`{}`, `{"sessionKey":"telegram:1"}`, `{"sessionKey":"x","content":"y"}`, `{"sessionKey":"telegram:1","content":"hi","metadata":7}`}},
		"agent.queue":           {good: []string{`{"sessionKey":"telegram:1","text":"hi"}`}, bad: []string{`{}`, `{"sessionKey":"telegram:1","text":""}`, `{"sessionKey":"telegram:1","text":["x"]}`}},
		"exchange.get": {
			good: []string{`{"exchangeId":"exch-1"}`}, bad: []string{`{}`, `{"exchangeId":7}`},
		},
		"sending.pause":  {good: []string{`{}`, `{"agent":"alice","note":"why"}`, `{"channel":"irc"}`}, bad: []string{`{"agent":"a","channel":"b"}`, `{"agent":7}`, `{"channel":"` + strings.Repeat("x", 300) + `"}`}},
		"sending.resume": {good: []string{`{}`, `{"agent":"alice"}`}, bad: []string{`{"agent":"a","channel":"b"}`, `{"note":"` + strings.Repeat("x", 2000) + `"}`}},
		"contact.list":   {good: []string{`{}`, `{"agent":"a","channel":"irc","limit":7,"offset":7}`}, bad: []string{`{"limit":0}`, `{"offset":-1}`, `{"agent":7}`}},
		"contact.forget": {good: []string{`{"sessionKey":"irc:a","note":"why"}`}, bad: []string{`{}`, `{"sessionKey":"irc"}`, `{"sessionKey":"irc:a","note":"` + strings.Repeat("x", 2000) + `"}`}},
		"queue.list":     {good: []string{`{}`, `{"queue":"channel:irc","agent":"a","channel":"irc","limit":7,"after":"channel:irc#7"}`}, bad: []string{`{"limit":0}`, `{"limit":1001}`, `{"queue":7}`}},
		"queue.drop":     {good: []string{`{"dispatchIds":["d"],"queue":"channel:irc","note":"why"}`}, bad: []string{`{}`, `{"dispatchIds":[]}`, `{"dispatchIds":[""]}`, `{"dispatchIds":"d"}`}},
		"exchange.list": {
			good: []string{`{}`, `{"agent":"a","outcome":"escalated","limit":5}`}, bad: []string{`{"limit":0}`, `{"limit":"5"}`},
		},
		"exchange.resolve": {
			good: []string{`{"exchangeId":"exch-1","outcome":"resolved","note":"done"}`}, bad: []string{`{}`, `{"exchangeId":"exch-1","outcome":"denied"}`},
		},
		"approval.get":  {good: []string{`{"approvalId":"a"}`}, bad: []string{`{}`, `{"approvalId":7}`}},
		"approval.list": {good: []string{`{}`, `{"state":"all","agent":"alice","limit":10000,"after":"x"}`}, bad: []string{`{"state":"open"}`, `{"limit":0}`, `{"limit":10001}`}},
		"approval.resolve": {
			good: []string{`{"approvalId":"a","decision":"deny"}`, `{"approvalId":"a","decision":"approve","digest":"sha256:0"}`, `{"approvalId":"a","decision":"takeover","digest":"d","content":"mine"}`},
			bad:  []string{`{}`, `{"approvalId":"a"}`, `{"approvalId":"a","decision":"approve"}`, `{"approvalId":"a","decision":"maybe"}`, `{"approvalId":"a","decision":"deny","content":"x"}`},
		},
		"approval.watch":  {good: []string{`{}`}, bad: []string{`[]`}},
		"hook.emit":       {good: []string{`{"hookName":"message_sending","data":{"sessionKey":"a:b","content":"x"}}`, `{"hookName":"session_end","data":{},"context":{"agentId":"alice"}}`}, bad: []string{`{}`, `{"hookName":"x"}`, `{"hookName":"x","data":7}`, `{"hookName":"x","data":{},"context":{"sessionKey":"x"}}`, `{"hookName":7,"data":{}}`}},
		"agent.complete":  {good: []string{`{"runId":"r","success":true}`}, bad: []string{`{}`, `{"runId":"r","success":"yes"}`}},
		"stream.cancel":   {good: []string{`{"requestId":"r"}`}, bad: []string{`{}`, `{"requestId":[]}`}},
		"kernel.describe": {good: []string{`{}`, `{"x":1}`}, bad: []string{`[]`}},
		"kernel.status":   {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.query":     {good: []string{`{}`, `{"limit":1}`}, bad: []string{`{"limit":0}`, `{"limit":1001}`, `{"before":-1}`, `{"filter":7}`}},
		"audit.stats":     {good: []string{`{}`, `{"since":"2026-03-13T10:00:00Z","bucket":3600}`}, bad: []string{`{"bucket":-60}`, `{"bucket":90}`, `{"since":7}`, `{"since":"2026-03-13T10:00:00Z","until":"2026-03-12T10:00:00Z"}`}},
		"policy.reload":   {good: []string{`{}`}, bad: []string{`[]`}},
		"config.diff":     {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.forget": {
			good: []string{`{"tenant":"acme-corp"}`, `{"tenant":""}`},
			bad:  []string{`{}`, `{"tenant":null}`, `{"tenant":7}`, `{"tenant":"` + strings.Repeat("x", 10_000) + `"}`},
		},
		"audit.rotate_key": {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.tail":       {good: []string{`{}`, `{"last":10,"follow":true}`}, bad: []string{`{"last":-1}`, `{"after":"x"}`}},
		"audit.verify":     {good: []string{`{}`}, bad: []string{`[]`}},
		"debug.profile":    {good: []string{`{"name":"heap"}`, `{"name":"cpu","seconds":3}`}, bad: []string{`{}`, `{"name":"x"}`, `{"name":"cpu","seconds":301}`, `{"name":"cpu","seconds":-1}`}},
		"audit.retire":     {good: []string{`{"before":"2026-03-13T10:00:00Z"}`}, bad: []string{`{}`, `{"before":7}`}},
	}
}

// refusedParams checks that an error names the fields that are wrong.
func refusedParams(t *testing.T, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidParams || e.Message == "" {
		t.Fatalf("refused with %v", err)
	}
	fields, ok := e.Details.([]api.FieldError)
	if !ok || len(fields) == 0 {
		t.Fatalf("details are %#v", e.Details)
	}
	for _, f := range fields {
		if f.Path == "" || f.Message == "" {
			t.Fatalf("details are %+v", fields)
		}
	}
}

// Every method of the table has samples, so that a new one cannot be forgotten.
func TestParamsOfEveryMethod(t *testing.T) {
	samples, used := sampleParams(), make(map[string]bool)
	for _, m := range methods() {
		s, ok := samples[m.name]
		if !ok {
			t.Errorf("%s has no sample of its params; add one", m.name)
		}
		for _, good := range s.good {
			if _, err := m.decode(jsontext.Value(good)); err != nil {
				t.Errorf("%s %s: %v", m.name, good, err)
			}
		}
		for _, bad := range s.bad {
			p, err := m.decode(jsontext.Value(bad))
			if err == nil {
				t.Errorf("%s %s: accepted as %+v", m.name, bad, p)
				continue
			}
			refusedParams(t, err)
		}
		used[m.name] = true
	}
	for name := range samples {
		if !used[name] {
			t.Errorf("there is no method %s", name)
		}
	}
}

// FuzzParams feeds every method's decoder through the method table. What is
// accepted can be written and is accepted again.
func FuzzParams(f *testing.F) {
	table := methods()
	for i, m := range table {
		s := sampleParams()[m.name]
		for _, params := range append(s.good, s.bad...) {
			f.Add(uint8(i), []byte(params))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		m := table[int(which)%len(table)]
		p, err := m.decode(raw)
		if err != nil {
			refusedParams(t, err)
			return
		}
		if got := reflect.TypeOf(p).Elem(); got != m.params {
			t.Fatalf("%s decodes a %s, its schema is of %s", m.name, got, m.params)
		}
		if len(raw) > 0 && !jsontext.Value(raw).IsValid() {
			return // no request that holds it is accepted
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%s: cannot write what was accepted: %v", m.name, err)
		}
		if _, err := m.decode(written); err != nil {
			t.Fatalf("%s takes %q and not %s: %v", m.name, raw, written, err)
		}
	})
}

// oneLine checks that a frame is exactly one line of JSON, and reads it.
func oneLine(t *testing.T, frame []byte) (in Incoming) {
	t.Helper()
	if n := bytes.IndexByte(frame, '\n'); n != len(frame)-1 {
		t.Fatalf("%q has its first newline at %d, want it at its end", frame, n)
	}
	if !jsontext.Value(frame).IsValid() {
		t.Fatalf("%q is not JSON", frame)
	}
	if err := json.Unmarshal(frame, &in); err != nil {
		t.Fatalf("%q: %v", frame, err)
	}
	return in
}

// FuzzFrames writes hostile strings: a frame is one line of JSON and says what
// it was given, with what is not UTF-8 replaced.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{"", "r1", "a\nb\r\n", `"},{"x":"`, "\x00\x1f\x7f", "\xff\xfe", "\u2028\u2029", "</script>", `\`, "\ud7ff\ufffd"} {
		f.Add(seed, "text", int64(1707000000000), []byte(`{"a":[1,"x"]}`), false)
		f.Add("r1", seed, int64(-1), []byte("null"), true)
	}
	f.Fuzz(func(t *testing.T, id, text string, now int64, value []byte, done bool) {
		if now == math.MinInt64 {
			now++
		}
		wantID, wantText := strings.ToValidUTF8(id, "\ufffd"), strings.ToValidUTF8(text, "\ufffd")
		replaced := func(got, want, from string) bool {
			// The library replaces each stray byte, the standard one each run.
			return got == want || !utf8.ValidString(from) && utf8.ValidString(got)
		}

		in := oneLine(t, appendResponse(nil, "s1", now, id, nil, &api.Error{Code: api.Forbidden, Message: text, Details: map[string]string{text: text}}))
		if in.Type != typeResponse || in.Timestamp != now || !replaced(in.RequestID, wantID, id) || in.Success ||
			in.Error == nil || in.Error.Code != api.Forbidden || !replaced(in.Error.Message, wantText, text) {
			t.Fatalf("the failure is %+v", in)
		}
		in = oneLine(t, appendResponse(nil, "s1", now, id, map[string]string{"x": text}, nil))
		if utf8.ValidString(text) != in.Success || in.Success == (in.Error != nil) {
			t.Fatalf("the response is %+v", in)
		}
		// What results, payloads and chunks are made of is JSON on one line:
		// it was encoded by the house or came in on a line.
		if !jsontext.Value(value).IsValid() || bytes.ContainsAny(value, "\n") {
			return
		}
		in = oneLine(t, appendEvent(nil, "s1", now, text, value))
		if in.Type != typeEvent || !replaced(in.Event, wantText, text) || !bytes.Equal(bytes.TrimSpace(value), bytes.TrimSpace(in.Payload)) {
			t.Fatalf("the event is %+v", in)
		}
		in = oneLine(t, appendChunk(nil, "s1", now, id, value, done))
		if in.Type != typeStream || !replaced(in.RequestID, wantID, id) || in.Done != done {
			t.Fatalf("the chunk is %+v", in)
		}
	})
}

// A result that cannot be encoded is the kernel's fault, and is said so.
func TestResponseThatCannotBeEncoded(t *testing.T) {
	in := oneLine(t, appendResponse(nil, "s1", 1, "r1", map[string]any{"x": func() {}}, nil))
	if in.Success || in.Error == nil || in.Error.Code != api.InternalError {
		t.Errorf("got %+v", in)
	}
	in = oneLine(t, appendResponse(nil, "s1", 1, "r1", nil, &api.Error{Code: api.NotFound, Details: func() {}}))
	if in.Success || in.Error == nil || in.Error.Code != api.InternalError {
		t.Errorf("got %+v", in)
	}
}
