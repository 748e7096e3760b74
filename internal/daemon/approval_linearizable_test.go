package daemon_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
)

// approvalCall is one call about the approvals of one message. message names the bytes that the
// app asks for again and again; each final decision about them makes room for a new approval.
type approvalCall struct {
	message string
	// decision is a person's decision about the approval id, or "ask" for the app's
	// request, which names none, or "read" for approval.get.
	decision string
	id       string
}

const (
	approvalAsk  = "ask"
	approvalRead = "read"
)

// approvalAnswer is the answer to a call: the approval's id, or its state. late is set if
// somebody else was first, whose state it then is. lost is set if no answer came, so that
// the call may or may not have been carried out.
type approvalAnswer struct {
	id, state  string
	late, lost bool
}

// approvalCell is the state of one message: the newest approval, and earlier ones with
// their final states.
type approvalCell struct {
	id, state string
	before    string
}

// unseen is the id of an approval that may exist, but whose id is unknown.
const unseen = "?"

func (c approvalCell) knows(id string) bool {
	return c.id == id || strings.Contains(c.before, id+"=")
}

func (c approvalCell) stateOf(id string) string {
	if c.id == id {
		return c.state
	}
	_, rest, _ := strings.Cut(c.before, id+"=")
	state, _, _ := strings.Cut(rest, ";")
	return state
}

// ask makes a new approval, if none is pending.
func (c approvalCell) ask(id string) approvalCell {
	if c.id != "" {
		c.before += c.id + "=" + c.state + ";"
	}
	c.id, c.state = id, api.ApprovalPending
	return c
}

// meet gives the approval with an unknown id the id seen now.
func (c approvalCell) meet(id string) approvalCell {
	if c.id == unseen && !c.knows(id) {
		c.id = id
	}
	return c
}

// approvalEnds maps a decision to its final state.
func approvalEnds(decision string) string {
	return map[string]string{
		api.DecideApprove: api.ApprovalApproved, api.DecideDeny: api.ApprovalDenied,
		api.DecideTakeover: api.ApprovalTakenOver, api.DecideResolve: api.ApprovalResolved,
	}[decision]
}

// step returns the possible states after a call with an answer, or none if the answer is impossible.
func (c approvalCell) step(in approvalCall, out approvalAnswer) []approvalCell {
	if in.decision == approvalAsk {
		return c.stepAsk(out)
	}
	if in.decision == approvalRead && out == (approvalAnswer{}) {
		// There is none.
		if c.knows(in.id) {
			return nil
		}
		return []approvalCell{c}
	}
	met := c.meet(in.id)
	state, decided := met.stateOf(in.id), met
	decided.state = approvalEnds(in.decision)
	switch {
	case out.lost && in.decision != approvalRead && met.id == in.id && met.state == api.ApprovalPending:
		return []approvalCell{met, decided}
	case out.lost:
		return []approvalCell{met}
	case in.decision == approvalRead:
		if state == out.state {
			return []approvalCell{met}
		}
	case out.late:
		if state == out.state && state != api.ApprovalPending && state != "" {
			return []approvalCell{met}
		}
	case state == api.ApprovalPending && decided.state == out.state:
		return []approvalCell{decided}
	}
	return nil
}

func (c approvalCell) stepAsk(out approvalAnswer) []approvalCell {
	waits := c.state == api.ApprovalPending
	switch {
	case out.lost && waits:
		return []approvalCell{c}
	case out.lost:
		return []approvalCell{c, c.ask(unseen)}
	case waits:
		if met := c.meet(out.id); met.id == out.id {
			return []approvalCell{met}
		}
	case !c.knows(out.id):
		return []approvalCell{c.ask(out.id)}
	}
	return nil
}

