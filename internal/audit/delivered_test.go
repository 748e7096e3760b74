package audit

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// The same message has one form however its JSON was written, and another message has another form.
func TestDeliveredForm(t *testing.T) {
	form := func(target, content, metadata string) string {
		t.Helper()
		b, err := DeliveredForm(nil, target, content, jsontext.Value(metadata))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	want := `{"content":"ü\n\"x\"","metadata":{"a":1,"b":{"c":"€","d":[true,null]}},"target":"#x"}`
	for _, metadata := range []string{
		`{"a":1,"b":{"c":"€","d":[true,null]}}`, "{ \"b\" : {\"d\":[ true, null ],\"c\":\"\\u20ac\"},\t\"a\" : 1.0e0 }",
	} {
		if got := form("#x", "ü\n\"x\"", metadata); got != want {
			t.Errorf("got %s", got)
		}
	}
	if form("#x", "c", "") != form("#x", "c", " {}") {
		t.Error("no metadata are not empty metadata")
	}
	seen := map[string]bool{}
	for _, m := range [][3]string{{"a", "b", "{}"}, {"b", "a", "{}"}, {"", "ab", "{}"}, {"a", "b", `{"target":"a"}`}, {"a", "b", `{"":""}`}, {`a","x":"`, "b", "{}"}} {
		seen[form(m[0], m[1], m[2])] = true
	}
	if len(seen) != 6 {
		t.Errorf("two messages have one form: %v", seen)
	}
	for _, bad := range []string{"[]", "1", `"x"`, "null", `{"a":1,"a":2}`, `{"a":}`, `{}{}`, "{", "\xff", `{"a":"\xff"}`} {
		if got, err := DeliveredForm(nil, "t", "c", jsontext.Value(bad)); err == nil {
			t.Errorf("%q was taken as %s", bad, got)
		}
	}
}

func FuzzDeliveredForm(f *testing.F) {
	f.Add("#x", "hello", `{"a":[1,{"b":"\u20ac"}]}`)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, target, content, metadata string) {
		once, err := DeliveredForm(nil, target, content, jsontext.Value(metadata))
		if err != nil {
			return
		}
		again := jsontext.Value(bytes.Clone(once))
		if !again.IsValid() {
			t.Fatalf("%q is no JSON", once)
		}
		if err := again.Canonicalize(); err != nil || !bytes.Equal(again, once) {
			t.Fatalf("%q is not canonical: %q, %v", once, again, err)
		}
	})
}

// The output without the library equals the library's, and the usual parts of messages do not need
// the library.
func FuzzCanonical(f *testing.F) {
	for _, text := range []string{
		`{"b":1,"a":{"d":[true,null,false,"x\n"],"c":-12},"aa":0,"":"é"}`, " { \"z\" : [ ] , \"a\" : { } } ", `{"a":1,"a":2}`, `{"ab":1,"a":2,"a!":3}`, `-0`, `01`, `1.0`, `1e3`,
		`123456789012345`, `1234567890123456`, `"\u00e9"`, `"\/"`, `{"\"":1,"!":2}`, `{"\u0061":1}`, `{"é":1,"a":2}`, `[1,]`, `{,}`, `{"a"}`, "tru", `"\ud800"`, "\"\xff\"", `[[[[[[[[1]]]]]]]]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := jsontext.Value(text)
		failure := want.Canonicalize()
		got, err := appendCanonical([]byte("before"), jsontext.Value(text))
		if (err == nil) != (failure == nil) {
			t.Fatalf("%q: %v, and the library: %v", text, err, failure)
		}
		if err == nil && string(got) != "before"+string(want) {
			t.Fatalf("%q became %s, want before%s", text, got, want)
		}
	})
}

const envelope = `{"aiDisclosure":"[AI-generated]","channelId":"chat","dispatchId":"0197b1d0-2a51-7a2e-8c5e-0c2d7c4a9d11","exchange":{"id":"3f0f","type":"information_query","outcome":"in_progress","dataShared":[],"dataWithheld":[]},` +
	`"ocip":{"version":"1.0","sourceAgent":{"instanceId":"a","userId":"u","tenantId":"t"},"messageType":"agent-generated","exchangeRound":1,"maxRounds":3,"classification":"internal","replyPolicy":"agent-ok"},"ocipChain":{"id":"c","hops":1}}`

func TestUsualCanonical(t *testing.T) {
	c := canonical{from: []byte(envelope)}
	if end := c.value(0, 0); end != len(envelope) {
		t.Errorf("a usual envelope goes by the library, from %d on", end)
	}
}

func BenchmarkDeliveredForm(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DeliveredForm(nil, "chat:p1", "The build of milestone 2 is on track.", jsontext.Value(envelope)); err != nil {
			b.Fatal(err)
		}
	}
}
