// Package roundtest checks what a running daemon did with the rounds of OCIP
// exchanges: a [Load] has agents race each other, and a person settle what they
// used up, while the daemon is stopped, killed and started again; a [History]
// holds every call with its answer; and [Rules] is the sequential model that
// the history must be explained by, one call after the other, each at some
// moment between its call and its answer (linearizability). It is for tests.
//
// A call that was never answered may have had its effect or not. If it had, it
// was before the daemon's process was gone: nothing of it is left to happen
// after the restart. So it ends in the history where the process ended, which
// is a stronger demand than leaving it open to the end.
//
// The caller starts and ends the daemon with [Load.Config], connects the agents
// and a person for each run, and asks for [History.Check] in the end.
package roundtest

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Party is who calls: one of the two agents of a pair, or a person.
type Party int

// The parties of a pair. The agents are the indexes of their sides.
const (
	First Party = iota
	Second
	Operator
)

func (p Party) String() string { return [...]string{"first", "second", "operator"}[p] }

// Action is what a call asks for.
type Action string

// The calls that the model knows.
const (
	Dispatch Action = "message.dispatch"
	Get      Action = "exchange.get"
	Resolve  Action = "exchange.resolve"
)

// Input is a call.
type Input struct {
	// Pair is the number of the two agents. Pairs share nothing.
	Pair   int
	Action Action
	By     Party
	// Call tells the call apart from every other one.
	Call int64
	// Session is the rest of a dispatch's session key, after the other agent.
	Session string
	// ID names the exchange, empty for a dispatch that goes on with its
	// session's or, with New, opens one.
	ID  string
	New bool
	// Foreign is set where the caller has that exchange with somebody else.
	Foreign bool
	// MaxRounds, when above zero, is the caller's wish for a lower limit.
	MaxRounds int
}

func (in Input) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", in.By, strings.TrimPrefix(string(in.Action), "exchange."))
	for _, part := range []struct {
		said bool
		text string
	}{
		{in.Session != "", "in " + in.Session}, {in.ID != "", in.ID}, {in.New, "new"}, {in.Foreign, "with another"}, {in.MaxRounds > 0, fmt.Sprintf("max %d", in.MaxRounds)},
	} {
		if part.said {
			b.WriteByte(' ')
			b.WriteString(part.text)
		}
	}
	return b.String()
}

// Output is an answer, as far as the model speaks of it.
type Output struct {
	// Lost is set where no answer came: the call had its effect or it had not.
	Lost bool
	// Code is why the call was refused, of the verdict where there is one.
	Code string
	// ExchangeID and Conversation name the exchange of a message, Round and
	// MaxRounds are of one that was sent or would have been a round too many.
	ExchangeID, Conversation string
	Round, MaxRounds         int
	// Escalated is the other exchange whose used-up rounds were in the way.
	Escalated string
	// Sides is what was seen of an exchange.
	Sides [2]Side
}

func (o Output) String() string {
	switch {
	case o.Lost:
		return "no answer"
	case o.Escalated != "":
		return fmt.Sprintf("%s by %s, %s", o.Code, o.Escalated, o.ExchangeID)
	case o.Code != "" && o.Round > 0:
		return fmt.Sprintf("%s, %s would be at round %d of %d", o.Code, o.ExchangeID, o.Round, o.MaxRounds)
	case o.Code != "":
		return strings.TrimSuffix(o.Code+", "+o.ExchangeID, ", ")
	case o.Round > 0:
		return fmt.Sprintf("round %d of %d, %s", o.Round, o.MaxRounds, o.ExchangeID)
	case o.Sides != [2]Side{}:
		return fmt.Sprintf("%s, %s", o.Sides[First], o.Sides[Second])
	}
	return "ok"
}

// Side is an agent's record of an exchange; members that were not seen are zero.
type Side struct {
	Round, MaxRounds int
	Outcome          ocip.Outcome
}

func (s Side) String() string { return fmt.Sprintf("%d/%d %s", s.Round, s.MaxRounds, s.Outcome) }