// approvalModel specifies approvals: the first decision about each wins, and until then the
// same request is the same approval.
func approvalModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{approvalCell{}} },
		Step: func(state, input, output any) (next []any) {
			for _, c := range state.(approvalCell).step(input.(approvalCall), output.(approvalAnswer)) {
				next = append(next, c)
			}
			return next
		},
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byMessage := make(map[string][]porcupine.Operation)
			for _, op := range history {
				message := op.Input.(approvalCall).message
				byMessage[message] = append(byMessage[message], op)
			}
			return slices.Collect(maps.Values(byMessage))
		},
	}
	return model.ToModel()
}

// Several people decide about the same held messages at once, while the app asks again and
// the daemon is stopped. To everybody it looks as if the calls came one after the other.
func TestApprovalsAreLinearizable(t *testing.T) {
	r := newApprovalRace(t)
	for round := range 5 {
		r.round(uint64(round))
	}
	history := r.settle()
	result := porcupine.CheckOperationsTimeout(approvalModel(), history, patience)
	if result != porcupine.Ok {
		t.Errorf("the history is %s:\n%s", result, describeHistory(history))
	}
	t.Logf("%d calls: %v", len(history), r.counts())
	// A history in which one decision was made twice is rejected.
	for _, op := range history {
		if in, out := op.Input.(approvalCall), op.Output.(approvalAnswer); approvalEnds(in.decision) == "" || out.late || out.lost {
			continue
		}
		op.Call, op.Return = r.clock.Add(1), r.clock.Add(1)
		if porcupine.CheckOperations(approvalModel(), append(slices.Clone(history), op)) {
			t.Errorf("nobody minds that %+v is done twice", op.Input)
		}
		break
	}
}

// approvalRace is apps that ask and people who decide.
type approvalRace struct {
	*testing.T
	h     *harness
	asks  []approvalRequest
	clock atomic.Int64

	mu      sync.Mutex
	history []porcupine.Operation
	// ids holds the approvals of each message, in the order of sight.
	ids map[string][]string
	// digests holds the digest of each shown approval, which must never change.
	digests map[string]string
}

// approvalRequest is a message that is requested again and again.
type approvalRequest struct{ app, session, content string }

func newApprovalRace(t *testing.T) *approvalRace {
	return &approvalRace{
		// A stop does not wait for requests in flight: their answers are lost.
		T: t, h: build(t, acme+"drain_timeout: 0s\n"),
		asks: []approvalRequest{
			{"@acme/alice", "telegram:dave", "I promise to do it by Friday"},
			{"@acme/alice", "agent:bob:main", "I promise to do it by Monday"},
			{"@acme/bob", "telegram:dave", "I promise to do it by Sunday"},
		},
		ids: make(map[string][]string), digests: make(map[string]string),
	}
}

// The number of people who decide at once, and the number of calls after which the daemon is stopped.
const (
	approvalPeople = 4
	approvalCalls  = 150
)

// round lets everybody work until the daemon is stopped, and starts it again.
func (r *approvalRace) round(seed uint64) {
	r.Helper()
	apps := make(map[string]*app)
	for _, id := range []string{"@acme/alice", "@acme/bob"} {
		apps[id] = r.h.register(id, api.Capabilities{}, client.WithDropEvents())
		apps[id].must("app.ready", nil, nil)
	}
	var (
		wg    sync.WaitGroup
		calls atomic.Int64
	)
	enough := make(chan struct{})
	work := func(step func() bool) {
		wg.Go(func() {
			for step() {
				// On a busy machine people ask many times before the first message is held.
				if r.begun() && calls.Add(1) == approvalCalls {
					close(enough)
				}
			}
			if calls.Load() < approvalCalls {
				r.Error("somebody cannot go on")
			}
		})
	}
	for i, ask := range r.asks {
		work(func() bool { return r.ask(i, apps[ask.app], ask) })
	}
	for i := range approvalPeople {
		person, random := r.h.operates(), rand.New(rand.NewPCG(seed, uint64(i)))
		work(func() bool { return r.decide(len(r.asks)+i, person, random) })
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		wg.Wait()
	}()
	select {
	case <-enough:
	case <-idle:
	}
	before := r.clock.Load()
	r.h.stop()
	<-idle
	// An unanswered call is carried out before the daemon has stopped, or never.
	stopped := r.clock.Add(1)
	for i := range r.history {
		if op := &r.history[i]; op.Return > before && op.Output.(approvalAnswer).lost {
			op.Return = stopped
		}
	}
	r.h.start()
}

