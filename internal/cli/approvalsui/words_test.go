package approvalsui

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
)

// asked is the n-th request of a task, of one kind.
func asked(kind string, n int) *api.ApprovalSummary {
	a := heldBy("builder", n, "deploy staging")
	*a = api.ApprovalSummary{
		ApprovalID: a.ApprovalID, Kind: kind, TaskID: "tsk_1", State: a.State, Code: strings.ToUpper(kind), AgentID: "builder", Agent: "task:tsk_1",
		Summary: a.Summary, AskedAt: a.AskedAt, ExpiresAt: a.ExpiresAt, Approvable: true, Needed: 1,
	}
	return a
}

// Each kind of request has words for each of its decisions, and for no other; a message and
// a tool call also for withdrawn approvals.
func TestEachKindHasItsWords(t *testing.T) {
	for _, kind := range []string{api.ApprovalOfMessage, api.ApprovalOfEscalation, api.ApprovalOfEffect, api.ApprovalOfPermission, api.ApprovalOfDelivery} {
		w := describe.WordsOf(kind)
		said, offered := slices.Sorted(maps.Keys(w.Does)), api.DecisionsOf(kind)
		slices.Sort(offered)
		_, takenBack := w.Done[api.ApprovalRevoked]
		results := len(offered)
		if takenBack {
			results++
		}
		if !slices.Equal(said, offered) || len(w.Done) != results || takenBack != (kind == api.ApprovalOfMessage || kind == api.ApprovalOfPermission) {
			t.Errorf("%s has words for %q and what %q did, want %q", kind, said, slices.Sorted(maps.Keys(w.Done)), offered)
		}
		if kind == api.ApprovalOfMessage {
			continue
		}
		a := heldInFull(asked(kind, 1))
		a.Sending = nil
		var page strings.Builder
		if err := writeApproval(&page, term.Screen{Width: 100}, a, askedAt); err != nil {
			t.Fatal(err)
		}
		for _, decision := range offered {
			if (decision != api.DecideApprove || a.Approvable) && !strings.Contains(page.String(), "\n  ocipd approvals "+CommandOf(decision)+" "+a.ApprovalID+"\n      "+w.Does[decision]+"\n") {
				t.Errorf("%s: %s is not offered in\n%s", kind, decision, page.String())
			}
		}
		if text := page.String() + describe.Decided(kind, api.ApprovalResolveResult{State: api.ApprovalPending}) + describe.NotOffered(kind); strings.Contains(text, "message") || strings.Contains(text, "wrote") {
			t.Errorf("%s is spoken of as a message:\n%s", kind, text)
		}
	}
}

func TestEffectPage(t *testing.T) {
	a := heldInFull(asked(api.ApprovalOfEffect, 1))
	a.Sending = nil
	var page strings.Builder
	if err := writeApproval(&page, term.Screen{Width: 100}, a, askedAt); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		": pending\nbuilder, task tsk_1\n  why           EFFECT\n\nWhat would be done\n    │ deploy staging\n",
		"\nWhere it comes from\n  agent         builder\n  task          tsk_1\n  level         \n  asked ",
		"\n  ocipd approvals request-changes " + a.ApprovalID + "\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in\n%s", want, page.String())
		}
	}
	for state, want := range map[string]string{
		api.ApprovalPending: "1 of 2 approvals are given: the task goes on waiting (record 7)", api.ApprovalApproved: "approved: the task may do it once (record 7)",
		api.ApprovalDenied: "denied: the task does not do it (record 7)", api.ApprovalRequestChanges: "request changes: the task does not do it, and may ask for something else (record 7)",
		api.ApprovalRevoked: "revoked (record 7)",
	} {
		if got := describe.Decided(api.ApprovalOfEffect, api.ApprovalResolveResult{State: state, Needed: 2, Given: 1, AuditSeq: 7}); got != want {
			t.Errorf("%s is %q, want %q", state, got, want)
		}
	}
	p := &People{}
	for decision, want := range map[string]string{
		api.DecideTakeover: "cannot takeover " + a.ApprovalID + ": that is no decision about an effect; deny it, or ask for changes",
		api.DecideApprove:  "cannot approve " + a.ApprovalID + ": it may not be done; deny it, or ask for changes",
		api.DecideChanges:  "",
	} {
		a.Approvable = false
		if err := p.mayDecide(a, decision, ""); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", decision, err, want)
		}
	}
}