// side is an agent's record of an exchange. The two sides of one have its
// conversation in common; each has a name of its own for it, which is the same
// unless that was taken.
type side struct {
	conversation string
	// session is the one in which the exchange was opened. It never changes.
	session string
	Side
}

// key names a side.
type key struct {
	agent Party
	id    string
}

// slot is a session as one of its agents sees it.
type slot struct {
	agent   Party
	session string
}

// state is what the daemon holds of a pair. It is never changed, only replaced.
type state struct {
	sides map[key]side
	// current is the exchange a session is in.
	current map[slot]string
	// escalated is the exchange whose used-up rounds nobody has settled.
	escalated string
}

func (s state) equal(o state) bool {
	return s.escalated == o.escalated && maps.Equal(s.sides, o.sides) && maps.Equal(s.current, o.current)
}

// with returns the state with a side in it.
func (s state) with(agent Party, id string, e side) state {
	sides := make(map[key]side, len(s.sides)+1)
	maps.Copy(sides, s.sides)
	sides[key{agent, id}] = e
	s.sides = sides
	return s
}

// goOn returns the state with a side in it that its session is in.
func (s state) goOn(agent Party, id string, e side) state {
	s = s.with(agent, id, e)
	current := make(map[slot]string, len(s.current)+1)
	maps.Copy(current, s.current)
	current[slot{agent, e.session}] = id
	s.current = current
	return s
}

// of returns an agent's side of a conversation.
func (s state) of(agent Party, conversation string) (id string, e side, known bool) {
	for k, e := range s.sides {
		if k.agent == agent && e.conversation == conversation {
			return k.id, e, true
		}
	}
	return "", side{}, false
}

// has reports whether there is a side of a conversation.
func (s state) has(conversation string) bool {
	for _, e := range s.sides {
		if e.conversation == conversation {
			return true
		}
	}
	return false
}

// A guess stands for the conversation of an exchange that a call opened which
// was not answered, and for its id where nobody named it.
func guess(call int64) string { return fmt.Sprintf("?%d", call) }

func guessed(id string) bool { return strings.HasPrefix(id, "?") }

// learn returns the state with the known name in place of the guess.
func (s state) learn(unknown, known string) state {
	if known == "" || !guessed(unknown) {
		return s
	}
	name := func(id string) string {
		if id == unknown {
			return known
		}
		return id
	}
	sides, current := make(map[key]side, len(s.sides)), make(map[slot]string, len(s.current))
	for k, e := range s.sides {
		e.conversation = name(e.conversation)
		sides[key{k.agent, name(k.id)}] = e
	}
	for in, id := range s.current {
		current[in] = name(id)
	}
	return state{sides: sides, current: current, escalated: name(s.escalated)}
}

// forget drops what nobody can come back to: its name is a guess and no session
// is in it. States that differ in that alone are the same.
func (s state) forget() state {
	var gone []key
	for k := range s.sides {
		if !guessed(k.id) || s.escalated == k.id {
			continue
		}
		reached := false
		for _, id := range s.current {
			reached = reached || id == k.id
		}
		if !reached {
			gone = append(gone, k)
		}
	}
	if len(gone) > 0 {
		s.sides = maps.Clone(s.sides)
	}
	for _, k := range gone {
		delete(s.sides, k)
	}
	return s
}

// goesOn returns the sender's side of the exchange that a dispatch goes on with:
// the one it names, else the one its session is in as long as that is open, else
// none.
func (s state) goesOn(in Input) (id string, e side, known bool) {
	switch {
	case in.ID != "":
		id = in.ID
	case !in.New:
		id = s.current[slot{in.By, in.Session}]
	}
	e, known = s.sides[key{in.By, id}]
	if in.ID == "" && known && e.Outcome != ocip.InProgress {
		return "", side{}, false
	}
	return id, e, known
}

// Rules is the sequential model: the daemon's duties for calls one after the other
// (docs/reference/protocol/exchanges.md, Rounds).
type Rules struct {
	// MaxRounds is ocip.max_rounds, and Limits has the agents' own values, by pair.
	MaxRounds int
	Limits    [][2]int
}

