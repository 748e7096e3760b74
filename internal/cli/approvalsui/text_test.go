package approvalsui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// askedAt is when the messages of these tests were held.
var askedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// heldBy is the n-th message of an agent.
func heldBy(agent string, n int, says string) *api.ApprovalSummary {
	at := askedAt.Add(time.Duration(n) * time.Second)
	return &api.ApprovalSummary{
		ApprovalID: fmt.Sprintf("01a1fd5b-310b-7864-%s-%012x", (agent + "0000")[:4], n), State: api.ApprovalPending,
		Code: string(ocip.CommitmentRequiresHuman), Reason: "commitment keywords: promise", AgentID: agent, Agent: "agent-" + agent + "-1",
		AppID: "@acme/" + agent, UserID: agent, SessionKey: "agent:bob:main", Counterparty: "agent-bob-1", CounterpartyUserID: "bob",
		ExchangeID: "exchange-1", ConversationID: "conversation-1", Type: ocip.InformationQuery, Round: 1, MaxRounds: 3,
		Classification: "internal", Summary: says, DispatchID: "dispatch-1", AskedAt: at.UnixMilli(), ExpiresAt: at.Add(24 * time.Hour).UnixMilli(),
		Approvable: true, Needed: 1,
	}
}

// heldInFull is the full request of a held message.
func heldInFull(a *api.ApprovalSummary) *api.Approval {
	full := &api.Approval{
		ApprovalSummary: *a, Digest: "sha256:" + strings.Repeat("0d", 32), ToSign: make(map[string]string),
		PolicyApplied: "commitment", PolicyRevision: "sha256:36059fca3323", Content: a.Summary,
	}
	full.Sending = jsontext.Value(api.EmittedMessage{SessionKey: a.SessionKey, Content: gate.NewText(a.Summary + "\n\nSent by user's OpenClaw assistant"), Metadata: api.Object{"aiDisclosure": api.String(ocip.DisclosureLabel)}}.Append(nil))
	for _, decision := range api.Decisions() {
		full.ToSign[decision] = api.SignedText(a.ApprovalID, decision, full.Digest)
	}
	return full
}

// unseen reports characters that must not be in a line for a person.
func unseen(r rune) bool { return !text.Shows(r) }

// The text of a decided request is gone, but its findings are still shown.
func TestForgottenApproval(t *testing.T) {
	a := heldInFull(heldBy("alice", 1, ""))
	a.State, a.Forgotten, a.ContentBytes, a.Sending = api.ApprovalDenied, true, 12, nil
	a.Detections = []audit.Detection{{Rule: "commitment.promise", Start: 2, End: 9}}
	var out strings.Builder
	if err := writeApproval(&out, term.Screen{Terminal: true, Width: 80}, a, askedAt); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  12 bytes, which were dropped when it was decided\n", "commitment.promise, bytes 2 to 9"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "What would be sent") {
		t.Errorf("something is to be sent:\n%s", out.String())
	}
	table := newTable([]*api.ApprovalSummary{&a.ApprovalSummary}, "all", askedAt)
	table.rows = []group{{&a.ApprovalSummary}}
	if lines := strings.Join(table.lines(term.Screen{Terminal: true, Width: 120}), "\n"); !strings.Contains(lines, "(forgotten)") {
		t.Errorf("listed is\n%s", lines)
	}
}

// The outcome of a decided request is described in words, whatever the daemon's term.
func TestDeliveryOfApproval(t *testing.T) {
	t.Parallel()
	for kind, said := range map[string]map[string]string{
		api.ApprovalOfMessage:    {"": "", "ready": "not sent: ", "claimed": "taken it to send it", "sent": "sent, as", "unknown": "nobody knows", "abandoned": "given up", "expired": "in time", "new_state": "new state"},
		api.ApprovalOfPermission: {"": "", "ready": "when it asks again", "sent": "has been told", "expired": "in time", "abandoned": "taken back"},
	} {
		for delivery, want := range said {
			a := heldInFull(heldBy("alice", 1, ""))
			a.Kind, a.State, a.Delivery = kind, api.ApprovalApproved, delivery
			page := strings.Join(approvalPage(term.Screen{Terminal: true, Width: 200}, a, askedAt, false), "\n")
			if !strings.Contains(page, want) || strings.Contains(page, "  delivery ") != (want != "") {
				t.Errorf("%s %q:\n%s", kind, delivery, page)
			}
		}
	}
}

