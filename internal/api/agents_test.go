package api

import (
	"slices"
	"strings"
	"testing"
)

const someID = "01890000-0000-7000-8000-000000000000"

func TestAgentSendParams(t *testing.T) {
	for _, c := range []struct {
		name string
		p    AgentSendParams
		want string
	}{
		{"an agent's id", AgentSendParams{To: "bob", Text: "hi"}, ""},
		{"a session", AgentSendParams{To: "telegram:dave", Text: "hi"}, ""},
		{"to nobody", AgentSendParams{Text: "hi"}, "to"},
		{"nothing", AgentSendParams{To: "bob"}, "text"},
		{"a type", AgentSendParams{To: "bob", Text: "hi", ExchangeType: "chat"}, "exchange_type"},
		{"a level", AgentSendParams{To: "bob", Text: "hi", Classification: "top"}, "classification"},
		{"a policy", AgentSendParams{To: "bob", Text: "hi", ReplyPolicy: "any"}, "reply_policy"},
		{"an attempt alone", AgentSendParams{To: "bob", Text: "hi", AttemptID: "att_" + someID}, "task_id"},
		{"no task", AgentSendParams{To: "bob", Text: "hi", TaskID: "tsk_1"}, "task_id"},
	} {
		found := c.p.Validate()
		if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(f FieldError) bool { return f.Path == c.want }) {
			t.Errorf("%s: %v", c.name, found)
		}
	}
	p := AgentSendParams{To: "bob", Text: "hi", ExchangeID: "x", NewExchange: true, TaskID: "tsk_" + someID}
	if got, want := string(p.Dispatch().Metadata.Append(nil)), `{"exchange":{"id":"x","new":true},"task":{"id":"tsk_`+someID+`"}}`; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if key := p.OrderKey(); key != "agent:bob:main" {
		t.Errorf("session %s", key)
	}
}

// A cursor is read as it was written, and nothing else is one.
func FuzzParseInboxCursor(f *testing.F) {
	f.Add(someID)
	f.Add("17." + someID + "-" + someID)
	f.Add("017." + someID)
	f.Add(someID + "-" + someID)
	f.Add("")
	f.Add(strings.Repeat(someID+"-", 40) + someID)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseInboxCursor(text)
		if err == nil && (c.Text() != text && c.Text() != "0."+text || len(c.KeptBack) > maxKeptBack) {
			t.Errorf("%q is read as %+v", text, c)
		}
	})
}
