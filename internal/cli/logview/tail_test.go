package logview

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/term"
)

// On a narrow terminal, the kind and the reason are complete below the row.
func TestTailOnANarrowScreen(t *testing.T) {
	var b strings.Builder
	p := NewTail(term.Screen{Width: 80, Terminal: true}, &b, false)
	for _, line := range []string{
		`{"seq":9,"time":"2026-03-01T10:00:00Z","id":"a","actionType":"app_lifecycle","event":"registered","appId":"@tour/shell"}`,
		`{"seq":45,"time":"2026-03-01T10:00:00Z","id":"b","actionType":"agent_exchange","agentId":"agent-me-1","sessionKey":"shell:friend","side":"sender","policyResult":"deny","code":"CLASSIFICATION_VIOLATION","policyReason":"message classified restricted"}`,
		`{"seq":46,"time":"2026-03-01T10:00:00Z","id":"c","actionType":"approval","event":"approved","agentId":"agent-me-1","counterparty":{"userId":"friend"},"classification":"internal","maxRounds":3,"code":"COMMITMENT_REQUIRES_HUMAN","details":{"by":"uid:1001"}}`,
		`{"seq":47,"time":"2026-03-01T10:00:00Z","id":"d","actionType":"approval","event":"denied","agentId":"agent-me-1","counterparty":{"userId":"friend"},"details":{"by":"carol@a-company.example"}}`,
	} {
		if err := p.Print(jsontext.Value(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"TIME              SEQ  RESULT    WHAT               WHO\n", "    9            app_lifecycle registered  @tour/shell\n", "   45  deny      agent_exchange     agent-me-1 → shell:friend\n    CLASSIFICATION_VIOLATION: message classified restricted\n",
		"   46  approved  approval by uid:1001  agent-me-1 friend\n    internal 0/3: COMMITMENT_REQUIRES_HUMAN\n",
		"   47  denied    approval by carol@a-company.example\n    agent-me-1 friend\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if w := term.Width(strings.TrimRight(line, "\n")); w > 80 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
}

// The only agent is not named in each row, and lookalike characters in addresses are named.
func TestTailOfOneAgent(t *testing.T) {
	var b strings.Builder
	p := NewTail(term.Screen{Width: 80, Terminal: true}, &b, false)
	p.Only = "agent-me-1"
	for _, line := range []string{
		`{"seq":7,"time":"2026-03-01T10:00:00Z","id":"a","actionType":"agent_exchange","agentId":"agent-me-1","sessionKey":"shell:rivaⅼ","side":"sender","policyResult":"allow"}`,
		`{"seq":8,"time":"2026-03-01T10:00:00Z","id":"b","actionType":"security","event":"tool_executing","agentId":"agent-me-1"}`,
		`{"seq":9,"time":"2026-03-01T10:00:00Z","id":"c","actionType":"agent_exchange","agentId":"agent-you-1","sessionKey":"shell:Иван","side":"sender","policyResult":"allow"}`,
	} {
		if err := p.Print(jsontext.Value(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"    7  allow     agent_exchange     → shell:riva‹U+217C›\n", "tool_executing  agent-me-1\n", "    9  allow     agent_exchange     agent-you-1 → shell:Иван\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
