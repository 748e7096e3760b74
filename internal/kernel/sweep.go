package kernel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/exchange"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// sweepEvery is how often what has expired is looked for: messages that nobody
// fetches, held ones that nobody decides about, exchanges that nobody ends.
const sweepEvery = time.Minute

// sweep ends what has expired, until the kernel closes.
func (k *Kernel) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-k.closing.Done():
			return
		case <-ticker.C:
			err := errors.Join(k.outbox.Sweep(k.closing), k.rules().decider().Sweep(k.closing), k.sweepExchanges(k.closing), k.tidy(k.closing))
			if err != nil && k.closing.Err() == nil {
				k.log.Error("cannot end what has expired", zap.Error(err))
			}
		}
	}
}

// tidy takes away rows that no window reaches back to.
func (k *Kernel) tidy(ctx context.Context) error {
	now := k.now()
	return k.store.Tidy(ctx, now, now.Add(-max(exchange.LongestWindow, k.rules().cfg.ChainWindow)-time.Minute))
}

// sweepPage is how many exchanges are ended side by side, and so how many share a
// commit; sweepRows how many exchanges are looked at in a
// minute.
const (
	sweepPage = 64
	sweepRows = 20_000
)

// sweepExchanges ends exchanges whose time has run out, a part of them each
// minute. Each has its record: that it expired is an outcome like any other.
func (k *Kernel) sweepExchanges(ctx context.Context) error {
	expired, next, err := k.store.Expired(ctx, k.swept, sweepRows, k.now())
	if err != nil {
		return err
	}
	for page := range slices.Chunk(expired, sweepPage) {
		failures := make([]error, len(page))
		var ending sync.WaitGroup
		for i, e := range page {
			ending.Go(func() { failures[i] = k.expireExchange(ctx, e) })
		}
		ending.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
	}
	k.swept = next
	return nil
}

// expireExchange ends one side of an exchange, unless a message has done so
// since it was looked up.
func (k *Kernel) expireExchange(ctx context.Context, found ocip.Exchange) error {
	unlock := k.state.Lock(found.Agent, found.Counterparty)
	defer unlock()
	e, err := k.state.SideLocked(ctx, exchange.PairOf(&found), found.Agent, found.ID)
	if err != nil || e.Outcome != ocip.InProgress {
		return err
	}
	e.Outcome, e.UpdatedAt = ocip.Expired, k.now()
	r := k.rules().exchangeRecord(&e, "expired")
	r.Details = map[string]any{"expiresAt": e.ExpiresAt}
	change := &store.Change{Parts: []store.Part{&store.Exchange{Exchange: e}}, Records: []*audit.Record{r}, Drains: true}
	if _, err := k.commit(change); err != nil {
		return err
	}
	k.state.Entered(change)
	return nil
}

// exchangeRecord is the record of an exchange that ends without a message.
func (k *ruleset) exchangeRecord(e *ocip.Exchange, event string) *audit.Record {
	r := &audit.Record{
		ID: k.newID(), ActionType: audit.ActionExchange, Event: event, AgentID: e.Agent, SessionKey: e.SessionKey,
		Counterparty: audit.Counterparty{InstanceID: e.Counterparty}, ExchangeID: e.ID, ConversationID: e.ConversationID,
		ExchangeType: string(e.Type), Round: e.Round, MaxRounds: e.MaxRounds, Classification: e.Level.String(), Outcome: string(e.Outcome),
	}
	if agent := k.directory.Local(e.Agent); agent != nil {
		r.TenantID, r.UserID = agent.TenantID, agent.UserID
	}
	return r
}
