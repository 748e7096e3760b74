package roundtest

import (
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// moment places a call in a history that is written down line by line. By
// default a call is answered before the next line is made; with until, it is
// under way up to the end of that line.
type moment struct {
	in    Input
	out   Output
	until int
}

// history writes the lines out. Line n begins at 10n.
func history(lines []moment) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(lines))
	for n, m := range lines {
		m.in.Call = int64(10 * n)
		ops[n] = porcupine.Operation{ClientId: n, Input: m.in, Call: m.in.Call, Output: m.out, Return: int64(10*max(n, m.until) + 5)}
	}
	return ops
}

func send(by Party, session string) Input { return Input{Action: Dispatch, By: by, Session: session} }

func sendTo(id string, by Party) Input {
	return Input{Action: Dispatch, By: by, Session: "x", ID: id}
}

// An exchange that nobody named has its conversation's id. To keep these lines
// short, the others have too.
func sent(id string, round int) Output {
	return Output{ExchangeID: id, Conversation: id, Round: round, MaxRounds: 3}
}

func sentOf(id string, round, limit int) Output {
	return Output{ExchangeID: id, Conversation: id, Round: round, MaxRounds: limit}
}

func tooMany(id string, round, limit int) Output {
	return Output{Code: string(ocip.RoundLimit), ExchangeID: id, Conversation: id, Round: round, MaxRounds: limit}
}

func inTheWay(of, is string) Output {
	return Output{Code: string(ocip.RoundLimit), ExchangeID: of, Conversation: of, Escalated: is}
}

func closed(id string) Output {
	return Output{Code: string(ocip.ExchangeClosed), ExchangeID: id, Conversation: id}
}

func look(id string) Input   { return Input{Action: Get, By: Operator, ID: id} }
func settle(id string) Input { return Input{Action: Resolve, By: Operator, ID: id} }

func both(round, limit int, outcome ocip.Outcome) Output {
	side := Side{Round: round, MaxRounds: limit, Outcome: outcome}
	return Output{Sides: [2]Side{side, side}}
}

func withNew(in Input) Input {
	in.New = true
	return in
}

func withMax(in Input, limit int) Input {
	in.MaxRounds = limit
	return in
}

