package exchangecmd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

// kept is a daemon's exchanges, in its order.
type kept []Side

func (k kept) add(id string, agents ...string) kept {
	for _, agent := range agents {
		k = append(k, Side{Exchange: api.Exchange{ExchangeID: id, Agent: agent}})
	}
	return k
}

// ask answers as the daemon does.
func (k kept) ask(_ context.Context, method string, params any) ([]Side, error) {
	slices.SortStableFunc(k, func(a, b Side) int { return strings.Compare(b.ExchangeID, a.ExchangeID) })
	var found []Side
	switch p := params.(type) {
	case api.ExchangeParams:
		for _, x := range k {
			if x.ExchangeID == p.ExchangeID {
				found = append(found, x)
			}
		}
		if len(found) == 0 {
			return nil, api.Errorf(api.NotFound, "there is no exchange %q", p.ExchangeID)
		}
	case api.ExchangeListParams:
		if wrong := members.Check(&p); len(wrong) > 0 {
			return nil, api.Invalid(wrong)
		}
		for _, x := range k {
			if (p.Before == "" || x.ExchangeID < p.Before) && len(found) < p.Page() {
				found = append(found, x)
			}
		}
	default:
		return nil, fmt.Errorf("%s with %T", method, params)
	}
	return found, nil
}

// TestPages has the sides of one exchange before and after the end of a page, and more
// sides of one than fit on a page.
func TestPages(t *testing.T) {
	many := make([]string, api.DefaultPage+50)
	for i := range many {
		many[i] = fmt.Sprintf("agent-%03d", i)
	}
	pairs := kept{}.add("y", "alice")
	for i := range api.MaxPage {
		pairs = pairs.add(fmt.Sprintf("x%04d", api.MaxPage-i), "alice", "bob")
	}
	for name, k := range map[string]kept{
		"none":            nil,
		"one":             kept{}.add("x1", "alice"),
		"a full page":     kept{}.add("x1", many[:api.DefaultPage]...),
		"over a page":     kept{}.add("x3", many...).add("x2", "alice", "bob").add("x1", many[:60]...),
		"split at an end": kept{}.add("x3", many[:api.DefaultPage-1]...).add("x2", "alice", "bob").add("x1", "alice"),
		"many pages":      pairs,
	} {
		got, more, err := Pages(t.Context(), k.ask, api.ExchangeListParams{}, 0)
		if err != nil || more || !slices.EqualFunc(got, k, sameSide) {
			t.Errorf("%s: got %d sides of %d, more %t, %v", name, len(got), len(k), more, err)
		}
		for _, limit := range []int{1, api.DefaultPage - 1, api.DefaultPage, api.DefaultPage + 1, max(1, len(k)), len(k) + 1} {
			got, more, err := Pages(t.Context(), k.ask, api.ExchangeListParams{}, limit)
			if want := min(limit, len(k)); err != nil || more != (limit < len(k)) || !slices.EqualFunc(got, k[:want], sameSide) {
				t.Errorf("%s: with limit %d got %d sides of %d, more %t, %v", name, limit, len(got), len(k), more, err)
			}
		}
	}
	if _, _, err := Pages(t.Context(), func(context.Context, string, any) ([]Side, error) { return nil, context.Canceled }, api.ExchangeListParams{}, 0); err == nil {
		t.Error("a failure is no failure")
	}
}

func sameSide(a, b Side) bool { return a.ExchangeID == b.ExchangeID && a.Agent == b.Agent }

