package fold

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
)

// roundLines returns lines of messages, and lines that look like them.
func roundLines(t testing.TB) (lines [][]byte) {
	t.Helper()
	records := []*audit.Record{
		{Round: 1, Opens: 1_800_000_000_000},
		{Round: 2, PolicyReason: `a "text" with \ and {"rows":[`},
		{Round: 2, Details: map[string]any{"list": []any{map[string]any{"exchangeId": "other", "event": "x"}, "]}"}}},
		{Round: 2, Event: "held"},
		{Round: 2, UsesGrant: "grant"},
		{Round: 2, Rows: []audit.RowChange{{Table: Exchanges.Name()}}},
		{Round: 2, AgentID: `an\agent`},
	}
	var head audit.Head
	for _, r := range records {
		r.ID, r.ActionType, r.PolicyResult, r.ExchangeID, r.ConversationID = "id", audit.ActionExchange, audit.ResultAllow, "exchange", "conversation"
		if r.AgentID == "" {
			r.AgentID = "agent"
		}
		r.MaxRounds, r.ExchangeType, r.Outcome = 3, "information_query", "in_progress"
		body, err := audit.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		var line []byte
		line, head = head.Seal(nil, time.Unix(1_700_000_000, 0), body)
		lines = append(lines, line)
	}
	return lines
}

// fromJSON reads a line with the JSON library alone.
func fromJSON(text []byte) (Said, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Said{}, err
	}
	return l.said()
}

// Most lines are read without the JSON library.
func TestRoundsAreReadDirectly(t *testing.T) {
	for i, want := range []bool{true, true, true, false, false, false, false} {
		line := roundLines(t)[i]
		if _, ok := readRound(line); ok != want {
			t.Errorf("read directly: %t, want %t: %s", ok, want, line)
		}
	}
}

// A line that is read without the JSON library says the same as with it.
func FuzzReadRound(f *testing.F) {
	for _, line := range roundLines(f) {
		f.Add(line)
	}
	f.Add([]byte(`{"seq":1,"seq":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := readRound(text)
		want, err := fromJSON(text)
		if ok && err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("read directly %+v, want %+v", got, want)
		}
	})
}