// An approved message that nobody has fetched can be denied, and nothing else. The last
// required approval is shown once, and the earlier ones beside it.
func TestApprovedBy(t *testing.T) {
	t.Parallel()
	by := func(who string, at int64) api.ApprovalDecision {
		return api.ApprovalDecision{Decision: api.DecideApprove, By: who, At: at}
	}
	for name, tc := range map[string]struct {
		given []api.ApprovalDecision
		last  *api.ApprovalDecision
		want  int
	}{
		"one of one":  {[]api.ApprovalDecision{by("uid:7", 2000)}, new(by("uid:7", 2000)), 1},
		"two of two":  {[]api.ApprovalDecision{by("uid:7", 1000), by("uid:8", 2000)}, new(by("uid:8", 2000)), 2},
		"one of two":  {[]api.ApprovalDecision{by("uid:7", 1000)}, nil, 1},
		"none of one": {nil, new(by("uid:7", 2000)), 1},
	} {
		a := heldInFull(heldBy("alice", 1, ""))
		a.State, a.Approvals, a.Decision = api.ApprovalApproved, tc.given, tc.last
		page := strings.Join(approvalPage(term.Screen{Terminal: true, Width: 200}, a, askedAt, false), "\n")
		if got := strings.Count(page, "by uid:"); got != tc.want {
			t.Errorf("%s: %d people are shown, want %d", name, got, tc.want)
		}
	}
}

func TestTakeBack(t *testing.T) {
	s := &People{&cli.Process{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}}
	for _, test := range []struct {
		state, delivery, decision string
		offered                   bool
	}{
		{api.ApprovalApproved, "ready", api.DecideDeny, true},
		{api.ApprovalTakenOver, "ready", api.DecideDeny, true},
		{api.ApprovalApproved, "ready", api.DecideResolve, false},
		{api.ApprovalApproved, "claimed", api.DecideDeny, false},
		{api.ApprovalApproved, "", api.DecideDeny, false},
		{api.ApprovalDenied, "ready", api.DecideDeny, false},
	} {
		a := heldInFull(heldBy("alice", 1, ""))
		a.State, a.Delivery, a.Decision = test.state, test.delivery, &api.ApprovalDecision{By: "uid:7"}
		if err := s.mayDecide(a, test.decision, ""); (err == nil) != test.offered {
			t.Errorf("%+v: %v", test, err)
		}
		var out strings.Builder
		if err := writeApproval(&out, term.Screen{Terminal: true, Width: 80}, a, askedAt); err != nil {
			t.Fatal(err)
		}
		if test.decision == api.DecideDeny && strings.Contains(out.String(), "To take it back:\n  ocipd approvals deny "+a.ApprovalID) != test.offered {
			t.Errorf("%+v:\n%s", test, out.String())
		}
	}
}