func TestFind(t *testing.T) {
	k := kept{}.add("01a1fd5b-310b-7864", "alice", "bob").add("01a1fd5b-310b-9000", "alice").add("01a1fd5b-3151-75e6", "alice").
		add("01a1fd5b-3151…", "mallory").add("short", "alice").add("naïve-🙂-exchange", "alice")
	for name, want := range map[string]string{
		"01a1fd5b-310b-7864":  "01a1fd5b-310b-7864",
		"01a1fd5b-310b-7864…": "01a1fd5b-310b-7864",
		"01a1fd5b-310b-9":     "01a1fd5b-310b-9000",
		"01a1fd5b-3151-7…":    "01a1fd5b-3151-75e6",
		"short":               "short",
		"naïve-🙂":             "naïve-🙂-exchange",
		"shor":                "no exchange",
		"short…":              "no exchange",
		"01a1fd5b-310b-8":     "no exchange",
		"02a1fd5b-310b":       "no exchange",
		"zzzzzzzzzzzz":        "no exchange",
		"…":                   "no exchange",
		"01a1fd5b":            "more than one",
		"01a1fd5b-310b…":      "01a1fd5b-310b-9000 and 01a1fd5b-310b-7864",
		"01a1fd5b-3151…":      "01a1fd5b-3151… and 01a1fd5b-3151-75e6",
	} {
		sides, err := find(t.Context(), k.ask, name)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %s", name, err, want)
			}
			continue
		}
		if whole, err := k.ask(t.Context(), "", api.ExchangeParams{ExchangeID: want}); err != nil || !slices.EqualFunc(sides, whole, sameSide) {
			t.Errorf("%q is %v, want %s", name, sides, want)
		}
	}
}

// opened is when the exchanges of these tests began.
var opened = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sampleSides() []Side {
	at := opened.UnixMilli()
	said := []ocip.Turn{
		{Round: 1, Sender: "agent-alice-1", Summary: "What is the status of ticket ENG-1234, and does anybody know whether the release waits for it? I hope it…"},
		{Round: 2, Sender: "agent-bob-1", Summary: "https://example.com/" + strings.Repeat("path/", 20)},
		{Round: 3, Sender: "agent-alice-1", Summary: "\x1b[2J\u202eexe.txt"},
	}
	return []Side{
		{Exchange: api.Exchange{
			ExchangeID: "01a1fd5b-310b-7864-9821-3314347342bd", ConversationID: "conversation-1", Type: "information_query",
			Agent: "agent-alice-1", Counterparty: "agent-bob-1", SessionKey: "agent:bob:main", Outcome: "escalated", Pending: true, CurrentRound: 3, MaxRounds: 3,
			Classification: "confidential", OpenedAt: at, UpdatedAt: at + 61_000, ExpiresAt: at + 86_400_000, Transcript: said,
		}},
		{Exchange: api.Exchange{
			ExchangeID: "01a1fd5b-310b-7864-9821-3314347342bd", ConversationID: "conversation-1", Type: "information_query",
			Agent: "agent-bob-1", Counterparty: "agent-alice-1", SessionKey: "agent:alice:main", Outcome: "in_progress", CurrentRound: 3, MaxRounds: 3,
			Classification: "internal", OpenedAt: at, UpdatedAt: at + 60_000, ExpiresAt: at + 86_400_000, Transcript: said,
		}},
		{Exchange: api.Exchange{
			ExchangeID: "01a1fd5b-310b-7111-8000-000000000000\u202e", Type: "meeting_scheduling", Agent: "agent-alice-1\x1b[31m", Counterparty: "agent-dave-1",
			Outcome: "denied", MaxRounds: 3, Classification: "public", UpdatedAt: at,
		}},
	}
}

