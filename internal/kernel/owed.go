package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
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
		if err := json.Unmarshal([]byte(stored.Value), &owed); err != nil {
			return owed, fmt.Errorf("cannot read what agent %s owes agent %s: %w", agent, counterparty, err)
		}
	}
	d.known.Add(who, owed)
	return owed, nil
}

// enter puts into a change what an agent owes from here on.
func (d *debts) enter(c *store.Change, agent, counterparty string, before, now ocip.Owed) {
	until := now.Until
	if until.Equal(before.Until) {
		before.Until = until
	}
	if now == before {
		return
	}
	part := store.Owed{Agent: agent, Counterparty: counterparty, Until: until}
	if now != (ocip.Owed{}) {
		value, err := json.Marshal(now)
		if err != nil {
			panic("kernel: what an agent owes cannot fail to encode: " + err.Error())
		}
		part.Value = string(value)
	}
	c.Parts = append(c.Parts, part)
	c.OnDurable(func(store.Receipt) { d.known.Add(debtor{agent, counterparty}, now) })
}
