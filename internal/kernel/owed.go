package kernel

import (
	"context"
	"errors"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// debts knows what an agent owes a counterparty an answer to, whichever exchange
// the answer is put in. It is read and changed under the lock of the two.
type debts struct {
	store *store.Store
	known *lru.Cache[debtor, ocip.Owed]
}

// debtor is an agent and whom it owes, by their instance ids.
type debtor struct{ agent, counterparty string }

const rememberedDebts = 8192

func newDebts(s *store.Store) (*debts, error) {
	known, err := lru.New[debtor, ocip.Owed](rememberedDebts)
	return &debts{store: s, known: known}, err
}

// of returns what an agent owes a counterparty, nothing where it owes nothing.
func (d *debts) of(ctx context.Context, agent, counterparty string) (owed ocip.Owed, err error) {
	who := debtor{agent, counterparty}
	if owed, ok := d.known.Get(who); ok {
		return owed, nil
	}
	stored, err := d.store.Owed(ctx, agent, counterparty)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return owed, err
	default:
		if owed, err = ocip.ParseOwed(stored.Value); err != nil {
			return owed, fmt.Errorf("agent %s, to agent %s: %w", agent, counterparty, err)
		}
	}
	d.known.Add(who, owed)
	return owed, nil
}

// enter puts into a change what an agent owes from here on.
func (d *debts) enter(c *store.Change, agent, counterparty string, before, now ocip.Owed) {
	if now.Equal(before) {
		return
	}
	c.Parts = append(c.Parts, store.Owed{Agent: agent, Counterparty: counterparty, Value: now.Encode(), Until: now.Until})
	c.OnDurable(func(store.Receipt) { d.known.Add(debtor{agent, counterparty}, now) })
}