// apply returns the state after a call and the only right answer to it. fresh is
// the conversation of an exchange that the call opens.
func (r Rules) apply(s state, in Input, fresh string) (state, Output) {
	switch {
	case in.Foreign:
		// The counterparty of an exchange is fixed. A message of another one cannot change it.
		return s, Output{Code: string(api.Forbidden)}
	case in.Action == Dispatch:
		return r.dispatch(s, in, fresh)
	}
	var out Output
	for _, agent := range []Party{First, Second} {
		if in.By == Operator || in.By == agent {
			out.Sides[agent] = s.sides[key{agent, in.ID}].Side
		}
	}
	switch {
	case out == Output{}:
		return s, Output{Code: string(api.NotFound)}
	case in.Action == Get:
		return s, out
	case in.By != Operator && out.Sides[in.By].Outcome == ocip.Escalated:
		return s, Output{Code: string(api.Forbidden)}
	case in.By != Operator && out.Sides[in.By].Outcome != ocip.InProgress:
		return s, Output{Code: string(api.Conflict)}
	case in.By == Operator && s.escalated != in.ID && !isOpen(out.Sides[First]) && !isOpen(out.Sides[Second]):
		return s, Output{Code: string(api.Conflict)}
	}
	if in.By != Operator {
		// An agent ends the exchange for both, except a side that waits for a person.
		mine := s.sides[key{in.By, in.ID}]
		mine.Outcome = ocip.Resolved
		s = s.with(in.By, in.ID, mine)
		if theirs, yours, known := s.of(Second-in.By, mine.conversation); known && yours.Outcome == ocip.InProgress {
			yours.Outcome = ocip.Resolved
			s = s.with(Second-in.By, theirs, yours)
		}
		return s, Output{}
	}
	// A person ends both sides at once, and settles what was escalated.
	for _, agent := range []Party{First, Second} {
		e := s.sides[key{agent, in.ID}]
		if isOpen(out.Sides[agent]) {
			e.Outcome = ocip.Resolved
			s = s.with(agent, in.ID, e)
		}
	}
	if s.escalated == in.ID {
		s.escalated = ""
	}
	return s, Output{}
}

// isOpen reports whether a person has something to settle on a side.
func isOpen(s Side) bool { return s.Outcome == ocip.InProgress || s.Outcome == ocip.Escalated }

func (r Rules) dispatch(s state, in Input, fresh string) (state, Output) {
	me, you, own := in.By, Second-in.By, r.Limits[in.Pair]
	id, mine, known := s.goesOn(in)
	if !known {
		mine = side{conversation: fresh, session: in.Session, Side: Side{MaxRounds: r.MaxRounds, Outcome: ocip.InProgress}}
		id = cmp.Or(id, fresh)
	}
	answer := Output{ExchangeID: id, Conversation: mine.conversation}
	if mine.Outcome != ocip.InProgress {
		answer.Code = string(ocip.ExchangeClosed)
		return s, answer
	}
	mine.MaxRounds = lowest(mine.MaxRounds, own[me], in.MaxRounds)
	if s.escalated != "" && s.escalated != id {
		// What would go around the escalation is escalated itself.
		mine.Outcome = ocip.Escalated
		answer.Code, answer.Escalated = string(ocip.RoundLimit), s.escalated
		return s.with(me, id, mine), answer
	}
	answer.Round = mine.Round + 1
	if answer.MaxRounds = mine.MaxRounds; answer.Round > mine.MaxRounds {
		mine.Outcome = ocip.Escalated
		answer.Code = string(ocip.RoundLimit)
		s.escalated = id
		return s.with(me, id, mine), answer
	}

	if s.escalated == id {
		// The other agent came to the limit of this very exchange.
		mine.Outcome = ocip.Escalated
		answer.Code, answer.Escalated = string(ocip.RoundLimit), s.escalated
		answer.Round, answer.MaxRounds = 0, 0
		return s.with(me, id, mine), answer
	}

	// The sender's side lets it go; now the receiver's.
	theirs, yours, known := s.of(you, mine.conversation)
	if !known {
		yours = side{conversation: mine.conversation, session: in.Session, Side: Side{MaxRounds: mine.MaxRounds, Outcome: ocip.InProgress}}
		if theirs = id; s.sides[key{you, id}] != (side{}) {
			theirs = mine.conversation
		}
	}
	if yours.Outcome != ocip.InProgress {
		mine.Outcome = yours.Outcome
		return s.with(me, id, mine), Output{Code: string(ocip.ExchangeClosed), ExchangeID: theirs, Conversation: mine.conversation}
	}
	yours.MaxRounds = lowest(yours.MaxRounds, own[you], mine.MaxRounds)
	if answer.Round > yours.MaxRounds {
		mine.Outcome, yours.Outcome = ocip.Escalated, ocip.Escalated
		answer.Code, answer.ExchangeID, answer.MaxRounds = string(ocip.RoundLimit), theirs, yours.MaxRounds
		s.escalated = theirs
		return s.with(me, id, mine).with(you, theirs, yours), answer
	}
	mine.Round, yours.Round = answer.Round, answer.Round
	return s.goOn(me, id, mine).goOn(you, theirs, yours), answer
}

