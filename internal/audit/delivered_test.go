package audit

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// The same message has one form however its JSON was written, and another message
// another one.
func TestDeliveredForm(t *testing.T) {
	form := func(target, content, metadata string) string {
		t.Helper()
		b, err := DeliveredForm(target, content, jsontext.Value(metadata))
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
		if got, err := DeliveredForm("t", "c", jsontext.Value(bad)); err == nil {
			t.Errorf("%q was taken as %s", bad, got)
		}
	}
}

func FuzzDeliveredForm(f *testing.F) {
	f.Add("#x", "hello", `{"a":[1,{"b":"\u20ac"}]}`)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, target, content, metadata string) {
		once, err := DeliveredForm(target, content, jsontext.Value(metadata))
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