// The model allows what the protocol allows and nothing else: each history that
// is refused is one that a daemon with a fault would leave behind.
func TestRules(t *testing.T) {
	lost := Output{Lost: true}
	// usedUp leaves exchange e with three rounds of three, and one that was
	// refused.
	usedUp := []moment{
		{in: send(First, "main"), out: sent("e", 1)},
		{in: send(Second, "main"), out: sent("e", 2)},
		{in: send(First, "main"), out: sent("e", 3)},
		{in: send(First, "main"), out: tooMany("e", 4, 3)},
	}
	after := func(more ...moment) []moment { return append(slices.Clip(usedUp), more...) }
	for _, test := range []struct {
		name    string
		allowed bool
		lines   []moment
	}{
		{"both sides count", true, after()},
		{"racing sends, in either order", true, []moment{
			{in: sendTo("e", First), out: sent("e", 2), until: 2},
			{in: sendTo("e", Second), out: sent("e", 3), until: 2},
			{in: sendTo("e", First), out: sent("e", 1)},
		}},
		{"two racing sends share a round", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", First), out: sent("e", 2), until: 2},
			{in: sendTo("e", Second), out: sent("e", 2)},
		}},
		{"two racing sends both open it", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1), until: 1},
			{in: sendTo("e", Second), out: sent("e", 1)},
		}},
		{"a round is skipped", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", First), out: sent("e", 3)},
		}},
		{"a later send gets an earlier round", false, []moment{
			{in: sendTo("e", First), out: sent("e", 2)},
			{in: sendTo("e", First), out: sent("e", 1)},
		}},
		{"one round too many", false, []moment{
			{in: send(First, "main"), out: sent("e", 1)},
			{in: send(First, "main"), out: sent("e", 2)},
			{in: send(First, "main"), out: sent("e", 3)},
			{in: send(First, "main"), out: sent("e", 4)},
		}},
		{"refused with rounds left", false, []moment{
			{in: send(First, "main"), out: sent("e", 1)},
			{in: send(Second, "main"), out: tooMany("e", 2, 3)},
		}},

		{"the limit goes down", true, []moment{
			{in: withMax(sendTo("e", First), 2), out: sentOf("e", 1, 2)},
			{in: sendTo("e", Second), out: sentOf("e", 2, 2)},
			{in: withMax(sendTo("e", First), 3), out: tooMany("e", 3, 2)},
		}},
		{"the limit grows", false, []moment{
			{in: withMax(sendTo("e", First), 2), out: sentOf("e", 1, 2)},
			{in: withMax(sendTo("e", Second), 3), out: sent("e", 2)},
		}},
		{"the limit grows unseen", false, []moment{
			{in: withMax(sendTo("e", First), 2), out: sentOf("e", 1, 2)},
			{in: look("e"), out: both(1, 3, ocip.InProgress)},
		}},

		{"an answer that never came, in effect", true, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: lost},
			{in: look("e"), out: both(2, 3, ocip.InProgress)},
			{in: sendTo("e", First), out: sent("e", 3)},
		}},
		{"an answer that never came, without effect", true, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: lost},
			{in: look("e"), out: both(1, 3, ocip.InProgress)},
			{in: sendTo("e", First), out: sent("e", 2)},
		}},
		{"an exchange that nobody was told of goes on", true, []moment{
			{in: send(First, "main"), out: lost},
			{in: send(Second, "main"), out: sent("e", 2)},
			{in: look("e"), out: both(2, 3, ocip.InProgress)},
		}},
		{"an exchange that nobody was told of is escalated", true, []moment{
			{in: withMax(send(First, "main"), 1), out: lost},
			{in: send(First, "main"), out: lost},
			{in: withNew(send(Second, "side")), out: inTheWay("n", "e")},
			{in: look("e"), out: Output{Sides: [2]Side{{Round: 1, MaxRounds: 1, Outcome: ocip.Escalated}, {Round: 1, MaxRounds: 1, Outcome: ocip.InProgress}}}},
		}},
		{"a round runs back after a restart", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: sent("e", 2)},
			{in: sendTo("e", First), out: lost},
			{in: sendTo("e", First), out: sent("e", 2)},
		}},
		{"a round is seen to run back after a restart", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: sent("e", 2)},
			{in: sendTo("e", First), out: lost},
			{in: look("e"), out: both(1, 3, ocip.InProgress)},
		}},
		{"an exchange is gone after a restart", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", First), out: lost},
			{in: look("e"), out: Output{Code: "NOT_FOUND"}},
		}},
		{"a call has its effect after the restart", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: lost},
			{in: look("e"), out: both(1, 3, ocip.InProgress)},
			{in: look("e"), out: both(2, 3, ocip.InProgress)},
		}},
		{"a call has its effect twice", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: sendTo("e", Second), out: lost},
			{in: sendTo("e", First), out: sent("e", 4)},
		}},

		{"used up on one side, then on the other", true, after(
			moment{in: look("e"), out: Output{Sides: [2]Side{{3, 3, ocip.Escalated}, {3, 3, ocip.InProgress}}}},
			moment{in: send(Second, "main"), out: tooMany("e", 4, 3)},
			moment{in: sendTo("e", First), out: closed("e")},
			moment{in: withNew(send(First, "side")), out: inTheWay("n", "e")},
			moment{in: sendTo("o", Second), out: inTheWay("o", "e")},
			moment{in: look("o"), out: Output{Sides: [2]Side{{}, {0, 3, ocip.Escalated}}}},
			moment{in: settle("e")},
			moment{in: sendTo("o", Second), out: closed("o")},
			moment{in: settle("o")},
			moment{in: look("o"), out: Output{Sides: [2]Side{{}, {0, 3, ocip.Resolved}}}},
		)},
		{"a name that is taken on one side", true, after(
			moment{in: sendTo("o", First), out: inTheWay("o", "e")},
			moment{in: settle("e")},
			moment{in: sendTo("o", Second), out: Output{ExchangeID: "o", Conversation: "c", Round: 1, MaxRounds: 3}},
			moment{in: look("o"), out: Output{Sides: [2]Side{{0, 3, ocip.Escalated}, {1, 3, ocip.InProgress}}}},
			moment{in: sendTo("c", First), out: sent("c", 2)},
			moment{in: look("c"), out: Output{Sides: [2]Side{{2, 3, ocip.InProgress}, {}}}},
		)},
		{"what goes around the escalation stays open", false, append([]moment{
			{in: send(First, "side"), out: sent("o", 1)},
		}, after(
			moment{in: send(First, "side"), out: inTheWay("o", "e")},
			moment{in: settle("e")},
			moment{in: send(First, "side"), out: sent("o", 2)},
		)...)},
		{"a new exchange while the escalation is open", false, after(
			moment{in: withNew(send(Second, "side")), out: sent("n", 1)},
		)},
		{"a fresh id while the escalation is open", false, after(
			moment{in: sendTo("n", First), out: sent("n", 1)},
		)},
		{"another exchange goes on while the escalation is open", false, append([]moment{
			{in: send(First, "side"), out: sent("o", 1)},
		}, after(
			moment{in: send(Second, "side"), out: sent("o", 2)},
		)...)},
		{"the escalation is gone after a restart", false, after(
			moment{in: send(Second, "main"), out: lost},
			moment{in: send(First, "main"), out: sent("n", 1)},
		)},
		{"a person settles it", true, after(
			moment{in: settle("e")},
			moment{in: send(First, "main"), out: sent("n", 1)},
			moment{in: sendTo("e", Second), out: closed("e")},
		)},
		{"a person may have settled it", true, after(
			moment{in: settle("e"), out: lost},
			moment{in: send(First, "main"), out: sent("n", 1)},
		)},
		{"a person may not have settled it", true, after(
			moment{in: settle("e"), out: lost},
			moment{in: send(First, "main"), out: inTheWay("n", "e")},
		)},
		{"a person settles half of it", false, after(
			moment{in: settle("e"), out: lost},
			moment{in: look("e"), out: Output{Sides: [2]Side{{3, 3, ocip.Resolved}, {3, 3, ocip.InProgress}}}},
		)},
		{"a person settles it twice", false, after(
			moment{in: settle("e")},
			moment{in: settle("e")},
		)},
		{"a person has nothing left to settle", true, after(
			moment{in: settle("e")},
			moment{in: settle("e"), out: Output{Code: string(api.Conflict)}},
		)},
		{"resolving another exchange settles it", false, append([]moment{
			{in: send(First, "side"), out: sent("o", 1)},
		}, after(
			moment{in: settle("o")},
			moment{in: withNew(send(First, "main")), out: sent("n", 1)},
		)...)},
		{"an agent settles it", false, after(
			moment{in: Input{Action: Resolve, By: First, ID: "e"}},
		)},
		{"what is resolved goes on", false, after(
			moment{in: settle("e")},
			moment{in: sendTo("e", Second), out: tooMany("e", 4, 3)},
		)},
		{"what is used up is in the way after it is settled", false, after(
			moment{in: settle("e")},
			moment{in: withNew(send(First, "main")), out: inTheWay("n", "e")},
		)},

		{"one side ends it", true, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: Input{Action: Resolve, By: First, ID: "e"}},
			{in: sendTo("e", Second), out: closed("e")},
			{in: look("e"), out: both(1, 3, ocip.Resolved)},
		}},
		{"a refused message counts", false, []moment{
			{in: sendTo("e", First), out: sent("e", 1)},
			{in: Input{Action: Resolve, By: First, ID: "e"}},
			{in: sendTo("e", Second), out: closed("e")},
			{in: look("e"), out: both(2, 3, ocip.Resolved)},
		}},
		{"a message in a conversation that nobody was told of", true, []moment{
			{in: sendTo("e", First), out: lost},
			{in: sendTo("e", Second), out: Output{ExchangeID: "e", Conversation: "c", Round: 2, MaxRounds: 3}},
			{in: sendTo("e", First), out: Output{ExchangeID: "e", Conversation: "c", Round: 3, MaxRounds: 3}},
		}},
		{"an exchange changes its conversation", false, []moment{
			{in: sendTo("e", First), out: lost},
			{in: sendTo("e", Second), out: Output{ExchangeID: "e", Conversation: "c", Round: 2, MaxRounds: 3}},
			{in: sendTo("e", First), out: Output{ExchangeID: "e", Conversation: "d", Round: 3, MaxRounds: 3}},
		}},
		{"two exchanges get one id", false, []moment{
			{in: withNew(send(First, "main")), out: sent("e", 1)},
			{in: withNew(send(First, "side")), out: sent("e", 1)},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := Rules{MaxRounds: 3, Limits: [][2]int{{3, 3}}}
			want := porcupine.Illegal
			if test.allowed {
				want = porcupine.Ok
			}
			if got := r.Judge(history(test.lines)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// The receiver's limit holds where it is the lower one.
func TestRulesOfTheReceiver(t *testing.T) {
	r := Rules{MaxRounds: 3, Limits: [][2]int{{3, 1}}}
	lines := []moment{
		{in: sendTo("e", First), out: sent("e", 1)},
		{in: look("e"), out: Output{Sides: [2]Side{{1, 3, ocip.InProgress}, {1, 1, ocip.InProgress}}}},
		{in: sendTo("e", First), out: tooMany("e", 2, 1)},
		{in: look("e"), out: Output{Sides: [2]Side{{1, 3, ocip.Escalated}, {1, 1, ocip.Escalated}}}},
	}
	if got := r.Judge(history(lines)); got != porcupine.Ok {
		t.Errorf("got %s", got)
	}
	lines[2].out = sent("e", 2)
	if got := r.Judge(history(lines[:3])); got != porcupine.Illegal {
		t.Errorf("got %s where the receiver's limit is passed", got)
	}
}

// Pairs share nothing: what is wrong with one is found, whatever the other does.
func TestPairsAreJudgedApart(t *testing.T) {
	r := Rules{MaxRounds: 3, Limits: [][2]int{{3, 3}, {3, 3}}}
	lines := []moment{
		{in: sendTo("e", First), out: sent("e", 1)},
		{in: sendTo("f", First), out: sent("f", 1)},
		{in: sendTo("e", First), out: sent("e", 2)},
		{in: sendTo("f", First), out: sent("f", 2)},
	}
	lines[1].in.Pair, lines[3].in.Pair = 1, 1
	if got := r.Judge(history(lines)); got != porcupine.Ok {
		t.Errorf("got %s", got)
	}
	lines[3].out = sent("f", 1)
	if got := r.Judge(history(lines)); got != porcupine.Illegal {
		t.Errorf("got %s where the second pair shares a round", got)
	}
}
