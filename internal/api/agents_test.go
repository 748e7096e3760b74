package api

import (
	"testing"

	"github.com/openclawos/ocipd/internal/audit/gate"
)

const someID = "01890000-0000-7000-8000-000000000000"

func TestAgentSendParams(t *testing.T) {
	p := AgentSendParams{To: "bob", Text: gate.NewText("hi"), ExchangeID: "x", NewExchange: true, TaskID: "tsk_" + someID}
	if got, want := string(p.Dispatch().Metadata.Append(nil)), `{"exchange":{"id":"x","new":true},"task":{"id":"tsk_`+someID+`"}}`; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if key := p.OrderKey(); key != "agent:bob:main" {
		t.Errorf("session %s", key)
	}
}
