package exchanges

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// sweepPage is the number of exchanges that are ended side by side and so share a commit; sweepRows
// is the number examined in a minute.
const (
	sweepPage = 64
	sweepRows = 20_000
)

// Sweep ends exchanges whose time is over, a part of them each minute, and records each: expiry is
// an outcome like any other. An exchange that cannot be ended does not block others. If none can be
// ended, Sweep tries again.
func (x *Exchanges) Sweep(ctx context.Context, d *directory.Directory) error {
	expired, next, err := x.o.Store.Expired(ctx, x.swept, sweepRows, x.o.Now())
	if err != nil {
		return err
	}
	var failed []error
	for page := range slices.Chunk(expired, sweepPage) {
		failures := make([]error, len(page))
		var ending sync.WaitGroup
		for i, e := range page {
			ending.Go(func() { failures[i] = x.expire(ctx, e, d) })
		}
		ending.Wait()
		failed = append(failed, failures...)
		if !slices.Contains(failures, nil) {
			return errors.Join(failed...)
		}
	}
	x.swept = next
	return errors.Join(failed...)
}

// expire ends one side of an exchange, unless a message has ended it since it was looked up.
func (x *Exchanges) expire(ctx context.Context, found ocip.Exchange, d *directory.Directory) error {
	unlock := x.o.State.Lock(found.Agent, found.Counterparty)
	defer unlock()
	e, err := x.o.State.SideLocked(ctx, exchangestate.PairOf(&found), found.Agent, found.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || e.Outcome != ocip.InProgress {
		return err
	}
	e.Outcome, e.UpdatedAt = ocip.Expired, x.o.Now()
	r := x.Record(&e, "expired", d)
	r.Details = map[string]any{"expiresAt": e.ExpiresAt}
	change := &store.Change{Parts: []store.Part{&store.Exchange{Exchange: e}}, Records: []*audit.Record{r}, Drains: true}
	if _, err := x.o.Commit(change); err != nil {
		return err
	}
	x.o.State.Entered(change)
	return nil
}

// Record returns the record of an exchange that ends without a message.
func (x *Exchanges) Record(e *ocip.Exchange, event string, d *directory.Directory) *audit.Record {
	r := &audit.Record{
		ID: x.o.NewID(), ActionType: audit.ActionExchange, Event: event, AgentID: e.Agent, SessionKey: e.SessionKey,
		Counterparty: audit.Counterparty{InstanceID: e.Counterparty}, ExchangeID: e.ID, ConversationID: e.ConversationID,
		ExchangeType: string(e.Type), Round: e.Round, MaxRounds: e.MaxRounds, Classification: e.Level.String(), Outcome: string(e.Outcome),
	}
	if agent := d.Local(e.Agent); agent != nil {
		r.TenantID, r.UserID = agent.TenantID, agent.UserID
	}
	return r
}
