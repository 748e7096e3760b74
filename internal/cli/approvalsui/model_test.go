package approvalsui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/ocip"
)

// fakeDecider decides about its own requests.
type fakeDecider struct {
	all   map[string]*api.Approval
	taken []api.ApprovalResolveParams
	err   error
}

func (o *fakeDecider) look(_ context.Context, id string) (*api.Approval, error) {
	a, ok := o.all[id]
	if !ok {
		return nil, api.Errorf(api.NotFound, "there is no approval %q", id)
	}
	seen := *a
	return &seen, nil
}

func (o *fakeDecider) decide(_ context.Context, a *api.Approval, p api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	if o.err != nil {
		return api.ApprovalResolveResult{}, o.err
	}
	if a.ApprovalID != p.ApprovalID || a.Digest != p.Digest {
		return api.ApprovalResolveResult{}, fmt.Errorf("decides about %s with %s, and saw %s with %s", p.ApprovalID, p.Digest, a.ApprovalID, a.Digest)
	}
	o.taken = append(o.taken, p)
	return api.ApprovalResolveResult{State: map[string]string{
		api.DecideApprove: api.ApprovalApproved, api.DecideDeny: api.ApprovalDenied, api.DecideTakeover: api.ApprovalTakenOver, api.DecideResolve: api.ApprovalResolved,
	}[p.Decision], AuditSeq: 42}, nil
}

// sitting is a person at a model in a test.
type sitting struct {
	t       *testing.T
	model   *model
	decider *fakeDecider
	quit    bool
	// late are the commands held back while hold is set.
	hold bool
	late []tea.Cmd
}

func sitDown(t *testing.T, width, height int, held ...*api.ApprovalSummary) *sitting {
	s := &sitting{t: t, decider: &fakeDecider{all: make(map[string]*api.Approval)}}
	s.model = newModel(t.Context(), term.Screen{Terminal: true, Width: width}, nil, s.decider, askedAt.Add(time.Minute))
	s.tell(tea.WindowSizeMsg{Width: width, Height: height})
	s.news(newsBegin{})
	s.held(held...)
	s.news(newsCaught{})
	return s
}

// tell gives the model a message, and then the results of its commands.
func (s *sitting) tell(msg tea.Msg) {
	_, cmd := s.model.Update(msg)
	if _, time := msg.(tickMsg); !time {
		s.do(cmd)
	}
	s.see()
}

func (s *sitting) do(cmd tea.Cmd) {
	switch {
	case cmd == nil:
		return
	case s.hold:
		s.late = append(s.late, cmd)
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			s.do(c)
		}
	case tea.QuitMsg:
		s.quit = true
	case nil:
	default:
		s.tell(msg)
	}
}

// catchUp carries out the commands that were held back.
func (s *sitting) catchUp() {
	late := s.late
	s.hold, s.late = false, nil
	for _, cmd := range late {
		s.do(cmd)
	}
}

func (s *sitting) news(news ...any) { s.tell(newsMsg(news)) }

func (s *sitting) held(all ...*api.ApprovalSummary) {
	var news newsMsg
	for _, a := range all {
		s.decider.all[a.ApprovalID] = heldInFull(a)
		news = append(news, newsHeld{a})
	}
	s.tell(news)
}