// A list names every ground of a request, in the daemon's order, and so do its page and the filter. Of
// requests that a rule holds, those with likely words come first.
func TestEveryGroundIsShown(t *testing.T) {
	held := func(n int, grounds ...ocip.Ground) *api.ApprovalSummary {
		a := heldBy("alice", n, "the same words")
		a.Code, a.Reasons = string(grounds[len(grounds)-1].Code), grounds
		for _, g := range grounds {
			if g.Likelihood != "" {
				a.Guess = g.Guess
			}
		}
		return a
	}
	words := func(l commitment.Likelihood) ocip.Ground {
		return ocip.Ground{Code: ocip.CommitmentRequiresHuman, Reason: "commitment keywords: promise", Guess: ocip.Guess{Likelihood: l, LikelyBecause: "keyword"}}
	}
	first := ocip.Ground{Code: ocip.FirstContactHeld, Reason: "nobody has written to them"}
	all := []*api.ApprovalSummary{held(1, first), held(2, words(commitment.High), first), held(3, first, words(commitment.Low)), held(4, words(commitment.High))}
	if got := describe.Why(all[1]); got != "commitment, first contact" {
		t.Errorf("the list says %q", got)
	}
	if len(alike(all)) != 4 {
		t.Error("requests with other grounds are one row")
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, before(OrderLikelihood))
	for i, want := range []int{1, 0, 2, 3} {
		if sorted[i] != all[want] {
			t.Errorf("number %d is %s", i, sorted[i].ApprovalID)
		}
	}
	var page strings.Builder
	if err := writeApproval(&page, term.Screen{Width: 100}, heldInFull(all[1]), askedAt); err != nil {
		t.Fatal(err)
	}
	const want = "  why           It has a word that can commit somebody\n  why           FIRST_CONTACT: nobody has written to them\n  likely        high\n"
	if !strings.Contains(page.String(), want) {
		t.Errorf("%q is not in\n%s", want, page.String())
	}
	for _, filter := range []string{"first contact", "commitment_requires", "commitment"} {
		if !matches(all[1], filter) {
			t.Errorf("%q does not find it", filter)
		}
	}
}

// A list begins with requests that are not held by a guess, then the likeliest; of two
// equal ones the older comes first. Reasons follow.
func TestOrders(t *testing.T) {
	likely := func(n int, l commitment.Likelihood) *api.ApprovalSummary {
		a := heldBy("alice", n, "the same words")
		a.Likelihood = l
		if l != "" {
			a.LikelyBecause = "keyword"
		}
		return a
	}
	all := []*api.ApprovalSummary{likely(1, "low"), likely(2, "high"), likely(3, ""), likely(4, "medium"), likely(5, "high"), likely(6, "low"), likely(7, "of tomorrow")}
	for order, want := range map[string][]int{OrderLikelihood: {3, 7, 2, 5, 4, 1, 6}, OrderAge: {1, 2, 3, 4, 5, 6, 7}} {
		sorted := slices.Clone(all)
		slices.SortFunc(sorted, before(order))
		var got []int
		for _, a := range sorted {
			got = append(got, slices.Index(all, a)+1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in the order of %s they are %v, want %v", order, got, want)
		}
	}
	slices.SortFunc(all, before(OrderLikelihood))
	at := newTable(all, "", askedAt)
	at.rows = alike(all)
	lines := strings.Join(at.lines(term.Screen{Width: 120}), "\n")
	if len(at.rows) != 5 || !strings.Contains(lines, "LIKELY") || !strings.Contains(lines, "  high  ") {
		t.Errorf("the list is\n%s", lines)
	}
	for _, width := range []int{80, 40} {
		for _, line := range at.lines(term.Screen{Terminal: true, Width: width}) {
			if term.Width(line) > width && width == 80 {
				t.Errorf("a line is %d wide: %q", term.Width(line), line)
			}
		}
	}
	a := heldInFull(likely(1, "low"))
	if page := strings.Join(approvalPage(term.Screen{Width: 80}, a, askedAt, true), "\n"); !strings.Contains(page, "\n  likely        low\n") {
		t.Errorf("the page is\n%s", page)
	}
}
