package roundtest

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/ocip"
)

// History holds calls and their answers in the order in which they were seen to
// happen. Any number of goroutines may add to it.
type History struct {
	mu sync.Mutex
	// now counts calls and answers: only their order matters.
	now int64
	ops []porcupine.Operation
	// lost are the calls that still wait for an end.
	lost []int
}

// tick is the next moment of the history.
func (h *History) tick() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// answered enters a call with its answer, which came just now.
func (h *History) answered(client int, in Input, out Output) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: in.Call, Output: out, Return: h.now})
}

// unanswered enters a call that lost its connection. One that only looks has
// nothing to say then.
func (h *History) unanswered(client int, in Input) {
	if in.Action == Get {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = append(h.lost, len(h.ops))
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: in.Call, Output: Output{Lost: true}})
}

// ended says that the daemon is gone, and with it what it had not done yet. It
// returns the calls that nobody knows about.
func (h *History) ended() []Input {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := make([]Input, len(h.lost))
	for i, op := range h.lost {
		h.now++
		h.ops[op].Return = h.now
		lost[i] = h.ops[op].Input.(Input)
	}
	h.lost = nil
	return lost
}

// Operations returns what was recorded, for those who want to doctor it.
func (h *History) Operations() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// String counts the calls.
func (h *History) String() string {
	calls, sends, refusals, lost := 0, 0, 0, 0
	for _, op := range h.Operations() {
		calls++
		switch in, out := op.Input.(Input), op.Output.(Output); {
		case out.Lost:
			lost++
		case in.Action == Dispatch && out.Code == "":
			sends++
		case in.Action == Dispatch:
			refusals++
		}
	}
	return fmt.Sprintf("%d calls: %d messages sent, %d refused, %d calls not answered", calls, sends, refusals, lost)
}

// checking bounds how long an explanation is looked for.
const checking = time.Minute

// Judge says whether the rules allow a history, or that it cannot tell.
func (r Rules) Judge(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(r.model(), history, checking)
}

// Check fails the test if the rules do not allow the history. The failure names the
// calls after which no other call fits, and the file with a picture of the history,
// which go test -artifacts keeps.
func (h *History) Check(t testing.TB, r Rules) {
	t.Helper()
	t.Log(h)
	for _, want := range h.missing() {
		t.Errorf("the load proves little: nowhere in it is %s", want)
	}
	model := r.model()
	for pair, part := range byPair(h.Operations()) {
		// To look for the longest explanation takes longer than to find one.
		if r.Judge(part) == porcupine.Ok {
			continue
		}
		result, info := porcupine.CheckOperationsVerbose(model, part, checking)
		picture := filepath.Join(t.ArtifactDir(), fmt.Sprintf("pair%d.html", pair))
		if err := porcupine.VisualizePath(model, info, picture); err != nil {
			t.Error(err)
		}
		t.Errorf("the history of pair %d cannot be explained (%s), picture (kept by go test -artifacts): %s\n%s",
			pair, result, picture, stuck(model, part, &info))
	}
}

// missing lists what a history must have in it to be worth a check.
func (h *History) missing() []string {
	wanted := []struct {
		what string
		is   func(in Input, out Output) bool
	}{
		{"a second round", func(_ Input, out Output) bool { return out.Code == "" && out.Round > 1 }},
		{"an exchange with its rounds used up", func(_ Input, out Output) bool { return out.Code == string(ocip.RoundLimit) && out.Escalated == "" }},
		{"a new exchange refused", func(in Input, out Output) bool { return in.New && out.Escalated != "" }},
		{"a closed exchange", func(_ Input, out Output) bool { return out.Code == string(ocip.ExchangeClosed) }},
		{"an escalation settled by a person", func(in Input, out Output) bool { return in.Action == Resolve && in.By == Operator && out == Output{} }},
		{"a send that was not answered", func(in Input, out Output) bool { return in.Action == Dispatch && out.Lost }},
	}
	var missing []string
	for _, w := range wanted {
		found := slices.ContainsFunc(h.Operations(), func(op porcupine.Operation) bool { return w.is(op.Input.(Input), op.Output.(Output)) })
		if !found {
			missing = append(missing, w.what)
		}
	}
	return missing
}

// Bounds of the description of a fault: the calls before it, and the bytes of the
// state that the daemon should have then.
const (
	toldCalls = 12
	toldState = 2000
)

// stuck tells how far the history of a pair can be explained.
func stuck(model porcupine.Model, history []porcupine.Operation, info *porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	if len(longest) == len(history) {
		return ""
	}
	placed, before := make(map[int64]bool), model.Init()
	for _, op := range longest {
		placed[op.Call] = true
		_, before = model.Step(before, op.Input, op.Output)
	}
	left := slices.DeleteFunc(slices.Clone(history), func(op porcupine.Operation) bool { return placed[op.Call] })
	// Only what was called before any of them was answered can be next.
	first := slices.MinFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) }).Return
	left = slices.DeleteFunc(left, func(op porcupine.Operation) bool { return op.Call > first })

	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d calls are explained, the last of them\n", len(longest), len(history))
	tell(&b, model, longest[max(0, len(longest)-toldCalls):])
	held := model.DescribeState(before)
	fmt.Fprintf(&b, "which leads to\n  %s\nand then none of these fits\n", held[:min(len(held), toldState)])
	tell(&b, model, left)
	return b.String()
}

func tell(b *strings.Builder, model porcupine.Model, ops []porcupine.Operation) {
	for _, op := range ops {
		fmt.Fprintf(b, "  [%d, %d] %s\n", op.Call, op.Return, model.DescribeOperation(op.Input, op.Output))
	}
}