// begun reports whether any message has been held.
func (r *approvalRace) begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids) > 0
}

// call makes a call and adds it to the history. It returns false once the connection has ended.
func (r *approvalRace) call(who int, in approvalCall, do func() (approvalAnswer, error)) bool {
	called := r.clock.Add(1)
	out, err := do()
	op := porcupine.Operation{ClientId: who, Input: in, Call: called, Return: r.clock.Add(1)}
	var failure *api.Error
	switch {
	case err == nil:
	case !errors.As(err, &failure):
		r.Errorf("%+v: %v", in, err)
		return false
	case failure.Code == api.ConnectionClosed:
		out.lost = true
	case failure.Code == api.Conflict && api.DetailsOf[api.Obstacle](failure).Code == api.AlreadyDecided:
		out.late, out.state = true, api.DetailsOf[api.Obstacle](failure).State
	case failure.Code == api.InternalError && strings.HasSuffix(failure.Message, "so nothing was done: the daemon is stopping"):
		return true
	default:
		r.Errorf("%+v: %v", in, err)
		return false
	}
	op.Output = out
	if out.lost && in.decision == approvalRead {
		return false // it says nothing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
	if out.id != "" && !slices.Contains(r.ids[in.message], out.id) {
		r.ids[in.message] = append(r.ids[in.message], out.id)
	}
	return !out.lost
}

func (r *approvalRace) ask(who int, a *app, ask approvalRequest) bool {
	return r.call(who, approvalCall{message: ask.content, decision: approvalAsk}, func() (approvalAnswer, error) {
		var result api.DispatchResult
		err := a.call("message.dispatch", map[string]any{
			"sessionKey": ask.session, "content": ask.content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
		}, &result)
		if err == nil && (!result.Held || result.ApprovalID == "") {
			err = fmt.Errorf("not held: %+v", result)
		}
		return approvalAnswer{id: result.ApprovalID}, err
	})
}

// decide is one call of one person about one of the two newest approvals of some message.
func (r *approvalRace) decide(who int, person *app, random *rand.Rand) bool {
	message := r.asks[random.IntN(len(r.asks))].content
	r.mu.Lock()
	ids := r.ids[message]
	if len(ids) == 0 {
		r.mu.Unlock()
		return r.read(who, person, message, "none-yet")
	}
	id := ids[max(0, len(ids)-1-random.IntN(2))]
	digest := r.digests[id]
	r.mu.Unlock()
	if digest == "" || random.IntN(4) == 0 {
		return r.read(who, person, message, id)
	}
	decision := api.DecisionsOf(api.ApprovalOfMessage)[random.IntN(len(api.DecisionsOf(api.ApprovalOfMessage)))]
	return r.call(who, approvalCall{message: message, decision: decision, id: id}, func() (approvalAnswer, error) {
		var result api.ApprovalResolveResult
		err := person.call("approval.resolve", map[string]any{"approvalId": id, "decision": decision, "digest": digest}, &result)
		return approvalAnswer{state: result.State}, err
	})
}

func (r *approvalRace) read(who int, person *app, message, id string) bool {
	return r.call(who, approvalCall{message: message, decision: approvalRead, id: id}, func() (approvalAnswer, error) {
		var got api.Approval
		err := person.call("approval.get", map[string]any{"approvalId": id}, &got)
		if failure, ok := errors.AsType[*api.Error](err); ok && failure.Code == api.NotFound {
			return approvalAnswer{}, nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if was := r.digests[id]; err == nil && was != "" && was != got.Digest {
			err = fmt.Errorf("approval %s shows digest %s, and showed %s", id, got.Digest, was)
		}
		if err == nil {
			r.digests[id] = got.Digest
		}
		return approvalAnswer{state: got.State}, err
	})
}

// settle reads every approval once more after the last start, compares the evidence with
// it, and returns the history.
func (r *approvalRace) settle() []porcupine.Operation {
	r.Helper()
	person := r.h.operates()
	for _, ask := range r.asks {
		for _, id := range r.ids[ask.content] {
			r.read(0, person, ask.content, id)
		}
	}
	r.h.verify()
	type evidence struct{ final, allowed int }
	found := make(map[string]*evidence)
	dispatch := make(map[string]string)
	var list api.ApprovalListResult
	r.h.operator("approval.list", map[string]any{"state": "all", "limit": 1000}, &list)
	for _, raw := range list.Approvals {
		var a api.ApprovalSummary
		(&app{t: r}).decode(raw, &a)
		found[a.ApprovalID], dispatch[a.ApprovalID] = new(evidence), a.DispatchID
	}
	for _, e := range r.everyRecord() {
		is := found[e.ApprovalID]
		switch {
		case e.ApprovalID == "" || e.Event == "held_text_read":
		case is == nil:
			r.Errorf("record %d is about approval %s, which there is not", e.Seq, e.ApprovalID)
		case e.DispatchID != dispatch[e.ApprovalID]:
			r.Errorf("record %d of approval %s is about message %s, want %s", e.Seq, e.ApprovalID, e.DispatchID, dispatch[e.ApprovalID])
		case e.ActionType == audit.ActionApproval && e.Event != "asked_again" && e.Event != "escalated":
			is.final++
		case e.Side == audit.SideSender && e.PolicyResult == "allow":
			is.allowed++
		}
	}
	for _, raw := range list.Approvals {
		var a api.ApprovalSummary
		(&app{t: r}).decode(raw, &a)
		want := evidence{final: 1}
		switch a.State {
		case api.ApprovalPending:
			want.final = 0
		case api.ApprovalApproved, api.ApprovalTakenOver:
			want.allowed = 1
		}
		if got := *found[a.ApprovalID]; got != want {
			r.Errorf("approval %s is %s, and has %+v records, want %+v", a.ApprovalID, a.State, got, want)
		}
	}
	return r.history
}

// everyRecord returns the whole log.
func (r *approvalRace) everyRecord() (entries []audit.Entry) {
	r.Helper()
	params := map[string]any{"limit": 1000}
	for {
		var page api.AuditQueryResult
		r.h.operator("audit.query", params, &page)
		for _, line := range page.Records {
			e, err := audit.Parse(line)
			if err != nil {
				r.Fatal(err)
			}
			entries = append(entries, e)
		}
		if page.NextBefore == 0 {
			return entries
		}
		params["before"] = page.NextBefore
	}
}

// counts describes the history, and fails if a part is missing, because then nothing was shown.
func (r *approvalRace) counts() map[string]int {
	r.Helper()
	counts := make(map[string]int)
	seen := make(map[string]bool)
	for _, op := range r.history {
		in, out := op.Input.(approvalCall), op.Output.(approvalAnswer)
		switch {
		case out.lost:
			counts["lost"]++
		case out.late:
			counts["late"]++
		case in.decision == approvalAsk && seen[out.id]:
			counts["asked again"]++
		default:
			counts[in.decision]++
		}
		seen[out.id] = true
	}
	for _, want := range append(api.DecisionsOf(api.ApprovalOfMessage), approvalAsk, approvalRead, "asked again", "late", "lost") {
		if counts[want] == 0 {
			r.Errorf("there is no %q among %v", want, counts)
		}
	}
	return counts
}

func describeHistory(history []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range slices.SortedFunc(slices.Values(history), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) }) {
		fmt.Fprintf(&b, "%d–%d client %d: %+v → %+v\n", op.Call, op.Return, op.ClientId, op.Input, op.Output)
	}
	return b.String()
}

