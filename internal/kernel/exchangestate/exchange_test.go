package exchangestate

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// Attack 12: a caller that names another pair's exchange reads it without that
// pair's lock. What it read must not be remembered: the pair can have gone on
// meanwhile, and would get a round twice.
func TestAttack12ForeignExchangeIsNotRemembered(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	x := newExchanges(s)
	e := ocip.Exchange{ID: "case", ConversationID: "talk", Agent: "alice", Counterparty: "bob", SessionKey: "irc:bob", Outcome: ocip.InProgress, Round: 1, MaxRounds: 3}
	write := func() {
		t.Helper()
		change := &store.Change{
			Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange}},
			Parts:   []store.Part{&store.Exchange{Exchange: e}, store.Current{Agent: "alice", SessionKey: "irc:bob", ExchangeID: "case"}},
		}
		if _, err := s.Commit(change); err != nil {
			t.Fatal(err)
		}
	}
	write()
	own, other := store.PairOf("alice", "bob"), store.PairOf("alice", "carol")
	for name, read := range map[string]func(store.Pair) (ocip.Exchange, error){
		"by its id": func(p store.Pair) (ocip.Exchange, error) { return x.SideLocked(t.Context(), p, "alice", "case") },
		"by its session": func(p store.Pair) (ocip.Exchange, error) {
			return x.OfSessionLocked(t.Context(), p, "alice", "irc:bob")
		},
	} {
		x.sides.remove(func(sideRef) bool { return true })
		x.current.remove(func(sessionRef) bool { return true })
		before, err := read(other)
		if err != nil {
			t.Fatal(err)
		}
		// The owners continue; only their commits are cached.
		e.Round++
		write()
		if after, err := read(own); err != nil || after.Round != before.Round+1 {
			t.Errorf("%s: round %d after round %d, %v", name, after.Round, before.Round, err)
		}
	}
}