func TestApprovalPage(t *testing.T) {
	a := heldInFull(heldBy("alice", 1, "I promise\u202e it.\nYes."))
	a.Sending = jsontext.Value(`{"sessionKey":"agent:bob:main","content":"I promise\u202e it.\nYes.","metadata":{"ocip":{"version":"1.0","x":"\u001b\u202e"},"n":[1,2]}}`)
	a.Detections = []audit.Detection{
		{Rule: "commitment.promise", Start: 2, End: 9}, {Rule: "commitment.money", Start: 17, End: 20, Zone: "quote", Shadow: true}, {Rule: "chain.hops", Shadow: true},
	}
	a.Transcript = []ocip.Turn{{Round: 1, Sender: "agent-bob-1", Summary: "When will\x1b[2J it be?"}}
	a.DataShared = []ocip.Shared{{Source: "calendar", Fields: []string{"free", "busy"}}, {Source: "crm"}}
	a.DataWithheld = []ocip.Withheld{{Description: "salary", Reason: "restricted is above the exchange's level internal"}}
	a.Escalation = &ocip.Escalation{ExchangeID: "exchange-1", CurrentRound: 4, MaxRounds: 3, ConversationSummary: "Round 1 (agent-bob-1): When?\nRound 2 (agent-alice-1): Soon"}
	a.EscalatedExchange = "exchange-0"
	a.Chain = &ocip.Chain{ID: "dispatch-0", Hops: 9, Path: []string{"agent-alice-1", "agent-bob-1"}, StartedAt: ocip.Time{Time: askedAt}}
	a.Needed, a.Given, a.SignatureRequired, a.Approvable, a.Blocked = 2, 1, true, false, "the exchange used up its rounds"
	a.Approvals = []api.ApprovalDecision{{Decision: "approve", By: "carol@acme.com", Note: "fine\nby me", At: askedAt.Add(time.Minute).UnixMilli(), Fingerprint: "SHA256:abc"}}
	a.Changed = []api.ApprovalChange{
		{Field: "policyRevision", Was: "sha256:1", Now: "sha256:2"},
		{Field: "sending", Was: `{"a":1,"b":2,"c":3}`, Now: `{"a":1,"b":"\u202e","c":3}`},
		{Field: "verdict", Was: "", Now: "denied"},
	}
	now := askedAt.Add(2 * time.Minute)
	local := func(after time.Duration) string { return askedAt.Add(after).Local().Format(time.DateTime) }
	want := fmt.Sprintf(`approval 01a1fd5b-310b-7864-alic-000000000001: pending
agent-alice-1 for alice → agent-bob-1 for bob
  why           COMMITMENT_REQUIRES_HUMAN: commitment keywords: promise
  held by       the round limit of exchange exchange-0
  blocked       the exchange used up its rounds
  approved      by carol@acme.com, %[2]s, 1m0s ago
  signed        with SHA256:abc
  note          fine‹U+000A›by me

What changed since it was last shown
  policyRevision
    was
    │ sha256:1
    now
    │ sha256:2
  sending
    was
    │   "b": 2,
    now
    │   "b": "\u202e",
  verdict
    was
    now
    │ denied

What the agent wrote
    │ I promise‹U+202E› it.
        ^^^^^^^ promise
    │ Yes.
      ^^^ money (quote)
    1 character of it does not show as what it is: it is named in ‹›
  found         commitment.promise, bytes 2 to 9 of the text
  found         commitment.money, bytes 17 to 20 of the text, in quote, only
                recorded
  found         chain.hops, only recorded

What would be sent
  to            agent:bob:main
  the message above, as it is

What data goes with it
  shared        calendar: free, busy
  shared        crm
  withheld      salary: restricted is above the exchange's level internal

What was said before in this exchange
  round 1       agent-bob-1
    │ When will‹U+001B›[2J it be?

What the round limit stopped
  exchange      exchange-1, round 4 of 3
    │ Round 1 (agent-bob-1): When?
    │ Round 2 (agent-alice-1): Soon

The line of messages that led to it
  messages      9, since %[1]s
  agents        agent-alice-1 → agent-bob-1

What a decision takes
  expires       %[3]s, in 23h58m
  approvals     1 given, by 2 people needed, each with a signature

Where it comes from
  agent         alice
  app           @acme/alice
  session       agent:bob:main
  exchange      exchange-1
  type          information_query, 1 of 3 rounds used
  conversation  conversation-1
  level         internal
  asked         %[4]s, 1m59s ago
  policy        commitment, revision sha256:36059fca3323

Its metadata
    │ "ocip": {"version": "1.0", "x": "\u001b\u202e"}
    │ "n": [1, 2]

digest sha256:0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d
words buhat buhat buhat buhat

To decide:
  ocipd approvals deny 01a1fd5b-310b-7864-alic-000000000001
      do not send it
  ocipd approvals takeover 01a1fd5b-310b-7864-alic-000000000001
      send it as your own, or your own words in its place
  ocipd approvals resolve 01a1fd5b-310b-7864-alic-000000000001
      do not send it; the exchange is settled
`, local(0), local(time.Minute), local(24*time.Hour+time.Second), local(time.Second))
	var out bytes.Buffer
	if err := writeApproval(&out, term.Screen{Terminal: true, Width: 80}, a, now); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}

	// Any content is shown at any width, and controls nothing.
	evil := "x\x1b[2J\u202e " + strings.Repeat("approvals 2 given ", 30)
	b := *a
	b.Agent, b.Counterparty, b.UserID, b.ExchangeID, b.ConversationID, b.SessionKey, b.Reason = evil, evil, evil, evil, evil, evil, evil
	b.Content, b.Sending, b.State, b.Digest = evil, jsontext.Value("{\x1b"), evil, evil
	b.Decision = &api.ApprovalDecision{By: evil, Note: evil}
	b.Transcript[0].Sender, b.Transcript[0].Round = evil, 1<<40
	b.Changed[0].Field = evil
	b.Media = []api.MediaItem{{Member: evil, Path: evil, SHA256: evil}, {Member: evil, URL: evil}}
	b.Extracts = []api.Extract{{Member: api.FileMember + evil, Text: evil, Of: 1 << 40}, {Member: evil, Text: evil}}
	for width := 1; width < 130; width++ {
		for _, line := range approvalPage(term.Screen{Terminal: true, Width: width}, &b, now, true) {
			if strings.IndexFunc(line, unseen) >= 0 {
				t.Fatalf("hostile at width %d: %q", width, line)
			}
			if w := term.Width(line); width >= 40 && w > width {
				t.Fatalf("at width %d a line takes %d: %q", width, w, line)
			}
			// Others' text never begins a line.
			if width < 40 {
				continue
			}
			if strings.HasPrefix(line, "approvals 2") || strings.HasPrefix(line, "  approvals") && !strings.HasPrefix(line, "  approvals     1 given") {
				t.Fatalf("at width %d a line is not the program's: %q", width, line)
			}
		}
	}
}