// The model rejects histories with faults, and accepts correct ones.
func TestApprovalHistories(t *testing.T) {
	ask := func(id string) [2]any { return [2]any{approvalCall{decision: approvalAsk}, approvalAnswer{id: id}} }
	lostAsk := [2]any{approvalCall{decision: approvalAsk}, approvalAnswer{lost: true}}
	does := func(decision, id string) [2]any {
		return [2]any{approvalCall{decision: decision, id: id}, approvalAnswer{state: approvalEnds(decision)}}
	}
	late := func(decision, id, state string) [2]any {
		return [2]any{approvalCall{decision: decision, id: id}, approvalAnswer{state: state, late: true}}
	}
	lost := func(decision, id string) [2]any {
		return [2]any{approvalCall{decision: decision, id: id}, approvalAnswer{lost: true}}
	}
	reads := func(id, state string) [2]any {
		return [2]any{approvalCall{decision: approvalRead, id: id}, approvalAnswer{state: state}}
	}
	for _, tc := range []struct {
		name  string
		legal bool
		// calls come one after the other; lost ones never end.
		calls [][2]any
	}{
		{"one decides, another is told", true, [][2]any{ask("a"), does("approve", "a"), late("deny", "a", "approved"), reads("a", "approved")}},
		{"asked again while it waits", true, [][2]any{ask("a"), ask("a"), does("deny", "a"), ask("b"), reads("a", "denied"), reads("b", "pending")}},
		{"a lost decision was carried out", true, [][2]any{ask("a"), lost("deny", "a"), late("approve", "a", "denied")}},
		{"a lost decision was not carried out", true, [][2]any{ask("a"), lost("deny", "a"), does("approve", "a")}},
		{"a lost request was carried out", true, [][2]any{lostAsk, ask("a"), reads("a", "pending")}},
		{"there is none yet", true, [][2]any{lostAsk, reads("b", ""), ask("a"), reads("b", "")}},
		{"a lost decision makes room", true, [][2]any{ask("a"), lost("resolve", "a"), ask("b"), reads("a", "resolved")}},
		{"decided twice", false, [][2]any{ask("a"), does("approve", "a"), does("deny", "a")}},
		{"approved twice", false, [][2]any{ask("a"), does("approve", "a"), does("approve", "a")}},
		{"told of a winner who was not", false, [][2]any{ask("a"), does("approve", "a"), late("deny", "a", "denied")}},
		{"told of a winner while it waits", false, [][2]any{ask("a"), late("deny", "a", "approved")}},
		{"two wait for the same", false, [][2]any{ask("a"), ask("b")}},
		{"a decided one waits again", false, [][2]any{ask("a"), does("deny", "a"), ask("a")}},
		{"a decision is forgotten", false, [][2]any{ask("a"), does("takeover", "a"), reads("a", "pending")}},
		{"an approval is forgotten", false, [][2]any{ask("a"), reads("a", "")}},
		{"a decision comes from nowhere", false, [][2]any{ask("a"), reads("a", "approved")}},
		{"a lost decision changes its mind", false, [][2]any{ask("a"), lost("deny", "a"), reads("a", "denied"), reads("a", "pending")}},
		{"a lost decision is another", false, [][2]any{ask("a"), lost("deny", "a"), reads("a", "approved")}},
		{"a lost request makes two", false, [][2]any{lostAsk, reads("a", "pending"), reads("b", "pending")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var history []porcupine.Operation
			for i, call := range tc.calls {
				op := porcupine.Operation{ClientId: i, Input: call[0], Output: call[1], Call: int64(2 * i), Return: int64(2*i + 1)}
				if call[1].(approvalAnswer).lost {
					op.Return = 1000
				}
				history = append(history, op)
			}
			if got := porcupine.CheckOperations(approvalModel(), history); got != tc.legal {
				t.Errorf("the history is legal: %t, want %t", got, tc.legal)
			}
		})
	}
}
