package lane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range []string{To("a", 1, 1), From("a", 1, 1), To("a", 2, 1), To("a", 1, 2), To("b", 1, 1), To("a", 11, 1), To("a", 1, 11)} {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
	}
	if got := Host(From("host-a", 3, 4)); got != "host-a" {
		t.Errorf("the host is %q", got)
	}
}

func TestPlace(t *testing.T) {
	for _, tc := range []struct {
		what      string
		last, seq uint64
		id, taken string
		want      Step
	}{
		{"the first", 0, 1, "a", "", Take},
		{"the next", 7, 8, "a", "", Take},
		{"a gap", 7, 9, "a", "", Wait},
		{"a new lane that does not begin at 1", 0, 2, "a", "", Wait},
		{"the last again", 7, 7, "a", "a", Repeat},
		{"an earlier one again", 7, 2, "a", "a", Repeat},
		{"another one under the last number", 7, 7, "b", "a", Behind},
		{"one that is forgotten", 7, 2, "a", "", Behind},
	} {
		if got := Place(tc.last, tc.seq, tc.id, tc.taken); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.what, got, tc.want)
		}
	}
}

func TestOffers(t *testing.T) {
	var o Offers
	now := time.Unix(0, 0)
	if !o.Due(1, now) || !o.Keep([]uint64{1}).IsZero() {
		t.Fatal("a message that was not offered is not due")
	}
	for n, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		want := time.Duration(seconds) * time.Second
		o.Made(1, now, 0)
		next := o.Keep([]uint64{1})
		if got := next.Sub(now); got != want {
			t.Errorf("offer %d is repeated after %s, want %s", n+1, got, want)
		}
		if o.Due(1, next.Add(-1)) || !o.Due(1, next) {
			t.Errorf("offer %d is due at another time", n+1)
		}
		now = next
	}
	o.Made(2, now, 1)
	if got := o.Keep([]uint64{2}).Sub(now); got != 1250*time.Millisecond {
		t.Errorf("with jitter the wait is %s", got)
	}
	if !o.Due(1, now) {
		t.Error("a message with its receipt is remembered")
	}
}

// receiver is a receiver as its host keeps it: the last number, and the ids by number.
type receiver struct {
	last  uint64
	taken map[uint64]string
	took  []string
}

func (r *receiver) bring(seq uint64, id string) Step {
	step := Place(r.last, seq, id, r.taken[seq])
	if step == Take {
		r.last, r.taken[seq] = seq, id
		r.took = append(r.took, id)
	}
	return step
}

// A carrier that loses, repeats and reorders frames delivers each message once, in order, whatever it
// does, and the receiver is a queue as its sender sees it: each receipt can be explained by taking the
// messages one after another.
func TestAnyCarrier(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		const messages = 40
		r := &receiver{taken: make(map[uint64]string)}
		var o Offers
		open := make([]uint64, messages)
		for i := range open {
			open[i] = uint64(i + 1)
		}
		var flying []uint64
		var history []porcupine.Operation
		clock := int64(0)
		for now := time.Unix(0, 0); len(open) > 0; now = now.Add(time.Second) {
			for _, seq := range open[:min(Window/8, len(open))] {
				if o.Due(seq, now) {
					o.Made(seq, now, random.Float64())
					for range random.IntN(4) {
						flying = append(flying, seq)
					}
				}
			}
			random.Shuffle(len(flying), func(i, j int) { flying[i], flying[j] = flying[j], flying[i] })
			for range random.IntN(len(flying) + 1) {
				seq := flying[0]
				flying = flying[1:]
				step := r.bring(seq, fmt.Sprint("m", seq))
				clock += 2
				history = append(history, porcupine.Operation{Input: seq, Call: clock, Output: step, Return: clock + 1})
				if (step == Take || step == Repeat) && random.IntN(3) > 0 {
					open = slices.DeleteFunc(open, func(s uint64) bool { return s == seq })
				}
			}
			o.Keep(open)
		}
		for i, id := range r.took {
			if id != fmt.Sprint("m", i+1) {
				t.Fatalf("seed %d: message %d is %s", seed, i+1, id)
			}
		}
		if len(r.took) != messages {
			t.Fatalf("seed %d: %d messages were taken", seed, len(r.took))
		}
		if !porcupine.CheckOperations(queue, history) {
			t.Fatalf("seed %d: the receipts cannot be explained", seed)
		}
	}
}

// queue is the specification: a number is taken when all before it were, once.
var queue = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		last, seq := state.(uint64), input.(uint64)
		switch {
		case seq == last+1:
			return output == Take, seq
		case seq <= last:
			return output == Repeat, last
		}
		return output == Wait, last
	},
}

// Controls: a receiver without memory of numbers, and one that takes what comes, fail the same check.
func TestControlsFail(t *testing.T) {
	for _, outputs := range [][]Step{{Take, Take}, {Take, Wait}} {
		history := []porcupine.Operation{{Input: uint64(1), Call: 1, Output: outputs[0], Return: 2}, {Input: uint64(1), Call: 3, Output: outputs[1], Return: 4}}
		if porcupine.CheckOperations(queue, history) {
			t.Errorf("%v passes", outputs)
		}
	}
	if porcupine.CheckOperations(queue, []porcupine.Operation{{Input: uint64(2), Call: 1, Output: Take, Return: 2}}) {
		t.Error("a message that overtakes passes")
	}
}

// Once the receiver is there again, all is offered soon, and not more often than at first.
func TestOfferedAnew(t *testing.T) {
	var o Offers
	now := time.Unix(0, 0)
	for range 8 {
		o.Made(1, now, 0)
		now = o.Keep([]uint64{1})
	}
	o.Made(1, now, 0)
	if due := o.Keep([]uint64{1}); due.Sub(now) < time.Minute {
		t.Fatalf("it is offered again after %s", due.Sub(now))
	}
	o.Anew()
	if o.Due(1, now.Add(firstWait-1)) || !o.Due(1, now.Add(firstWait)) || !o.Due(2, now) {
		t.Errorf("it is offered after %s", o.Keep([]uint64{1}).Sub(now))
	}
	o.Made(1, now, 0)
	if due := o.Keep([]uint64{1}); due.Sub(now) != firstWait {
		t.Errorf("the next wait is %s", due.Sub(now))
	}
}
