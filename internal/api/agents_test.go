package api

import (
	"github.com/openclawos/ocipd/internal/audit/gate"
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
		{"an agent's id", AgentSendParams{To: "bob", Text: gate.NewText("hi")}, ""},
		{"a session", AgentSendParams{To: "telegram:dave", Text: gate.NewText("hi")}, ""},
		{"to nobody", AgentSendParams{Text: gate.NewText("hi")}, "to"},
		{"nothing", AgentSendParams{To: "bob"}, "text"},
		{"a type", AgentSendParams{To: "bob", Text: gate.NewText("hi"), ExchangeType: "chat"}, "exchange_type"},
		{"a level", AgentSendParams{To: "bob", Text: gate.NewText("hi"), Classification: "top"}, "classification"},
		{"a policy", AgentSendParams{To: "bob", Text: gate.NewText("hi"), ReplyPolicy: "any"}, "reply_policy"},
		{"an attempt alone", AgentSendParams{To: "bob", Text: gate.NewText("hi"), AttemptID: "att_" + someID}, "task_id"},
		{"no task", AgentSendParams{To: "bob", Text: gate.NewText("hi"), TaskID: "tsk_1"}, "task_id"},
	} {
		found := c.p.Validate()
		if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(f FieldError) bool { return f.Path == c.want }) {
			t.Errorf("%s: %v", c.name, found)
		}
	}
	p := AgentSendParams{To: "bob", Text: gate.NewText("hi"), ExchangeID: "x", NewExchange: true, TaskID: "tsk_" + someID}
	if got, want := string(p.Dispatch().Metadata.Append(nil)), `{"exchange":{"id":"x","new":true},"task":{"id":"tsk_`+someID+`"}}`; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if key := p.OrderKey(); key != "agent:bob:main" {
		t.Errorf("session %s", key)
	}
}

func TestAgentReadParams(t *testing.T) {
	for cursor, good := range map[string]bool{
		"": true, "17." + someID: true, "AbZ-_09": true, "a b": false, "\x00": false, "é": false, strings.Repeat("a", 2000): true, strings.Repeat("a", 2001): false,
	} {
		p := AgentReadParams{Cursor: cursor}
		if found := p.Validate(); (len(found) == 0) != good {
			t.Errorf("%q: %v", cursor, found)
		}
	}
}