// keys presses keys, given by names or as the letters of a text.
func (s *sitting) keys(keys ...string) {
	codes := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "home": tea.KeyHome, "end": tea.KeyEnd,
		"left": tea.KeyLeft, "right": tea.KeyRight, "backspace": tea.KeyBackspace, "delete": tea.KeyDelete, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp,
	}
	for _, key := range keys {
		if code, ok := codes[key]; ok {
			s.tell(tea.KeyPressMsg{Code: code})
			continue
		}
		if letter, ok := strings.CutPrefix(key, "ctrl+"); ok {
			s.tell(tea.KeyPressMsg{Code: rune(letter[0]), Mod: tea.ModCtrl})
			continue
		}
		for _, r := range key {
			s.tell(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// see returns the screen, and checks that it fits the terminal and contains no control sequences.
func (s *sitting) see() string {
	s.t.Helper()
	view := s.model.View()
	lines := strings.Split(view.Content, "\n")
	if len(lines) != s.model.height && s.model.height >= 8 {
		s.t.Fatalf("the screen has %d lines, want %d:\n%s", len(lines), s.model.height, view.Content)
	}
	for _, line := range lines {
		if strings.IndexFunc(line, unseen) >= 0 {
			s.t.Fatalf("hostile: %q", line)
		}
		if w := term.Width(line); w > s.model.screen.Width && s.model.screen.Width >= 40 {
			s.t.Fatalf("a line is %d wide: %q", w, line)
		}
	}
	if c := view.Cursor; c != nil && s.model.height >= 8 && s.model.screen.Width >= 40 && (c.X < 0 || c.X >= s.model.screen.Width || c.Y < 0 || c.Y >= s.model.height) {
		s.t.Fatalf("the cursor is at %d, %d", c.X, c.Y)
	}
	return view.Content
}

func (s *sitting) want(parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(s.see(), part) {
			s.t.Fatalf("%q is not on the screen:\n%s", part, s.see())
		}
	}
}

func (s *sitting) wantNot(parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if strings.Contains(s.see(), part) {
			s.t.Fatalf("%q is on the screen:\n%s", part, s.see())
		}
	}
}

// decided returns the decisions since the last call.
func (s *sitting) decided() []api.ApprovalResolveParams {
	taken := s.decider.taken
	s.decider.taken = nil
	return taken
}

func TestModelScreen(t *testing.T) {
	s := sitDown(t, 80, 24, heldBy("alice", 1, "I promise to do it by Friday"), heldBy("alice", 2, "I promise to do it by Friday"), heldBy("bob", 3, "I agree\x1b[2J\u202e to it"))
	s.decider.all[heldBy("alice", 1, "").ApprovalID].Sending = nil
	s.keys("down", "up")
	local := askedAt.Add(24*time.Hour + time.Second).Local().Format(time.DateTime)
	want := `ocipd approvals: 3 waiting (alice 2, bob 1)                                 live
  ID        ×  AGENT  TO           SAYS (all: commitment, 23h left)  AGE
› 00000001  2  alice  agent-bob-1  I promise to do it by Friday      59s
  00000003     bob    agent-bob-1  I agree‹U+001B›[2J‹U+202E› to it  57s
────────────────────────────────────────────────────────────────────────────────
approval 01a1fd5b-310b-7864-alic-000000000001: pending
agent-alice-1 for alice → agent-bob-1 for bob
  why           COMMITMENT_REQUIRES_HUMAN: commitment keywords: promise

What the agent wrote
    │ I promise to do it by Friday

What a decision takes
  expires       ` + local + `, in 23h59m
  approvals     0 given, by 1 person needed
  comes from    app @acme/alice, level internal, asked 59s ago,
                information_query, 1 of 3 rounds used

words buhat buhat buhat buhat




a approve  d deny  t take over  m mark  / filter  enter read  ? help  q quit`
	got := s.see()
	// The line of the chosen row is filled to its end in its colour.
	lines := strings.Split(got, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	if got = strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.keys("g")
	s.want("  00000003  bob ", "  00000002  alice ")
	s.keys("down")
	s.want("agent-bob-1 for bob → agent-bob-1", "    │ I agree‹U+001B›[2J‹U+202E› to it")
	s.keys("enter")
	s.wantNot("  ID ")
	s.keys("end")
	s.want("words buhat buhat buhat buhat", "esc back")
	s.keys("esc", "g")
	s.want("  ID ", "00000001  2  alice")
	s.keys("q")
	if !s.quit {
		t.Error("q does not end it")
	}
}

// TestModelColour has colours only if they are wanted.
func TestModelColour(t *testing.T) {
	for on, want := range map[bool]bool{true: true, false: false} {
		d := newModel(t.Context(), term.Screen{Terminal: true, Width: 80, Colour: term.Palette{On: on}}, nil, &fakeDecider{}, askedAt)
		d.Update(newsMsg{newsBegin{}, newsHeld{heldBy("alice", 1, "x")}, newsCaught{}})
		view := d.View()
		if got := strings.Contains(view.Content, "\x1b[7m› 00000001"); got != want || strings.Contains(view.Content, "\x1b") != want {
			t.Errorf("colour %t shows %q", on, view.Content)
		}
		if !view.AltScreen || view.Cursor != nil {
			t.Errorf("the view is %+v", view)
		}
	}
}

// TestModelSizes draws everything at every size.
func TestModelSizes(t *testing.T) {
	s := sitDown(t, 80, 24, heldBy("alice", 1, "I promise "+strings.Repeat("日本語 ", 90)), heldBy("bob", 2, "x"))
	all := func() {
		for _, width := range []int{1, 2, 9, 30, 40, 79, 80, 200} {
			for _, height := range []int{1, 2, 5, 7, 8, 24, 60} {
				s.tell(tea.WindowSizeMsg{Width: width, Height: height})
			}
		}
		s.tell(tea.WindowSizeMsg{Width: 80, Height: 24})
	}
	all()
	for _, keys := range [][]string{{"n", "note"}, {"esc", "enter"}, {"esc", "t"}, {" and more"}, {"ctrl+d"}, {"esc", "/", strings.Repeat("long ", 50)}, {"esc", "d"}} {
		s.keys(keys...)
		all()
	}
}

func TestModelIsLive(t *testing.T) {
	one, two := heldBy("alice", 1, "first"), heldBy("alice", 2, "second")
	s := sitDown(t, 80, 24)
	s.want("nothing waits for a person", "live")
	s.held(two)
	s.want("1 waiting (alice 1)", "› 00000002")
	// A new request goes to its place, and the choice stays.
	s.held(one)
	s.want("2 waiting", "  00000001", "› 00000002")
	// Somebody else decides about it.
	gone := *two
	gone.State = api.ApprovalDenied
	s.news(newsHeld{&gone})
	s.want("1 waiting", "› 00000001", "alic-000000000001: pending")
	s.wantNot("00000002")
	s.tell(tickMsg(askedAt.Add(3 * time.Hour)))
	s.want("  2h   21h")
	// The daemon goes away, and returns with the requests pending then.
	s.news(newsLost{errors.New("cut\x1b off")})
	s.want("no daemon", "the daemon is gone (cut‹U+001B› off); looking for it", "› 00000001")
	// An earlier question gets no answer any more, and that is no news.
	s.model.asking = one.ApprovalID
	s.tell(lookedMsg{id: one.ApprovalID, err: errors.New("no connection")})
	s.want("the daemon is gone (cut‹U+001B› off); looking for it")
	s.wantNot("cannot look")
	s.keys("a")
	s.want("no daemon: nothing can be decided")
	s.news(newsBegin{})
	s.held(heldBy("bob", 3, "third"))
	s.want("2 waiting", "connected again", "live")
	s.news(newsCaught{})
	s.want("1 waiting (bob 1)", "› 00000003", "agent-bob-1 for bob")
	if got := s.see(); strings.Contains(got, "AGENT") {
		t.Errorf("the only agent has a column besides the title:\n%s", got)
	}
	s.wantNot("00000001")
	// A daemon without this stream ends it.
	refusal := api.Errorf(api.MethodNotFound, "no such method")
	s.news(newsEnd{refusal})
	if !s.quit || !errors.Is(s.model.fatal, refusal) {
		t.Errorf("it goes on after %v", s.model.fatal)
	}
}

// TestModelFlood has one agent make thousands of requests, and another make one.
func TestModelFlood(t *testing.T) {
	s := sitDown(t, 80, 24, flood(5000)...)
	s.want("5001 waiting (mallory 5000, bob 1)", "› 00000000  mallory", "  00001388  bob ")
	s.keys("down")
	s.want("› 00001388  bob ", "agent-bob-1 for bob")
	s.keys("end")
	s.want("› 00001387  mallory", "Promise number 4999")
	s.keys("/", "@acme/bobs", "backspace")
	s.want("filter: @acme/bob", "1 of 5001 waiting, those with @acme/bob", "› 00001388")
	s.keys("enter")
	s.want("a approve")
	s.keys("/", "x\u202ey")
	s.want("0 of 5001 waiting, those with @acme/bobx‹U+202E›y", "filter: @acme/bobx‹U+202E›y")
	s.keys("esc")
	s.want("5001 waiting (")
}

func TestModelApproves(t *testing.T) {
	one := heldBy("alice", 1, "I promise")
	s := sitDown(t, 80, 20, one, heldBy("alice", 2, "something else"))
	// Keys pressed before the question are not its answer.
	s.hold = true
	s.keys("a", "y")
	s.want("looking…")
	s.catchUp()
	s.want("Approve buhat buhat buhat buhat?", "y yes  n no")
	s.wantNot("  ID ")
	s.keys("y")
	s.want("read to the end first")
	if taken := s.decided(); taken != nil {
		t.Errorf("took %v", taken)
	}
	s.keys("n")
	s.want("nothing was decided", "  ID ")
	s.keys("n", "go\x07 on", "enter")
	s.want("note: go")
	s.keys("a", "end")
	s.want("Approve buhat buhat buhat buhat?", "words buhat buhat buhat buhat")
	s.keys("y")
	s.want("approved: the message goes on its way (record 42)")
	want := api.ApprovalResolveParams{ApprovalID: one.ApprovalID, Decision: api.DecideApprove, Digest: s.decider.all[one.ApprovalID].Digest, Note: "go\x07 on"}
	if taken := s.decided(); len(taken) != 1 || taken[0] != want || s.model.note != "" {
		t.Errorf("took %+v, want %+v", taken, want)
	}

	// There is no question about a request that cannot be approved.
	s.decider.all[one.ApprovalID].Approvable, s.decider.all[one.ApprovalID].Blocked = false, "its rounds are used up"
	s.keys("home", "a")
	s.want("it cannot be approved: its rounds are used up", "  ID ", "  blocked       its rounds are used up")
	// A decision on a page is about that page, wherever the list is.
	s.decider.all[one.ApprovalID].Approvable = true
	// What keeps it from being approved is shown also if it may go away again.
	s.keys("enter")
	s.want("  blocked       its rounds are used up")
	s.keys("esc")
	s.keys("enter", "d", "y")
	if taken := s.decided(); len(taken) != 1 || taken[0].ApprovalID != one.ApprovalID || taken[0].Decision != api.DecideDeny {
		t.Errorf("took %+v", taken)
	}
	s.want("denied: nothing was sent")
	s.keys("r", "q")
	s.want("nothing was decided")
	s.keys("r", "y")
	if taken := s.decided(); len(taken) != 1 || taken[0].Decision != api.DecideResolve {
		t.Errorf("took %+v", taken)
	}
}

// TestModelWhileAsking changes requests while a person is asked.
func TestModelWhileAsking(t *testing.T) {
	one, two := heldBy("alice", 1, "I promise"), heldBy("bob", 2, "I agree")
	changed := *one
	changed.Given = 1
	decided := *one
	decided.State = api.ApprovalApproved
	for name, test := range map[string]struct {
		happens func(*sitting)
		says    string
	}{
		"it changes":            {func(s *sitting) { s.news(newsHeld{&changed}) }, "00000001 changed under your eyes, and is pending now: look again"},
		"it is decided":         {func(s *sitting) { s.news(newsHeld{&decided}) }, "00000001 changed under your eyes, and is approved now: look again"},
		"the daemon goes":       {func(s *sitting) { s.news(newsLost{errors.New("cut off")}) }, "the daemon is gone (cut off)"},
		"the person goes":       {func(s *sitting) { s.keys("esc") }, "nothing was decided"},
		"somebody pastes a yes": {func(s *sitting) { s.tell(tea.PasteMsg{Content: "y"}); s.keys("n") }, "nothing was decided"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sitDown(t, 80, 60, one, two)
			s.keys("a")
			s.want("Approve buhat buhat buhat buhat?")
			test.happens(s)
			s.want(test.says)
			s.keys("y")
			if taken := s.decided(); taken != nil {
				t.Errorf("took %+v", taken)
			}
		})
	}
	t.Run("another one changes", func(t *testing.T) {
		s := sitDown(t, 80, 60, one, two)
		s.keys("a")
		gone := *two
		gone.State = api.ApprovalDenied
		s.news(newsHeld{&gone})
		s.held(heldBy("alice", 0, "even before"))
		s.keys("y")
		if taken := s.decided(); len(taken) != 1 || taken[0].ApprovalID != one.ApprovalID {
			t.Errorf("took %+v", taken)
		}
	})
}

func TestModelRefusals(t *testing.T) {
	one := heldBy("alice", 1, "I promise")
	conflict := func(details map[string]any) error {
		return &api.Error{Code: api.Conflict, Message: "conflict", Details: map[string]any{"ocip": details}}
	}
	for want, err := range map[string]error{
		"it is no longer what you saw":                              conflict(map[string]any{"code": "APPROVAL_STALE"}),
		"cannot approve 00000001: it is denied already, by uid:7, ": conflict(map[string]any{"code": "APPROVAL_DECIDED", "state": "denied", "by": "uid:7", "at": askedAt.UnixMilli()}),
		"cannot approve it: no‹U+000A›key":                          errors.New("no\nkey"),
	} {
		s := sitDown(t, 80, 60, one)
		s.decider.err = err
		s.keys("a")
		s.decider.all[one.ApprovalID].Changed = []api.ApprovalChange{{Field: "policyRevision", Was: "old", Now: "new"}}
		s.keys("y")
		s.want(want, "What changed since it was last shown")
	}
	// It was decided before the page came, or does not exist.
	s := sitDown(t, 80, 60, one)
	s.decider.all[one.ApprovalID].State = api.ApprovalExpired
	s.keys("a")
	s.want("it is expired already")
	delete(s.decider.all, one.ApprovalID)
	s.keys("a")
	s.want("cannot approve it: there is no approval")
	s = sitDown(t, 80, 24)
	s.keys("a")
	s.want("nothing is chosen")
	s.keys("enter", "down", "up", "home", "end", " ", "pgup", "g", "esc")
}

func TestModelTakesOver(t *testing.T) {
	one := heldBy("alice", 1, "I promise")
	s := sitDown(t, 80, 60, one)
	s.keys("t")
	s.want("your words in its place", "    │ I promise", "ctrl+d go on")
	s.keys("esc")
	s.wantNot("your words")
	// As it is.
	s.keys("t", "ctrl+d")
	s.want("You send the message as your own, as it is", "Takeover buhat buhat buhat buhat?")
	s.keys("y")
	if taken := s.decided(); len(taken) != 1 || taken[0].Content != "" || taken[0].Decision != api.DecideTakeover || taken[0].Digest == "" {
		t.Errorf("took %+v", taken)
	}
	// In other words.
	s.keys("t", "ctrl+u")
	s.keys("ctrl+d")
	s.want("say something, or leave it with esc")
	s.keys("No.", "enter")
	s.tell(tea.PasteMsg{Content: "Not\u202e now.\r\n"})
	s.want("    │ No.", "    │ Not‹U+202E› now.")
	s.keys("ctrl+d")
	s.want("What you say in its place", "    │ Not‹U+202E› now.", "1 character of it does not show", "What the agent wrote")
	s.keys("y")
	if taken := s.decided(); len(taken) != 1 || taken[0].Content != "No.\nNot\u202e now.\n" {
		t.Errorf("took %+v", taken)
	}
	s.want("taken over: it goes on its way as yours")
	// The discarded text does not stay for the next message.
	s.keys("t", "x", "esc", "t", "ctrl+d")
	s.want("as it is")
	// A text in progress survives a change of the message.
	s.keys("n", "t", " Or not.")
	changed := *one
	changed.Given = 1
	s.held(&changed)
	s.want("changed under your eyes")
	s.keys("t")
	s.want("    │ I promise Or not.")
}

// TestModelDecidesAlike denies similar requests together, and never approves them together.
func TestModelDecidesAlike(t *testing.T) {
	all := []*api.ApprovalSummary{heldBy("alice", 1, "I promise"), heldBy("alice", 2, "I promise"), heldBy("alice", 3, "I promise"), heldBy("bob", 4, "I promise")}
	s := sitDown(t, 80, 60, all...)
	s.keys("a", "A")
	if taken := s.decided(); taken != nil {
		t.Errorf("took %+v", taken)
	}
	s.keys("n", "d")
	s.want("Deny it? There are 2 more like it.", "A yes, and the 2 like it")
	s.keys("A")
	taken := s.decided()
	if len(taken) != 3 || !slices.IsSortedFunc(taken, func(a, b api.ApprovalResolveParams) int { return strings.Compare(a.ApprovalID, b.ApprovalID) }) {
		t.Errorf("took %+v", taken)
	}
	for _, p := range taken {
		if !strings.Contains(p.ApprovalID, "alic") || p.Decision != api.DecideDeny {
			t.Errorf("took %+v", p)
		}
	}
	s.want("denied: 3 of them, the last in record 42")
	// One of them is gone meanwhile: the others stay pending, and the status says so.
	delete(s.decider.all, all[1].ApprovalID)
	s.keys("d", "A")
	if taken := s.decided(); len(taken) != 1 {
		t.Errorf("took %+v", taken)
	}
	s.want("cannot deny it: there is no approval")
	s.keys("d", "y")
	if taken := s.decided(); len(taken) != 1 {
		t.Errorf("took %+v", taken)
	}
}

// TestModelDecidesMarked shows marked requests one by one, with separate decisions;
// decisions that send nothing may go together.
func TestModelDecidesMarked(t *testing.T) {
	all := []*api.ApprovalSummary{heldBy("alice", 1, "I promise one"), heldBy("alice", 2, "I promise two"), heldBy("alice", 3, "I promise three"), heldBy("alice", 4, "I promise four")}
	s := sitDown(t, 80, 60, all...)
	s.keys("m", "down", "m", "m")
	s.want(" *00000001", "  00000002", " *00000003", "›*00000004", "3 marked")
	s.keys("a")
	s.want("1 of 3 marked", "    │ I promise one", "n not this one")
	s.keys("y")
	s.want("2 of 3 marked", "    │ I promise three")
	s.keys("n")
	s.want("3 of 3 marked", "    │ I promise four")
	s.keys("A", "y")
	if taken := s.decided(); len(taken) != 2 || taken[0].ApprovalID != all[0].ApprovalID || taken[1].ApprovalID != all[3].ApprovalID ||
		taken[0].Decision != api.DecideApprove || taken[0].Digest == "" {
		t.Errorf("took %+v", taken)
	}
	s.want("approved")
	s.wantNot("*0000")

	s.keys("home", "m", "m", "m", "esc")
	s.wantNot("*0000")
	s.keys("home", "m", "m", "m", "d")
	s.want("1 of 3 marked", "A yes, and the other 2 marked")
	s.keys("A")
	if taken := s.decided(); len(taken) != 3 || taken[2].ApprovalID != all[2].ApprovalID {
		t.Errorf("took %+v", taken)
	}
	s.want("denied: 3 of them")
	// Leaving decides nothing about the rest.
	s.keys("home", "m", "m", "d", "y", "esc")
	if taken := s.decided(); len(taken) != 1 {
		t.Errorf("took %+v", taken)
	}
	s.want("the rest stays as it is")
}

// TestModelShortMessage approves a one-word message at 80x24: all of it, what ocipd adds folded, and the
// keys are on one screen, and one key after the question sends it.
func TestModelShortMessage(t *testing.T) {
	one := heldBy("newdev", 1, "Hello.")
	one.Code, one.Reason, one.ExchangeID, one.Target = "FIRST_CONTACT", "nobody has written to this counterparty before; a person has to let the first message go", "", "zed"
	s := sitDown(t, 80, 24, one)
	full := heldInFull(one)
	full.Sending = jsontext.Value(`{"sessionKey":"irc:zed","content":"Hello.\n\n` + ocip.DisclosureLabel + `","metadata":{"aiDisclosure":"` + ocip.DisclosureLabel + `","dispatchId":"d","ocip":{"version":"1.0"},"ocipLog":{"signature":"` + strings.Repeat("x", 88) + `"},"target":"zed"}}`)
	s.decider.all[one.ApprovalID] = full
	s.keys("a")
	s.want("why           FIRST_CONTACT: ", "    │ Hello.", "to            irc:zed", ocip.DisclosureLabel, "folded        i shows what ocipd adds: ocip, ocipLog, aiDisclosure,", "dispatchId, target", "Approve buhat buhat buhat buhat?", "y yes  n no")
	s.wantNot("more line")
	s.keys("y")
	if taken := s.decided(); len(taken) != 1 || taken[0].Decision != api.DecideApprove {
		t.Errorf("took %+v", taken)
	}
}

// TestModelReadBefore approves a long message that was read on the whole screen: the question does not
// want it read again, unless it has become another one.
func TestModelReadBefore(t *testing.T) {
	one := heldBy("alice", 1, strings.Repeat("I promise this and that, and more of it by Friday.\n", 60))
	s := sitDown(t, 80, 24, one)
	s.keys("enter", "space", "a", "y")
	s.want("read to the end first")
	s.keys("n", "enter", "end", "a", "y")
	if taken := s.decided(); len(taken) != 1 || taken[0].Decision != api.DecideApprove {
		t.Errorf("took %+v", taken)
	}
	two := heldBy("alice", 2, strings.Repeat("I promise it.\n", 60))
	s.held(two)
	s.keys("down", "enter", "end")
	changed := heldInFull(two)
	changed.Digest = "sha256:" + strings.Repeat("1", 64)
	s.decider.all[two.ApprovalID] = changed
	s.keys("a", "y")
	s.want("read to the end first")
}

// TestModelPages goes through a long list by pages, counts what is marked whatever the filter, marks all
// that are listed, and says what grouping does.
func TestModelPages(t *testing.T) {
	s := sitDown(t, 80, 24, flood(100)...)
	s.keys("pgdown")
	s.want("› 00000005  mallory")
	s.keys("pgup")
	s.want("› 00000000  mallory")
	for _, keys := range [][2]string{{"ctrl+d", "ctrl+u"}, {"ctrl+f", "ctrl+b"}} {
		s.keys(keys[0])
		s.want("› 00000005  mallory")
		s.keys(keys[1])
		s.want("› 00000000  mallory")
	}
	s.keys("G")
	s.want("Promise number 99")
	s.keys("home", "m", "m")
	s.want("101 waiting, 2 marked (mallory 100, bob 1)")
	s.keys("/", "number 7", "enter")
	s.want("11 of 101 waiting, 2 marked, those with number 7")
	s.keys("M")
	s.want("13 marked")
	s.keys("M")
	s.want("2 marked")
	s.keys("M", "d")
	s.want("1 of 11 marked", "A yes, and the other 10 marked")
	s.keys("A")
	if taken := s.decided(); len(taken) != 11 || taken[10].Decision != api.DecideDeny {
		t.Errorf("took %+v", taken)
	}
	s.keys("/", "esc", "g")
	s.want("a row for each request: 101")
	s.keys("g")
	s.want("one row for equal texts, or unlikely ones, to one receiver: 101 in 101 rows")
}

// TestModelHelp explains the keys, and filters by one text.
func TestModelHelp(t *testing.T) {
	s := sitDown(t, 80, 24, heldBy("alice", 1, "number 1 of 3"), heldBy("alice", 2, "number 3"))
	s.keys("?")
	s.want("approve exactly what is shown", "mark, or no longer")
	s.keys("a")
	s.want("2 waiting")
	if taken := s.decided(); taken != nil || s.model.stage != choosing {
		t.Errorf("a key that closes the help took %+v", taken)
	}
	// On a small terminal a key shows the rest, and nothing is cut.
	s.tell(tea.WindowSizeMsg{Width: 40, Height: 15})
	s.keys("?")
	s.want("more lines: any key goes on", "choose a request;")
	s.wantNot("…")
	for pages := 1; !strings.Contains(s.see(), "any key closes this help"); pages++ {
		if s.keys("j"); pages > 5 {
			t.Fatal("the help has no end")
		}
		s.wantNot("…")
	}
	s.keys("j")
	s.want("? help  q quit")
	s.tell(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.keys("/", "Number 3")
	s.want("1 of 2 waiting, those with Number 3", "›")
	s.wantNot("number 1 of 3")
}

func TestInput(t *testing.T) {
	key := func(in *input, keys ...string) {
		for _, k := range keys {
			msg := tea.KeyPressMsg{}
			switch k {
			case "left":
				msg.Code = tea.KeyLeft
			case "right":
				msg.Code = tea.KeyRight
			case "up":
				msg.Code = tea.KeyUp
			case "down":
				msg.Code = tea.KeyDown
			case "home":
				msg.Code = tea.KeyHome
			case "end":
				msg.Code = tea.KeyEnd
			case "backspace":
				msg.Code = tea.KeyBackspace
			case "delete":
				msg.Code = tea.KeyDelete
			case "enter":
				msg.Code = tea.KeyEnter
			case "ctrl+u":
				msg.Code, msg.Mod = 'u', tea.ModCtrl
			default:
				in.insert(k)
				continue
			}
			in.key(msg)
		}
	}
	for _, test := range []struct {
		lines bool
		limit int
		keys  []string
		want  string
	}{
		{false, 9, []string{"ab", "left", "c", "home", "d", "end", "e"}, "dacbe"},
		{false, 9, []string{"ab\ncd\r\ne"}, "ab cd e"},
		{false, 4, []string{"日本"}, "日"},
		{false, 9, []string{"ab", "backspace", "backspace", "backspace", "left", "right", "delete"}, ""},
		{false, 9, []string{"ab", "enter", "ctrl+u"}, ""},
		{true, 99, []string{"ab", "enter", "cd", "up", "x", "down", "y"}, "abx\ncdy"},
		{true, 99, []string{"abcdef\nx\nyz", "up", "up", "end", "!", "down", "?", "delete", "up", "home", "ctrl+u", "-"}, "-abcdef!\nx?yz"},
		{true, 99, []string{"one\ntwo", "ctrl+u", "three"}, "one\nthree"},
		{true, 99, []string{"up", "down", "left", "right", "home", "end", "delete"}, ""},
	} {
		in := newInput("", test.lines, test.limit)
		key(&in, test.keys...)
		if in.String() != test.want {
			t.Errorf("%q types %q, want %q", test.keys, in.String(), test.want)
		}
	}
	in := newInput("one two\n日本\u202e", true, 99)
	for _, test := range []struct{ left, x, y int }{{0, 12, 1}, {1, 4, 1}, {2, 2, 1}, {3, 0, 1}, {4, 7, 0}, {11, 0, 0}} {
		in.at = len(in.text) - test.left
		lines, x, y := in.layOut(20)
		if x != test.x || y != test.y || !slices.Equal(lines, []string{"one two", "日本‹U+202E›"}) {
			t.Errorf("%d from the end is at %d, %d of %q", test.left, x, y, lines)
		}
	}
}

// A separate key approves the exchange together with its message, if that is offered, with
// the bounds on the page.
func TestExchangeOnTheScreen(t *testing.T) {
	one := heldBy("alice", 1, "I promise")
	s := sitDown(t, 100, 60, one)
	s.keys("a", "end", "x")
	if len(s.decider.taken) != 0 {
		t.Fatalf("an exchange that is not offered is approved: %+v", s.decider.taken)
	}
	s.keys("n")
	s.decider.all[one.ApprovalID].Exchange = &api.Bounds{Words: []string{"promise"}, Classification: "public", MaxRound: 9, Until: one.ExpiresAt}
	s.keys("a", "end")
	if shown := strings.Join(strings.Fields(strings.Join(s.model.page.lines, " ")), " "); !strings.Contains(shown, "promise; up to public; to round 9") || !strings.Contains(s.model.keys(), "x yes, and its exchange") {
		t.Errorf("shown is\n%s\n%s", shown, s.model.keys())
	}
	s.keys("x")
	if len(s.decider.taken) != 1 || s.decider.taken[0].Exchange == nil || s.decider.taken[0].Exchange.MaxRound != 9 {
		t.Errorf("decided is %+v", s.decider.taken)
	}
}

// A key changes the order of the list, and an effect has its own decisions.
func TestModelOfEffects(t *testing.T) {
	low, high := heldBy("alice", 1, "low"), heldBy("bob", 2, "high")
	low.Likelihood, low.LikelyBecause = "low", "keyword"
	high.Likelihood, high.LikelyBecause = "high", "acceptance"
	effect := asked(api.ApprovalOfEffect, 3)
	s := sitDown(t, 80, 24, low, high, effect)
	order := func(want ...string) {
		t.Helper()
		var got []string
		for _, row := range s.model.queue.rows {
			got = append(got, row.oldest().Summary)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the order is %q, want %q", got, want)
		}
	}
	order("deploy staging", "high", "low")
	s.want("LIKELY", " high ", " low ")
	s.keys("o")
	s.want("in the order of age")
	order("low", "high", "deploy staging")
	s.keys("/", "deploy", "enter")
	s.want("What would be done", "a approve  d deny  c changes  m mark")
	s.keys("t")
	s.want("that is no decision about an effect")
	s.keys("c", "y")
	if got := s.decided(); len(got) != 1 || got[0].Decision != api.DecideChanges || got[0].ApprovalID != effect.ApprovalID {
		t.Errorf("decided was %+v", got)
	}
}