func TestExchangeTable(t *testing.T) {
	now := opened.Add(2 * time.Hour)
	at := func(width int) string {
		var out bytes.Buffer
		if err := Table(sampleSides(), now).Write(&out, term.Screen{Terminal: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `EXCHANGE                                      ROUND  OUTCOME      UPDATED
    AGENT                      WITH           TYPE                LEVEL
01a1fd5b-310b-7864-9821-3314347342bd          3/3    escalated      1h58m
    agent-alice-1              agent-bob-1    information_query   confidential
01a1fd5b-310b-7864-9821-3314347342bd          3/3    in_progress    1h59m
    agent-bob-1                agent-alice-1  information_query   internal
01a1fd5b-310b-7111-8000-000000000000‹U+202E›  0/3    denied          2h0m
    agent-alice-1‹U+001B›[31m  agent-dave-1   meeting_scheduling  public
`
	if got := at(80); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = `EXCHANGE                                      AGENT                      WITH           TYPE                ROUND  OUTCOME      LEVEL         UPDATED
01a1fd5b-310b-7864-9821-3314347342bd          agent-alice-1              agent-bob-1    information_query   3/3    escalated    confidential    1h58m
01a1fd5b-310b-7864-9821-3314347342bd          agent-bob-1                agent-alice-1  information_query   3/3    in_progress  internal        1h59m
01a1fd5b-310b-7111-8000-000000000000‹U+202E›  agent-alice-1‹U+001B›[31m  agent-dave-1   meeting_scheduling  0/3    denied       public           2h0m
`
	if got := at(200); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for width := 1; width < 160; width++ {
		got := at(width)
		for line := range strings.Lines(got) {
			// Below the width of the longest ids, only they are wider.
			if w := term.Width(strings.TrimSuffix(line, "\n")); w > width && width >= 80 {
				t.Errorf("at width %d a line takes %d: %q", width, w, line)
			}
		}
		for _, id := range []string{"01a1fd5b-310b-7864-9821-3314347342bd", "01a1fd5b-310b-7111-8000-000000000000‹U+202E›", "agent-bob-1", "agent-alice-1‹U+001B›[31m", "agent-dave-1"} {
			if !strings.Contains(got, id) {
				t.Errorf("at width %d there is no %s in\n%s", width, id, got)
			}
		}
	}
	// A program gets everything.
	var piped bytes.Buffer
	if err := Table(sampleSides(), now).Write(&piped, term.Screen{Width: 80}); err != nil || piped.String() != want {
		t.Errorf("a program gets\n%s%v", piped.String(), err)
	}
	// The longest of everything, at the width of a terminal.
	long := sampleSides()
	for i := range long {
		x := &long[i]
		x.Outcome, x.Classification, x.CurrentRound, x.MaxRounds, x.UpdatedAt = "in_progress", "confidential", 10, 10, now.Add(-400*24*time.Hour).UnixMilli()
	}
	var out bytes.Buffer
	if err := Table(long, now).Write(&out, term.Screen{Terminal: true, Width: 80}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in_progress", "10/10", "400d0h", "01a1fd5b-310b-7864-9821-3314347342bd", "01a1fd5b-310b-7111-8000-0000", "agent-al"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestHintEscalated(t *testing.T) {
	sides := sampleSides()
	var out bytes.Buffer
	hintEscalated(&out, sides[1:])
	if out.String() != "" {
		t.Errorf("nothing waits, and it says %q", out.String())
	}
	hintEscalated(&out, sides)
	want := `1 exchange is escalated and waits for a person. To read and to settle it:
  ocipd exchanges show 01a1fd5b-310b-7864-9821-3314347342bd
  ocipd exchanges resolve 01a1fd5b-310b-7864-9821-3314347342bd --note TEXT
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	// Two sides of one exchange wait once, and one that can be typed goes before
	// one that cannot.
	out.Reset()
	hostile := Side{Exchange: api.Exchange{ExchangeID: "it's\x1b[2J", Outcome: "escalated", Pending: true}}
	sides[1].Outcome, sides[1].Pending = "escalated", true
	hintEscalated(&out, append([]Side{hostile}, sides...))
	want = strings.Replace(want, "1 exchange is escalated and waits for a person. To read and to settle it:", "2 exchanges are escalated and wait for a person. To read and to settle one:", 1)
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	hintEscalated(&out, []Side{hostile})
	if !strings.Contains(out.String(), "ocipd exchanges show ID\n") {
		t.Errorf("got %q", out.String())
	}
}

func TestWriteExchange(t *testing.T) {
	sides := sampleSides()[:2]
	ends := []ending{{cause: &audit.Entry{Seq: 16, Record: audit.Record{
		Code: string(ocip.RoundLimit), PolicyReason: "Exchange reached maximum round limit (3). Human review required.",
		Details: map[string]any{"escalation": map[string]any{"conversationSummary": "Round 1 (agent-alice-1): What\nRound 4 (agent-alice-1): And\x1b[31m now?"}},
	}}}, {}}
	now := opened.Add(3 * time.Minute)
	write := func(scr term.Screen) string {
		var out bytes.Buffer
		if err := writeExchange(&out, scr, now, sides, ends); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	local := func(after time.Duration) string { return opened.Add(after).Local().Format(time.DateTime) }
	want := fmt.Sprintf(`exchange 01a1fd5b-310b-7864-9821-3314347342bd

agent-alice-1 with agent-bob-1: escalated
  why           EXCHANGE_ROUND_LIMIT: Exchange reached maximum round limit (3).
                Human review required. (record 16)
  type          information_query
  level         confidential
  rounds        3 of 3, used up
  session       agent:bob:main
  conversation  conversation-1
  opened        %[1]s, 3m0s ago
  updated       %[2]s, 1m59s ago
  expires       %[4]s, in 23h57m

  round 1  agent-alice-1
    │ What is the status of ticket ENG-1234, and does anybody know whether the
    │ release waits for it? I hope it…
  round 2  agent-bob-1
    │ https://example.com/path/path/path/path/path/path/path/path/path/path/path
    │ /path/path/path/path/path/path/path/path/path/
  round 3  agent-alice-1
    │ ‹U+001B›[2J‹U+202E›exe.txt
  kept back
    │ Round 4 (agent-alice-1): And‹U+001B›[31m now?

agent-bob-1 with agent-alice-1: in_progress
  type          information_query
  level         internal
  rounds        3 of 3, used up
  session       agent:alice:main
  conversation  conversation-1
  opened        %[1]s, 3m0s ago
  updated       %[3]s, 2m0s ago
  expires       %[4]s, in 23h57m

  the same was said as on the side of agent-alice-1

Until a person settles this, nothing goes between agent-alice-1 and agent-bob-1,
in any exchange.
To settle it:
  ocipd exchanges resolve 01a1fd5b-310b-7864-9821-3314347342bd --note TEXT
To see what was decided:
  ocipd audit query --exchange 01a1fd5b-310b-7864-9821-3314347342bd
`, local(0), local(61*time.Second), local(time.Minute), local(24*time.Hour))
	if got := write(term.Screen{Terminal: true, Width: 80}); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := write(term.Screen{Terminal: true, Width: 80, Colour: term.Palette{On: true}}); !strings.Contains(got, "\x1b[33mescalated\x1b[0m") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("in colour it is %q", got)
	}
	for width := 1; width < 80; width++ {
		write(term.Screen{Terminal: true, Width: width})
	}

	// Another pair of agents has an exchange with the same id.
	sides = append(sides, Side{Exchange: api.Exchange{ExchangeID: sides[0].ExchangeID, Agent: "agent-eve-1", Counterparty: "agent-dave-1", Outcome: "in_progress", MaxRounds: 3, ExpiresAt: opened.UnixMilli()}})
	ends = append(ends, ending{})
	ends[0].cause.PolicyReason = "no\x1b[2J"
	got := write(term.Screen{Terminal: true, Width: 80})
	for _, want := range []string{
		"This id names 2 exchanges, of different agents: to resolve one, name its agent\nwith --agent.\n",
		"nothing was let through\n", ", 3m0s ago: it takes no more messages\n", "rounds        0 of 3\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	// The rounds of another exchange were used up: settling this one starts nothing again.
	ends[0].cause.Details = map[string]any{"escalatedExchange": "exch-7"}
	if behind := write(term.Screen{Terminal: true, Width: 80}); strings.Contains(behind, "Until a person") || !strings.Contains(behind, "waits for a person:\n  ocipd exchanges show exch-7\n") {
		t.Errorf("got\n%s", behind)
	}
	// A message's text cannot pass for a line of the program.
	for line := range strings.Lines(got) {
		if strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !text.Shows(r) }) >= 0 {
			t.Errorf("hostile: %q", line)
		}
	}
}

func TestCause(t *testing.T) {
	record := func(seq uint64, outcome, code string) audit.Entry {
		return audit.Entry{Seq: seq, Record: audit.Record{Outcome: outcome, Code: code}}
	}
	for name, test := range map[string]struct {
		records []audit.Entry // newest first, as the daemon lists them
		want    uint64
	}{
		"none":               {nil, 0},
		"other outcomes":     {[]audit.Entry{record(2, "in_progress", ""), record(1, "in_progress", "")}, 0},
		"one":                {[]audit.Entry{record(2, "escalated", "EXCHANGE_ROUND_LIMIT"), record(1, "in_progress", "")}, 2},
		"refused afterwards": {[]audit.Entry{record(9, "escalated", "EXCHANGE_CLOSED"), record(8, "escalated", "EXCHANGE_CLOSED"), record(7, "escalated", "EXCHANGE_ROUND_LIMIT"), record(6, "in_progress", "")}, 7},
		"asked twice":        {[]audit.Entry{record(4, "escalated", "EXCHANGE_ROUND_LIMIT"), record(3, "escalated", "EXCHANGE_ROUND_LIMIT"), record(2, "in_progress", "")}, 3},
		"ended twice":        {[]audit.Entry{record(9, "escalated", "COMMITMENT_REQUIRES_HUMAN"), record(8, "in_progress", ""), record(7, "escalated", "COMMITMENT_REQUIRES_HUMAN")}, 9},
		"gone on since":      {[]audit.Entry{record(9, "in_progress", ""), record(8, "escalated", "CHAIN")}, 8},
	} {
		got := uint64(0)
		if e := cause(test.records, "escalated"); e != nil {
			got = e.Seq
		}
		if got != test.want {
			t.Errorf("%s: the cause is record %d, want %d", name, got, test.want)
		}
	}
}

// TestTakenOver: the outcome of a taken-over exchange is the person's, and the person's
// text is not its cause.
func TestTakenOver(t *testing.T) {
	held := audit.Record{ActionType: audit.ActionExchange, PolicyResult: audit.ResultApproval, Outcome: "escalated", Code: string(ocip.CommitmentRequiresHuman), PolicyReason: "commitment keywords: promise", ApprovalID: "a"}
	taken := audit.Record{ActionType: audit.ActionApproval, Event: api.ApprovalTakenOver, Code: held.Code, ApprovalID: "a", Details: map[string]any{"by": "uid:0"}}
	sent := audit.Record{ActionType: audit.ActionExchange, PolicyResult: audit.ResultAllow, Outcome: "escalated", PolicyReason: "within policy.data", ApprovalID: "a"}
	sides, now := sampleSides()[:1], opened.Add(time.Hour)
	for name, tc := range map[string]struct {
		records []audit.Entry // newest first
		why     string
	}{
		"at once":     {[]audit.Entry{{Seq: 14, Record: sent}, {Seq: 13, Record: taken}, {Seq: 10, Record: held}}, "COMMITMENT_REQUIRES_HUMAN: commitment keywords: promise (record 10)"},
		"hours later": {[]audit.Entry{{Seq: 14, Record: sent}, {Seq: 13, Record: taken}}, "COMMITMENT_REQUIRES_HUMAN (record 13)"},
	} {
		var out bytes.Buffer
		if err := writeExchange(&out, term.Screen{Width: 120}, now, sides, []ending{endingIn(tc.records, "escalated")}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"why           " + tc.why + "\n", "decided       taken over by uid:0 (record 13)\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, out.String())
			}
		}
	}
}

func TestBecause(t *testing.T) {
	for want, r := range map[string]audit.Record{
		"POLICY_DENIED: no (record 7)":            {Code: "POLICY_DENIED", PolicyReason: "no"},
		"resolved by operator: talked (record 7)": {Event: "resolved", Details: map[string]any{"by": "operator", "note": "talked"}},
		"resolved by @acme/alice (record 7)":      {Event: "resolved", AppID: "@acme/alice", Details: map[string]any{"note": ""}},
	} {
		e := audit.Entry{Seq: 7, Record: r}
		if got := because(&e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if held := unsent(&e); held != "" {
			t.Errorf("%q was kept back", held)
		}
	}
}

func TestChanges(t *testing.T) {
	was, is := sampleSides(), sampleSides()
	is[0].Outcome, is[1].Outcome = "resolved", "resolved"
	var out bytes.Buffer
	if err := changes(was, is[:2]).Write(&out, term.Screen{Terminal: true, Width: 80}); err != nil {
		t.Fatal(err)
	}
	want := "AGENT          WITH           WAS          IS\n" +
		"agent-alice-1  agent-bob-1    escalated    resolved\n" +
		"agent-bob-1    agent-alice-1  in_progress  resolved\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestFold(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"   ", 10, []string{""}},
		{"one two three", 13, []string{"one two three"}},
		{"one two three", 12, []string{"one two", "three"}},
		{"one  two", 3, []string{"one", "two"}},
		{"abcdefgh ij", 4, []string{"abcd", "efgh", "ij"}},
		{"日本語 文章", 5, []string{"日本", "語", "文章"}},
		{"日本", 1, []string{"日", "本"}},
		{"ab", -3, []string{"ab"}},
	} {
		if got := term.Fold(test.text, test.width); !slices.Equal(got, test.want) {
			t.Errorf("%q in %d is %q, want %q", test.text, test.width, got, test.want)
		}
	}
}
