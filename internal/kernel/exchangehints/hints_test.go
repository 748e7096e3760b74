package exchangehints

import (
	"bytes"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ raw, wrong string }{
		{raw: ``}, {raw: `null`}, {raw: `{"id":"case-1","new":true,"somethingElse":1}`},
		{raw: `[]`, wrong: "not an object"},
		{raw: `{"maxRounds":"3"}`, wrong: "has the wrong type"},
		{raw: `{"maxRounds":-1}`, wrong: "maxRounds"},
		{raw: `{"type":"gossip"}`, wrong: "type"},
		{raw: `{"classification":"secret"}`, wrong: "classification"},
		{raw: `{"messageType":"human"}`, wrong: "messageType"},
		{raw: `{"replyPolicy":"never"}`, wrong: "replyPolicy"},
		{raw: `{"id":"case-1` + "\u200b" + `"}`, wrong: "id"},
		{raw: `{"id":"` + strings.Repeat("x", maxExchangeID+1) + `"}`, wrong: "id"},
		{raw: `{"data":[{"classification":"none"}]}`, wrong: "data[0].classification"},
	} {
		_, err := Parse([]byte(test.raw))
		switch {
		case test.wrong == "" && err != nil:
			t.Errorf("%s: %v", test.raw, err)
		case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
			t.Errorf("%s: the error is %v, want one about %s", test.raw, err, test.wrong)
		}
	}
}

// Interceptors may tighten the caller's hints, and nothing else.
func TestAfter(t *testing.T) {
	of := func(raw string) Hints {
		h, err := Parse([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, test := range []struct{ was, left, wrong string }{
		{`{"id":"a"}`, `{}`, ""},
		{`{"id":"a"}`, `{"id":"b"}`, "changed the exchange"},
		{`{"maxRounds":3}`, `{"maxRounds":2}`, ""},
		{`{"maxRounds":3}`, `{"maxRounds":4}`, "raised the round limit"},
		{`{"classification":"internal"}`, `{"classification":"public"}`, "lowered the message's level"},
		{`{"classification":"internal"}`, `{"classification":"restricted"}`, ""},
		{`{"replyPolicy":"human-only"}`, `{"replyPolicy":"agent-ok"}`, "loosened the reply policy"},
		{`{"messageType":"agent-assisted"}`, `{}`, ""},
		{`{"askPerson":true}`, `{"askPerson":false}`, ""},
		{`{}`, `{"messageType":"agent-assisted"}`, "changed who wrote"},
	} {
		h := of(test.was)
		if wrong := h.After(of(test.left), ocip.Public); wrong != test.wrong && (test.wrong == "" || !strings.HasPrefix(wrong, test.wrong)) {
			t.Errorf("%s left as %s: %q, want %q", test.was, test.left, wrong, test.wrong)
		}
		if was := of(test.was); was.AskPerson && !h.AskPerson {
			t.Errorf("%s left as %s asks nobody", test.was, test.left)
		}
	}
}

// Parsed hints, encoded as a caller would, parse to the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"case-1","type":"meeting_scheduling","maxRounds":2,"classification":"internal","data":[{"source":"crm","fields":["name"],"classification":"public","description":"d"}]}`))
	f.Add([]byte(`{"replyPolicy":"human-only","summary":"when","messageType":"agent-assisted","new":true,"conversationId":"c"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := Parse(raw)
		if err != nil {
			return
		}
		again, err := Parse(h.Object())
		if err != nil || !bytes.Equal(again.Object(), h.Object()) {
			t.Errorf("%s is read as %+v, and what it is written as, %s, as %+v, %v", raw, h, h.Object(), again, err)
		}
	})
}
