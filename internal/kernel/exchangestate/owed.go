package exchangestate

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Owed knows the answers that an agent owes a counterparty, in any exchange. It is read and changed
// under the lock of the two.
type Owed struct {
	*recent[debtor, ocip.Owed]
}

// debtor is an agent and its creditor, by their instance ids.
type debtor struct{ agent, counterparty string }

const rememberedOwed = 8192

func newOwed(s *store.Store) Owed {
	return Owed{newRecent(rememberedOwed, func(ctx context.Context, who debtor) (owed ocip.Owed, err error) {
		stored, err := s.Owed(ctx, who.agent, who.counterparty)
		if err != nil {
			return owed, err
		}
		if err := json.Unmarshal([]byte(stored.Value), &owed); err != nil {
			return owed, fmt.Errorf("cannot read what agent %s owes agent %s: %w", who.agent, who.counterparty, err)
		}
		return owed, nil
	})}
}

// OfLocked returns an agent's debt to a counterparty.
func (d Owed) OfLocked(ctx context.Context, agent, counterparty string) (ocip.Owed, error) {
	return d.of(ctx, debtor{agent, counterparty})
}

// EnterLocked puts into a change an agent's debt from now on.
func (d Owed) EnterLocked(c *store.Change, agent, counterparty string, before, now ocip.Owed) {
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
			panic("exchange: what an agent owes cannot fail to encode: " + err.Error())
		}
		part.Value = string(value)
	}
	c.Add(part)
	c.OnDurable(func(store.Receipt) { d.put(debtor{agent, counterparty}, now) })
}

// ForgiveLocked puts into a change the debt that remains after a person has ended something, see
// [ocip.Owed.Settle].
func (d Owed) ForgiveLocked(ctx context.Context, c *store.Change, agent, counterparty string, outcome ocip.Outcome, conversation string, held ocip.Code) error {
	if counterparty == "" {
		return nil
	}
	owed, err := d.OfLocked(ctx, agent, counterparty)
	if err == nil {
		d.EnterLocked(c, agent, counterparty, owed, owed.Settle(outcome, conversation, held))
	}
	return err
}
