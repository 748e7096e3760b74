package logview

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
)

// TestStatsAreDrawn draws numbers of many sizes on screens of many widths.
func TestStatsAreDrawn(t *testing.T) {
	start := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	tally := audit.NewTally(start, start.Add(1000*time.Hour), time.Hour)
	for i := range 1000 {
		at := start.Add(time.Duration(i) * time.Hour)
		tally.AddAt(at, audit.ResultAllow, 1000*i+1)
		if i >= 500 {
			tally.AddAt(at, audit.ResultDeny, 3)
		}
		tally.AddFor(audit.Subject{Agent: fmt.Sprintf("agent-%03d-\x1b[31m李", i%30), Rule: "ocip.agent_exchange", Result: audit.ResultAllow}, 1000*i+1)
	}
	stats := tally.Stats()
	for _, width := range []int{40, 60, 80, 81, 132, 500, 1200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			var out bytes.Buffer
			if err := Stats(&out, term.Screen{Width: width}, &stats); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			for _, line := range lines {
				if w := term.Width(line); w > width && w > 72 || strings.Contains(line, "\x1b") {
					t.Errorf("%d cells: %q", w, line)
				}
			}
			allow, deny := lines[3], lines[4]
			if !strings.HasPrefix(allow, "allow   ▁") || !strings.Contains(allow, "█") || !strings.Contains(allow, "  499,501,000") {
				t.Errorf("%q", allow)
			}
			bars := []rune(strings.TrimPrefix(deny, "deny    "))
			half := 0
			for half < len(bars) && bars[half] == ' ' {
				half++
			}
			drawn := strings.Count(allow, "▁") + strings.Count(allow, "▂") + strings.Count(allow, "▃") + strings.Count(allow, "▄") +
				strings.Count(allow, "▅") + strings.Count(allow, "▆") + strings.Count(allow, "▇") + strings.Count(allow, "█")
			if half < drawn/2-1 || half > drawn/2+1 || drawn > 1000 || drawn < min(1000, width-45) && drawn < 8 {
				t.Errorf("%d bars, of which %d have no refusals: %q", drawn, half, deny)
			}
			if !strings.Contains(out.String(), "and 10 more\n") || strings.Contains(out.String(), "hold  ") || strings.Contains(out.String(), "CODE") {
				t.Errorf("%s", out.String())
			}
		})
	}
}

// TestReasonsAreReadable shows records whose reasons do not fit beside them: each is
// complete below its record.
func TestReasonsAreReadable(t *testing.T) {
	reason := strings.Repeat("a commitment that only a person can make ", 6) + "endsHere"
	var lines [][]byte
	var head audit.Head
	for _, r := range []*audit.Record{
		{ID: "1", ActionType: audit.ActionExchange, AgentID: "agent-alice-1", PolicyResult: audit.ResultDeny, Code: "POLICY_DENIED", PolicyReason: reason},
		{ID: "2", ActionType: audit.ActionExchange, AgentID: "agent-alice-1", PolicyResult: audit.ResultAllow},
	} {
		body, err := audit.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		var line []byte
		line, head = head.Seal(nil, time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC), body)
		lines = append(lines, line)
	}
	for _, width := range []int{80, 120} {
		var out bytes.Buffer
		p := Pages{W: &out, Screen: term.Screen{Terminal: true, Width: width}}
		for range 2 { // pages
			if err := p.Print(lines); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(out.String(), "TIME"); n != 1 {
			t.Errorf("%d titles", n)
		}
		rows := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		whole := ""
		for _, row := range rows {
			if term.Width(row) > width {
				t.Errorf("%d cells: %q", term.Width(row), row)
			}
			if rest, ok := strings.CutPrefix(row, "    "); ok {
				whole += rest + " "
			}
		}
		if want := "POLICY_DENIED: " + reason + " "; whole != want+want {
			t.Errorf("at %d columns the reasons read %q", width, whole)
		}
	}
	var out bytes.Buffer
	p := Pages{W: &out, Screen: term.Screen{Terminal: true, Width: 500}}
	if err := p.Print(lines); err != nil || strings.Count(out.String(), "\n") != 3 || !strings.Contains(out.String(), "POLICY_DENIED: "+reason) {
		t.Errorf("with room beside the record: %s %v", out.String(), err)
	}
}
