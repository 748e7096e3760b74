package jsonline

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// everything has each kind of member, always there and only where it says
// something.
type everything struct {
	Text      string `json:"text"`
	Int       int    `json:"int"`
	Bool      bool   `json:"bool"`
	TextIfAny string `json:"textIfAny,omitzero"`
	IntIfAny  int64  `json:"intIfAny,omitzero"`
	True      bool   `json:"true,omitzero"`
}

func (e everything) write(b []byte) []byte {
	b = append(b, '{')
	b = TextIfAny(b, "first", "") // what is left out leaves no comma
	b = Text(b, "text", e.Text)
	b = Int(b, "int", e.Int)
	b = Bool(b, "bool", e.Bool)
	b = TextIfAny(b, "textIfAny", e.TextIfAny)
	b = IntIfAny(b, "intIfAny", e.IntIfAny)
	b = BoolIfTrue(b, "true", e.True)
	return append(b, '}')
}

func FuzzAsTheLibrary(f *testing.F) {
	f.Add("", 0, false, "", int64(0), false)
	f.Add("a \"quote\", \\ and </script>", -1, true, "\u2028\x00\t", int64(1)<<62, true)
	f.Add("not UTF-8: \xff\xfe", 7, true, "\xc3", int64(-5), false)
	f.Fuzz(func(t *testing.T, text string, n int, yes bool, some string, m int64, also bool) {
		e := everything{text, n, yes, some, m, also}
		want, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.write([]byte("before")); string(got) != "before"+string(want) {
			t.Errorf("got  %s\nwant before%s", got, want)
		}
	})
}
