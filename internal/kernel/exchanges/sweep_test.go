package exchanges

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// An exchange that cannot be ended at its deadline does not block others, and is tried again.
func TestSweepPassesWhatItCannotEnd(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	clock := func() time.Time { return now }
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: clock, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	known, err := directory.New(&directory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	change := &store.Change{Records: []*audit.Record{{ID: "id-0", ActionType: audit.ActionExchange}}}
	const all = sweepPage + 8
	for i := range all {
		change.Add(&store.Exchange{Exchange: ocip.Exchange{
			ID: fmt.Sprintf("ex-%03d", i), ConversationID: fmt.Sprintf("ex-%03d", i), Agent: "agent-a", Counterparty: "agent-b", Outcome: ocip.InProgress,
			OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(time.Minute),
		}})
	}
	if _, err := s.Commit(change); err != nil {
		t.Fatal(err)
	}
	broken, fails := errors.New("it cannot be written"), true
	n := 0
	x := New(Options{
		Store: s, State: exchangestate.New(s), Now: clock, NewID: func() string { n++; return fmt.Sprint("id-", n) },
		Commit: func(c *store.Change) (store.Receipt, error) {
			if fails && len(c.Records) > 0 && c.Records[0].ExchangeID == "ex-000" {
				return store.Receipt{}, broken
			}
			return s.Commit(c)
		},
	})
	open := func() int {
		t.Helper()
		counts, err := s.ExchangeCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts[ocip.InProgress]
	}
	now = now.Add(time.Hour)
	if err := x.Sweep(t.Context(), known); !errors.Is(err, broken) || open() != 1 {
		t.Errorf("the sweep says %v, and %d are open", err, open())
	}
	fails = false
	if err := x.Sweep(t.Context(), known); err != nil || open() != 0 {
		t.Errorf("the sweep says %v, and %d are open", err, open())
	}
}
