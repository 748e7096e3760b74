package wire

import (
	"bytes"
	"errors"
	"fmt"
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
			p, err := DecoderOf[struct {
				Content string `json:"content"`
			}]()(r.Params, true)
			if err != nil {
				t.Fatal(err)
			}
			if p.Content != tc.want || r.Mended() != tc.halves {
				t.Errorf("got %q with %d halves, want %q with %d", p.Content, r.Mended(), tc.want, tc.halves)
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
		err = r.CheckNumbers()
		if tc.path == "" {
			if err != nil {
				t.Errorf("%.80s: %v", tc.params, err)
			}
			continue
		}
		e := api.AsError(err)
		if details, ok := e.Details.([]api.FieldError); e.Code != api.InvalidParams || !ok || details[0].Path != tc.path {
			t.Errorf("%.80s: got %v of %v, want %q named", tc.params, err, e.Details, tc.path)
		}
	}
}

// What clients write is read in one pass, and whatever is any harder is not.
func TestUsualRequests(t *testing.T) {
	const head = `{"id":"r1","type":"request","timestamp":1707000000000,`
	names := ""
	for i := range usualNames {
		names += fmt.Sprintf(`"n%d":0,`, i)
	}
	for _, tc := range []struct {
		line string
		ok   bool
	}{
		{head + `"method":"app.heartbeat","params":{"status":{"queue":0,"state":"idle"}},"token":"t"}`, true},
		{" { \"method\" : \"a\" ,\t\"type\":\"request\" , \"id\" : \"x\" }\r\n", true},
		{head + `"method":"a","params":{"text":"Grüße \\ \"\n\/","n":[-0.5e+3,0,12,[],{},true,false,null],"o":{"text":{"text":1}}}}`, true},
		{head + `"method":"a","params":{` + names + `"o":1}}`, false},
		{head + `"method":"a","params":{"x":1,"x":1}}`, false},
		{head + `"method":"a","params":{"x":"\u00e9"}}`, false},
		{head + `"method":"a","params":{"\n":1}}`, false},
		{head + `"method":"a","params":{"x":1,}}`, false},
		{head + `"method":"a","params":{,"x":1}}`, false},
		{head + `"method":"a","params":{"x":[1,]}}`, false},
		{head + `"method":"a","params":{"x":[1 2]}}`, false},
		{head + `"method":"a","params":{"x":1 "y":2}}`, false},
		{head + `"method":"a","params":{"x":01}}`, false},
		{head + `"method":"a","params":{"x":-}}`, false},
		{head + `"method":"a","params":{"x":1.}}`, false},
		{head + `"method":"a","params":{"x":1e}}`, false},
		{head + `"method":"a","params":{"x":tru}}`, false},
		{head + "\"method\":\"a\",\"params\":{\"x\":\"\xff\"}}", false},
		{head + "\"method\":\"a\",\"params\":{\"x\":\"\t\"}}", false},
		{head + `"method":"a","params":{"x":` + nested(MaxDepth-1) + `}}`, false},
		{head + `"method":"a","params":{"x":` + nested(MaxDepth-2) + `}}`, true},
		{head + `"method":"a","params":[]}`, false},
		{head + `"method":"a","other":1}`, false},
		{head + `"method":"a","method":"a"}`, false},
		{head + `"method":"a"} x`, false},
		{head + `"method":"a"`, false},
		{`{"timestamp":1e3,"id":"r1"}`, false},
		{`{"timestamp":1234567890123456,"id":"r1"}`, false},
		{`{}`, false},
	} {
		read, ok := parseUsual([]byte(tc.line))
		if ok != tc.ok {
			t.Errorf("%s: read %t, want %t", tc.line, ok, tc.ok)
		}
		if want, err := parseAny([]byte(tc.line)); ok && (err != nil || !reflect.DeepEqual(read, want)) {
			t.Errorf("%s: read as %+v, by the library as %+v, %v", tc.line, read, want, err)
		}
	}
}

func BenchmarkParseRequest(b *testing.B) {
	line := []byte(`{"id":"1","type":"request","timestamp":1707000000000,"method":"message.dispatch","params":{"sessionKey":"chat:p0-0","content":"` + strings.Repeat("The build is on track. ", 17) + `","metadata":{"exchange":{"type":"information_query","new":true}}},"token":"0123456789abcdef0123456789abcdef"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRequest(line); err != nil {
			b.Fatal(err)
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
		if read, ok := parseUsual(line); ok {
			if want, err := parseAny(line); err != nil || !reflect.DeepEqual(read, want) {
				t.Fatalf("%q is read as %+v, by the library as %+v: %v", line, read, want, err)
			}
		}
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

		in := oneLine(t, AppendResponse(nil, "s1", now, id, nil, &api.Error{Code: api.Forbidden, Message: text, Details: map[string]string{text: text}}))
		if in.Type != TypeResponse || in.Timestamp != now || !replaced(in.RequestID, wantID, id) || in.Success ||
			in.Error == nil || in.Error.Code != api.Forbidden || !replaced(in.Error.Message, wantText, text) {
			t.Fatalf("the failure is %+v", in)
		}
		in = oneLine(t, AppendResponse(nil, "s1", now, id, map[string]string{"x": text}, nil))
		if utf8.ValidString(text) != in.Success || in.Success == (in.Error != nil) {
			t.Fatalf("the response is %+v", in)
		}
		// What results, payloads and chunks are made of is JSON on one line:
		// it was encoded by the daemon or came in on a line.
		if !jsontext.Value(value).IsValid() || bytes.ContainsAny(value, "\n") {
			return
		}
		in = oneLine(t, AppendEvent(nil, "s1", now, text, value))
		if in.Type != TypeEvent || !replaced(in.Event, wantText, text) || !bytes.Equal(bytes.TrimSpace(value), bytes.TrimSpace(in.Payload)) {
			t.Fatalf("the event is %+v", in)
		}
		if params := string(value); strings.HasPrefix(params, "{") && utf8.ValidString(text) && len(text) > 0 && utf8.ValidString(params) {
			line := AppendRequest(nil, 7, now, text, value, []byte(`"token"`), text, text)
			if r, err := ParseRequest(line[:len(line)-1]); err == nil && (r.ID != "7" || r.Method != text || r.Token != "token" || r.Signature != text || r.Behalf != text || r.Timestamp != float64(now)) {
				t.Fatalf("the request is %+v", r)
			}
		}
		in = oneLine(t, AppendChunk(nil, "s1", now, id, value, done))
		if in.Type != TypeStream || !replaced(in.RequestID, wantID, id) || in.Done != done {
			t.Fatalf("the chunk is %+v", in)
		}
	})
}

// A result that cannot be encoded is the kernel's fault, and is said so.
func TestResponseThatCannotBeEncoded(t *testing.T) {
	in := oneLine(t, AppendResponse(nil, "s1", 1, "r1", map[string]any{"x": func() {}}, nil))
	if in.Success || in.Error == nil || in.Error.Code != api.InternalError {
		t.Errorf("got %+v", in)
	}
	in = oneLine(t, AppendResponse(nil, "s1", 1, "r1", nil, &api.Error{Code: api.NotFound, Details: func() {}}))
	if in.Success || in.Error == nil || in.Error.Code != api.InternalError {
		t.Errorf("got %+v", in)
	}
}