// Everything that accompanies a message is shown with its findings, each marked in its own text.
func TestWhatGoesAlong(t *testing.T) {
	a := heldInFull(heldBy("alice", 1, "We cannot foresee a date."))
	a.Sending = jsontext.Value(`{"sessionKey":"agent:bob:main","content":"We cannot foresee a date.","metadata":{}}`)
	const sum = "aab8f06fecd1c041e9a3d5a86114f9e522b546918db8503a045fe4a423b3642a"
	a.Media = []api.MediaItem{
		{Member: "metadata.mediaUrl", Path: "/out/report\u202e.txt", SHA256: sum, Bytes: 4711}, {Member: "metadata.icon", URL: "data:…", SHA256: sum, Bytes: 8},
		{Member: "content", URL: "https://acme.example/a.png"},
	}
	a.Detections = []audit.Detection{
		{Rule: "commitment.promise", Member: "metadata.note", Start: 2, End: 9}, {Rule: "commitment.money", Member: "file metadata.mediaUrl", Start: 1010, End: 1018},
		{Rule: "commitment.pact", Member: "file metadata.icon", Start: 1, End: 3}, {Rule: "pii.name", Member: "sessionKey"},
	}
	a.Extracts = []api.Extract{
		{Member: "file metadata.mediaUrl", Of: 4700, Text: "The\u202e plan\nof May"}, {Member: "file metadata.mediaUrl", At: 1000, Of: 4700, Text: "and we pay 9000 EUR now"},
		{Member: "metadata.note", Of: 21, Text: "I promise it by May 1"},
	}
	page := strings.Join(approvalPage(term.Screen{Terminal: true, Width: 80}, a, askedAt, true), "\n")
	for _, want := range []string{`
What the agent wrote
    │ We cannot foresee a date.
  and in        metadata.note
    │ I promise it by May 1
        ^^^^^^^ promise
  found         commitment.promise, bytes 2 to 9 of metadata.note
  found         commitment.money, bytes 1010 to 1018 of file
                /out/report‹U+202E›.txt, which metadata.mediaUrl names
  found         commitment.pact, bytes 1 to 3 of the inline part metadata.icon
  found         pii.name, in sessionKey

What would be sent
  to            agent:bob:main
  the message above, as it is

What goes along
  file          /out/report‹U+202E›.txt
  named in      metadata.mediaUrl
  size          4,711 bytes
  SHA-256       ` + sum + `
    │ The‹U+202E› plan
    │ of May
    1 character of it does not show as what it is: it is named in ‹›
    … 982 bytes of it are not shown
    │ and we pay 9000 EUR now
                ^^^^^^^^ money
    … 3,677 bytes of it are not shown
  inline part   data:…
  named in      metadata.icon
  size          8 bytes
  SHA-256       ` + sum + `
    no text was found in it; nothing of it is shown
  address       https://acme.example/a.png
  named in      content
`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page is\n%s\nwant in it\n%s", page, want)
		}
	}
	a.State, a.Forgotten, a.Extracts = api.ApprovalApproved, true, nil
	if page := strings.Join(approvalPage(term.Screen{Terminal: true, Width: 80}, a, askedAt, true), "\n"); strings.Contains(page, "no text") {
		t.Errorf("decided it is\n%s", page)
	}
}