// lowest returns the smallest of the limits that are set (above zero).
func lowest(limits ...int) int {
	low := 0
	for _, l := range limits {
		if l > 0 && (low == 0 || l < low) {
			low = l
		}
	}
	return low
}

// step returns the states that a call with this answer can lead to: one, two
// where no answer came, none where the answer is wrong.
func (r Rules) step(s state, in Input, out Output) []state {
	if out.Lost {
		next, _ := r.apply(s, in, guess(in.Call))
		return []state{s, next.forget()}
	}
	s = s.learn(s.escalated, out.Escalated)
	if in.Action == Dispatch && !in.Foreign {
		if _, e, known := s.goesOn(in); known {
			s = s.learn(e.conversation, out.Conversation)
		} else if s.has(out.Conversation) {
			return nil // what opens gets a conversation of its own
		}
	}
	if next, want := r.apply(s, in, out.Conversation); want == out {
		return []state{next.forget()}
	}
	return nil
}

// model puts the rules in the checker's words.
func (r Rules) model() porcupine.Model {
	seed := maphash.MakeSeed()
	type entry struct {
		key
		side
	}
	type current struct {
		slot
		id string
	}
	m := porcupine.NondeterministicModel{
		Partition: byPair,
		Init: func() []any {
			return []any{state{}}
		},
		Step: func(before, in, out any) []any {
			after := r.step(before.(state), in.(Input), out.(Output))
			states := make([]any, len(after))
			for i, s := range after {
				states[i] = s
			}
			return states
		},
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },
		Hash: func(of any) uint64 {
			s := of.(state)
			sum := maphash.String(seed, s.escalated)
			for k, e := range s.sides {
				sum ^= maphash.Comparable(seed, entry{k, e})
			}
			for in, id := range s.current {
				sum ^= maphash.Comparable(seed, current{in, id})
			}
			return sum
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v: %v", in, out) },
		DescribeState:     func(of any) string { return of.(state).String() },
	}
	return m.ToModel()
}

// byPair splits a history: nothing that one pair does changes what another
// sees.
func byPair(history []porcupine.Operation) [][]porcupine.Operation {
	pairs := make(map[int][]porcupine.Operation)
	for _, op := range history {
		pair := op.Input.(Input).Pair
		pairs[pair] = append(pairs[pair], op)
	}
	parts := make([][]porcupine.Operation, 0, len(pairs))
	for _, pair := range slices.Sorted(maps.Keys(pairs)) {
		parts = append(parts, pairs[pair])
	}
	return parts
}

// String shows the exchanges that are not resolved on both sides.
func (s state) String() string {
	ids := make(map[string][2]Side)
	for k, e := range s.sides {
		both := ids[k.id]
		both[k.agent] = e.Side
		ids[k.id] = both
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if both := ids[id]; both[First].Outcome != ocip.Resolved || both[Second].Outcome != ocip.Resolved {
			fmt.Fprintf(&b, "%s: %s; ", id, Output{Sides: both})
		}
	}
	if s.escalated != "" {
		fmt.Fprintf(&b, "escalated: %s", s.escalated)
	}
	return strings.TrimSuffix(b.String(), "; ")
}
