package store

import (
	"errors"
	"testing"
	"time"
)

// A grant can be used exactly as often as it says, also by two uses of one transaction; it is made
// once, and useless once it is revoked or has ended.
func TestGrantUses(t *testing.T) {
	o := options(t.TempDir())
	o.Clock = func() time.Time { return someTime }
	s := open(t, o)
	defer shut(t, s)
	until := someTime.Add(time.Hour)
	grant := func(id string, uses int) *CommitmentGrant {
		return &CommitmentGrant{ID: id, Agent: "a", Kind: "standing", Until: until, MaxUses: uses, Body: []byte(`{}`)}
	}
	commit(t, s, with(grant("g", 2)))
	if _, err := s.Commit(with(grant("g", 9))); !errors.Is(err, ErrGrantKnown) {
		t.Errorf("made twice: %v", err)
	}
	const callers = 16
	release := hold(t, s)
	results := make(chan error, callers)
	for range callers {
		go func() {
			_, err := s.Commit(with(GrantUse{ID: "g", At: someTime}))
			results <- err
		}()
	}
	eventually(t, "all wait", func() bool { return s.waitingChanges() == callers })
	release()
	used := 0
	for range callers {
		if err := <-results; err == nil {
			used++
		} else if !errors.Is(err, ErrGrantOver) {
			t.Error(err)
		}
	}
	if g, err := s.CommitmentGrant(t.Context(), "g"); used != 2 || err != nil || g.Uses != 2 {
		t.Errorf("used %d times, counted %+v, %v", used, g, err)
	}
	commit(t, s, with(grant("revoked", 2)))
	commit(t, s, with(GrantEnded("revoked")))
	commit(t, s, with(grant("endless", 0)))
	for id, at := range map[string]time.Time{"revoked": someTime, "unknown": someTime, "endless": until} {
		if _, err := s.Commit(with(GrantUse{ID: id, At: at})); !errors.Is(err, ErrGrantOver) {
			t.Errorf("the use of %s at %s: %v", id, at, err)
		}
	}
	for range 3 {
		commit(t, s, with(GrantUse{ID: "endless", At: someTime}))
	}
	in, err := s.CommitmentGrantsInForce(t.Context(), someTime)
	if err != nil || len(in) != 1 || in[0].ID != "endless" || in[0].Uses != 3 {
		t.Errorf("in force are %+v, %v", in, err)
	}
}
