package store

import (
	"errors"
	"fmt"
	"testing"

	"github.com/openclawos/ocipd/internal/base/metrics"
)

// pendingApproval makes an approval that waits.
func pendingApproval(tb testing.TB, s *Store, id string) *Approval {
	tb.Helper()
	commit(tb, s, with(&Approval{ID: id, Agent: "a", State: PendingApproval, New: true}))
	return &Approval{ID: id, State: "approved"}
}

// A decided approval changes again if the change names its state.
func TestApprovalFromAState(t *testing.T) {
	s := openTest(t)
	commit(t, s, with(pendingApproval(t, s, "a")))
	for _, step := range []struct {
		from, to string
		err      error
	}{{"", "denied", ErrDecided}, {"pending", "denied", ErrDecided}, {"denied", "revoked", ErrDecided}, {"approved", "revoked", nil}, {"approved", "revoked", ErrDecided}} {
		if _, err := s.Commit(with(&Approval{ID: "a", From: step.from, State: step.to})); !errors.Is(err, step.err) {
			t.Errorf("from %q to %s: %v, want %v", step.from, step.to, err, step.err)
		}
	}
	if got, err := s.Approval(t.Context(), "a"); err != nil || got.State != "revoked" {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// transactions counts the finished transactions of a store.
func transactions(s *Store) *int {
	n, ready := new(int), s.commits.writer.ready
	s.commits.writer.ready = func(batch []*pending) error {
		*n++
		return ready(batch)
	}
	return n
}

// A caller that comes too late does not affect the others: only its change is left out of the
// transaction, completely and with its own error.
func TestLoserLeavesTheBatchAlone(t *testing.T) {
	const callers = 256
	s := openTest(t)
	commit(t, s, with(pendingApproval(t, s, "decided")))
	release := hold(t, s)
	n, before := transactions(s), s.Head().Seq
	results := make(chan error, callers)
	for i := range callers {
		c := with(Spent{Scope: fmt.Sprint("winner-", i), At: someTime, Count: 1})
		if i == callers/2 {
			c = with(Spent{Scope: "loser", At: someTime, Count: 1}, &Approval{ID: "decided", State: "denied"})
			c.Durable = func(Receipt) { t.Error("a refused change is released") }
		}
		go func() { _, err := s.Commit(c); results <- err }()
	}
	eventually(t, "all wait", func() bool { return s.waitingChanges() == callers })
	release()
	lost := 0
	for range callers {
		if err := <-results; errors.Is(err, ErrDecided) {
			lost++
		} else if err != nil {
			t.Error(err)
		}
	}
	if lost != 1 || *n != 1 {
		t.Errorf("%d lost, in %d transactions; want 1 in 1", lost, *n)
	}
	if got := s.Head().Seq - before; got != callers-1 {
		t.Errorf("%d records", got)
	}
	if got := count(t, s, "spent"); got != callers-1 {
		t.Errorf("%d rows", got)
	}
	wantSound(t, s)
}

// Of concurrent decisions in one transaction the first wins, whichever it is.
func TestOneDecisionWins(t *testing.T) {
	o := options(t.TempDir())
	o.Metrics = metrics.New(metrics.Words{})
	s := open(t, o)
	defer shut(t, s)
	decide := pendingApproval(t, s, "one")
	release := hold(t, s)
	n := transactions(s)
	results := make(chan error, 8)
	for i := range cap(results) {
		decision := *decide
		decision.State = fmt.Sprint("by ", i)
		go func() { _, err := s.Commit(with(&decision)); results <- err }()
	}
	eventually(t, "all wait", func() bool { return s.waitingChanges() == cap(results) })
	release()
	won := 0
	for range cap(results) {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, ErrDecided):
			t.Error(err)
		}
	}
	if won != 1 || *n != 1 || s.Head().Seq != 3 {
		t.Errorf("%d won, in %d transactions, with %d records", won, *n, s.Head().Seq)
	}
	if _, err := s.Commit(with(decide)); !errors.Is(err, ErrDecided) {
		t.Errorf("too late: %v", err)
	}
	if _, err := s.Commit(with(&Approval{ID: "never", State: "approved"})); !errors.Is(err, ErrDecided) {
		t.Errorf("one that is not there: %v", err)
	}
	two := pendingApproval(t, s, "two")
	again := *two
	if _, err := s.Commit(with(two, &again)); !errors.Is(err, ErrDecided) {
		t.Errorf("one that decides twice: %v", err)
	}
	if got, err := s.Approval(t.Context(), "two"); err != nil || got.State != PendingApproval {
		t.Errorf("it is %q, %v", got.State, err)
	}
}

// A refusal counts only with its transaction: the change that caused it may be the unwritten one.
func TestRefusalGoesWithItsTransaction(t *testing.T) {
	s := openTest(t)
	decide := pendingApproval(t, s, "one")
	release := hold(t, s)
	results := make(chan error, 2)
	first, second := with(decide, badPart{}), with(&Approval{ID: "one", State: "denied"})
	go func() { _, err := s.Commit(first); results <- err }()
	eventually(t, "the first waits", func() bool { return s.waitingChanges() == 1 })
	go func() { _, err := s.Commit(second); results <- err }()
	eventually(t, "both wait", func() bool { return s.waitingChanges() == 2 })
	release()
	for range 2 {
		if err := <-results; errors.Is(err, ErrDecided) {
			t.Error("refused for what was not written")
		}
	}
	if got, err := s.Approval(t.Context(), "one"); err != nil || got.State != "denied" {
		t.Errorf("it is %q, %v", got.State, err)
	}
}

// A change of rows alone neither counts as one that ends something nor passes when nothing may be
// released.
func TestPartsPassNothingByAccident(t *testing.T) {
	housekeeping := []Part{Meta{Key: "k"}, Dropped("k"), Taken{{Queue: "q", ID: 1}}, SettledSessions{}, lapsed{}, outdated{}, faded{}}
	for _, p := range housekeeping {
		if (&Change{Parts: []Part{p}}).drains() {
			t.Errorf("%T drains", p)
		}
	}
	if !(&Change{}).drains() {
		t.Error("what only rides along does not drain")
	}
	s := openTest(t)
	lost := errors.New("the copy is lost")
	s.health.alive = func() error { return lost }
	for _, p := range []Part{
		&Exchange{}, Current{}, Escalation{}, Settled{}, Heard{}, Seen{}, &Approval{New: true}, Session{}, &Message{}, Run{}, EndedRun(""),
		AppProcess{}, EndedProcesses{}, Brought{}, Owed{}, Spent{}, Speaker{}, Unheard(""), Paused{}, Resumed(""), Forgotten(""),
	} {
		for name, c := range map[string]*Change{"alone": {}, "draining": {Drains: true}, "as a person's": {Last: true}, "as an alarm": {Alarm: true}} {
			c.Parts = []Part{p}
			if _, err := s.Commit(c); !errors.Is(err, ErrUnrecorded) {
				t.Errorf("%T %s: %v", p, name, err)
			}
		}
		if _, err := s.Commit(with(p)); !errors.Is(err, ErrMirrorLost) {
			t.Errorf("%T with a record: %v", p, err)
		}
	}
	for _, p := range housekeeping {
		if _, err := s.Commit(&Change{Parts: []Part{p}}); err != nil {
			t.Errorf("%T: %v", p, err)
		}
	}
}