// flood is many different messages of one agent, followed by one of another.
func flood(n int) []*api.ApprovalSummary {
	all := make([]*api.ApprovalSummary, 0, n+1)
	for i := range n {
		all = append(all, heldBy("mallory", i, fmt.Sprintf("Promise number %d", i)))
	}
	return append(all, heldBy("bob", n, "I promise"))
}

// TestNobodyIsHidden lets an agent flood the list. Another's only request must be on the
// first screen all the same.
func TestNobodyIsHidden(t *testing.T) {
	all := flood(10_000)
	const room = 20
	at := newTable(all, "", askedAt)
	at.rows, at.more = fair(alike(all), room)
	lines := at.lines(term.Screen{Terminal: true, Width: 80})
	if len(lines) > room+1 {
		t.Errorf("the list takes %d lines", len(lines))
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "  bob ") {
		t.Errorf("the last line is %q", last)
	}
	left := 0
	for _, m := range at.more {
		left += m.messages
	}
	if shown := len(at.rows); left+shown != len(all) || !slices.Contains(lines, "… 9982 more of agent mallory: ocipd approvals list --agent mallory") {
		t.Errorf("%d are shown and %d counted, of %d:\n%s", shown, left, len(all), strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		if term.Width(line) > 80 {
			t.Errorf("too wide: %q", line)
		}
	}
	if rows := inTurn(alone(all)); len(rows) != len(all) || rows[0].oldest().AgentID != "mallory" || rows[1].oldest().AgentID != "bob" || rows[2].oldest().AgentID != "mallory" {
		t.Error("the agents do not take turns")
	}
}

func TestFair(t *testing.T) {
	for _, test := range []struct {
		of    map[string]int // how many different messages of whom
		room  int
		shown map[string]int
		left  map[string]int
	}{
		{map[string]int{"a": 3}, 20, map[string]int{"a": 3}, map[string]int{}},
		{map[string]int{"a": 3}, 3, map[string]int{"a": 3}, map[string]int{}},
		{map[string]int{"a": 4}, 3, map[string]int{"a": 2}, map[string]int{"a": 2}},
		{map[string]int{"a": 50, "b": 50}, 10, map[string]int{"a": 4, "b": 4}, map[string]int{"a": 46, "b": 46}},
		{map[string]int{"a": 50, "b": 2, "c": 1}, 10, map[string]int{"a": 6, "b": 2, "c": 1}, map[string]int{"a": 44}},
		{map[string]int{"a": 9, "b": 9, "c": 9}, 0, map[string]int{"a": 1, "b": 1, "c": 1}, map[string]int{"a": 8, "b": 8, "c": 8}},
	} {
		var all []*api.ApprovalSummary
		for _, agent := range []string{"a", "b", "c"} {
			for n := range test.of[agent] {
				all = append(all, heldBy(agent, n, fmt.Sprintf("message %d", n)))
			}
		}
		rows, more := fair(alike(all), test.room)
		shown, left := map[string]int{}, map[string]int{}
		for i, row := range rows {
			shown[row.oldest().AgentID]++
			if m, ok := more[i]; ok {
				left[m.agent] = m.messages
			}
		}
		if fmt.Sprint(shown, left) != fmt.Sprint(test.shown, test.left) {
			t.Errorf("%v in %d lines shows %v and leaves %v, want %v and %v", test.of, test.room, shown, left, test.shown, test.left)
		}
	}
}

func TestAlike(t *testing.T) {
	one, two, other, denied := heldBy("alice", 1, "x"), heldBy("alice", 2, "x"), heldBy("alice", 3, "y"), heldBy("alice", 4, "x")
	denied.State = api.ApprovalDenied
	rows := alike([]*api.ApprovalSummary{one, two, other, denied})
	if len(rows) != 3 || len(rows[0]) != 2 || rows[0].oldest() != one || rows[1].oldest() != other || rows[2].oldest() != denied {
		t.Errorf("got %v", rows)
	}
}

func TestShortIDsTellApart(t *testing.T) {
	ids := func(ids ...string) (all []*api.ApprovalSummary) {
		for _, id := range ids {
			all = append(all, &api.ApprovalSummary{ApprovalID: id})
		}
		return all
	}
	for _, test := range []struct {
		all  []*api.ApprovalSummary
		want int
	}{
		{nil, 8},
		{ids("0-12345678", "0-22345678"), 8},
		{ids("0-12345678", "012345678"), 9},
		{ids("0-12345678", "1-12345678"), 10},
		{ids("same", "same"), 8},
	} {
		if got := tellApart(test.all, 8); got != test.want {
			t.Errorf("%d tell apart, want %d", got, test.want)
		}
	}
}

func TestTableFits(t *testing.T) {
	all := append(flood(3), heldBy("alice", 9, "日本語のとても長い文章\x1b[2J and more of it"), heldBy("mallory", 1, "Promise number 1"))
	all[1].Counterparty, all[2].State = strings.Repeat("long", 20), api.ApprovalTakenOver
	for _, state := range []string{"", "all"} {
		at := newTable(all, state, askedAt.Add(23*time.Hour+55*time.Minute))
		at.rows, at.more = fair(alike(all), 3)
		for width := 1; width < 150; width++ {
			at.widths = nil
			for _, line := range at.lines(term.Screen{Terminal: true, Width: width}) {
				if term.Width(line) > width || strings.IndexFunc(line, unseen) >= 0 {
					t.Errorf("at width %d: %q", width, line)
				}
			}
		}
	}
	at := newTable(all[:1], "", askedAt.Add(23*time.Hour+55*time.Minute))
	at.rows = alone(all[:1])
	want := "ID        AGENT    TO           WHY         SAYS              AGE  LEFT\n00000000  mallory  agent-bob-1  commitment  Promise number 0  23h    5m"
	if got := strings.Join(at.lines(term.Screen{Terminal: true, Width: 80}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestEqualColumnsLeaveTheirRoomToTheTexts draws a list in which some columns are equal throughout,
// on narrow and wide screens.
func TestEqualColumnsLeaveTheirRoomToTheTexts(t *testing.T) {
	one := func(n int, agent string, likely commitment.Likelihood) *api.ApprovalSummary {
		a := heldBy(agent, n, "Deal. I agree to 1 EUR for it.")
		a.Likelihood = likely
		return a
	}
	expiring := func(n int, left time.Duration) *api.ApprovalSummary {
		a := one(n, "ann", "high")
		a.ExpiresAt = askedAt.Add(left).UnixMilli()
		return a
	}
	for _, tt := range []struct {
		all      []*api.ApprovalSummary
		width    int
		oneAgent bool
		want     string
	}{
		{[]*api.ApprovalSummary{expiring(1, time.Minute), expiring(2, time.Minute)}, 80, false, "ID TO SAYS (all: ann, high, commitment) AGE LEFT"},
		{[]*api.ApprovalSummary{expiring(1, 5*time.Hour), expiring(2, 6*time.Hour)}, 80, false, "ID TO SAYS (all: ann, high, commitment) AGE LEFT"},
		{[]*api.ApprovalSummary{one(1, "ann", "high"), one(2, "ann", "high")}, 80, false, "ID TO SAYS (all: ann, high, commitment, 24h left) AGE"},
		{[]*api.ApprovalSummary{one(1, "ann", "high"), one(2, "ann", "high")}, 80, true, "ID TO SAYS (all: high, commitment, 24h left) AGE"},
		{[]*api.ApprovalSummary{one(1, "ann", "high"), one(2, "ben", "high")}, 80, false, "ID AGENT TO SAYS (all: high, commitment, 24h left) AGE"},
		{[]*api.ApprovalSummary{one(1, "ann", "high"), one(2, "ben", "low")}, 80, false, "ID AGENT TO LIKELY SAYS (all: commitment, 24h left) AGE"},
		{[]*api.ApprovalSummary{one(1, "ann", "high")}, 80, false, "ID AGENT TO LIKELY WHY SAYS AGE LEFT"},
		{[]*api.ApprovalSummary{one(1, "ann", "high"), one(2, "ann", "high")}, 120, false, "ID AGENT TO LIKELY WHY SAYS AGE LEFT"},
	} {
		at := newTable(tt.all, "", askedAt)
		at.rows, at.oneAgent = alone(tt.all), tt.oneAgent
		lines := at.lines(term.Screen{Terminal: true, Width: tt.width})
		if got := strings.Join(strings.Fields(lines[0]), " "); got != tt.want {
			t.Errorf("the titles at %d columns are %q, want %q", tt.width, got, tt.want)
		}
		for _, line := range lines[1:] {
			if len(tt.all) > 1 && !strings.Contains(line, "Deal. I agree to 1 EUR for it.") {
				t.Errorf("the text is cut: %s", line)
			}
		}
	}
}

func TestWhy(t *testing.T) {
	for code, want := range map[ocip.Code]string{
		ocip.CommitmentRequiresHuman: "commitment", ocip.RoundLimit: "round limit", ocip.ChainLimit: "chain limit",
		ocip.PolicyRequiresApproval: "policy", ocip.ReplyNotExpected: "reply not expected",
	} {
		if got := describe.Word(code); got != want {
			t.Errorf("%s is %q", code, got)
		}
	}
}

func TestShortAge(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := term.ShortAge(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// TestSignsOnlyWhatIsShown has a daemon that asks for a signature of another text.
func TestSignsOnlyWhatIsShown(t *testing.T) {
	a := heldInFull(heldBy("alice", 1, "x"))
	if text, err := a.TextToSign(api.DecideApprove, "", "", nil); err != nil || text != "ocipd approval v1\n"+a.ApprovalID+"\napprove\n"+a.Digest+"\n" {
		t.Errorf("signs %q, %v", text, err)
	}
	text, err := a.TextToSign(api.DecideTakeover, "my words", "", nil)
	if want := api.SignedContent(api.SignedText(a.ApprovalID, api.DecideTakeover, a.Digest), a.Salt, "my words"); err != nil || text != want {
		t.Errorf("signs %q, %v", text, err)
	}
	a.ToSign[api.DecideDeny] = a.ToSign[api.DecideApprove]
	a.ToSign[api.DecideResolve] = ""
	for _, decision := range []string{api.DecideDeny, api.DecideResolve} {
		if text, err := a.TextToSign(decision, "", "", nil); err == nil || !strings.HasPrefix(err.Error(), "cannot sign: what the daemon wants signed to "+decision) {
			t.Errorf("signs %q, %v", text, err)
		}
	}
}

func TestObstacles(t *testing.T) {
	conflict := func(details map[string]any) error {
		return fmt.Errorf("no: %w", &api.Error{Code: api.Conflict, Message: "conflict", Details: map[string]any{"ocip": details}})
	}
	var stderr bytes.Buffer
	s := &People{&cli.Process{Stdout: &bytes.Buffer{}, Stderr: &stderr}}
	err := s.refusedDecision(conflict(map[string]any{
		"code": "APPROVAL_STALE", "changed": []map[string]any{{"field": "verdict", "was": "may be sent", "now": "no\x1b[2J\nmore"}},
	}), api.DecideApprove, "held-1")
	want := "\nWhat changed since it was last shown\n  verdict\n    was\n    │ may be sent\n    now\n    │ no‹U+001B›[2J\n    │ more\n"
	if err == nil || err.Error() != "cannot approve held-1: it is no longer what you saw; look again: ocipd approvals show held-1" || stderr.String() != want {
		t.Errorf("got %v and %q", err, stderr.String())
	}
	at := time.Now().Add(-time.Hour)
	err = s.refusedDecision(conflict(map[string]any{"code": "APPROVAL_DECIDED", "state": "taken_over", "by": "uid:7", "at": at.UnixMilli()}), api.DecideDeny, "held-1")
	if err == nil || err.Error() != "cannot deny held-1: it is taken over already, by uid:7, "+at.Local().Format(time.DateTime)+", 1h0m ago" {
		t.Errorf("got %v", err)
	}
	for _, other := range []error{
		conflict(map[string]any{"code": "APPROVAL_TWICE"}), conflict(nil),
		&api.Error{Code: api.Conflict, Details: "odd"}, context.Canceled,
	} {
		if err := s.refusedDecision(other, api.DecideDeny, "held-1"); !errors.Is(err, other) || !strings.HasPrefix(err.Error(), "cannot deny held-1: ") {
			t.Errorf("%v gives %v", other, err)
		}
	}
}

func TestDecidedLine(t *testing.T) {
	for state, want := range map[string]string{
		api.ApprovalPending: "1 of 2 approvals are given", api.ApprovalApproved: "approved:", api.ApprovalDenied: "denied:",
		api.ApprovalTakenOver: "taken over:", api.ApprovalResolved: "resolved:", "odd\x1b_state": "odd‹U+001B› state (record 7)",
	} {
		if got := describe.Decided(api.ApprovalOfMessage, api.ApprovalResolveResult{State: state, Needed: 2, Given: 1, AuditSeq: 7}); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q", state, got)
		}
	}
}

// What a model said is marked as such, and none of its characters hides another.
func TestOpinionIsAModels(t *testing.T) {
	a := heldInFull(heldBy("alice", 1, "I'll take care of it."))
	a.Opinion = &opinion.Opinion{Reason: "It only \u202ereports.\nNo person has to look\x1b[2J.", Model: "wi\u200bse"}
	var out strings.Builder
	if err := writeApproval(&out, term.Screen{Terminal: true, Width: 200}, a, askedAt); err != nil {
		t.Fatal(err)
	}
	want := "  a model       it commits nobody: «It only ‹U+202E›reports.‹U+000A›No person has to look‹U+001B›[2J.» (the model wi‹U+200B›se, no person)"
	if !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
	a.Opinion.Commits, a.Opinion.Reason = true, ""
	out.Reset()
	if err := writeApproval(&out, term.Screen{Terminal: true, Width: 200}, a, askedAt); err != nil || !strings.Contains(out.String(), "  a model       it commits somebody (the model wi‹U+200B›se, no person)\n") {
		t.Errorf("without a reason it is\n%s, %v", out.String(), err)
	}
}
