package kernel

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// Status returns what the kernel knows of itself. The daemon adds the rest.
func (k *Kernel) Status(ctx context.Context) (api.Status, error) {
	s := api.Status{ProtocolVersion: api.ProtocolVersion, Exchanges: make(map[string]int)}
	s.Held, s.Paused = k.requests.Count(), k.pauses.List()
	// A store that is closed because a file is lost can often not be read either:
	// that it is closed must be told all the same.
	if err := k.storedStatus(ctx, &s); err != nil && k.store.Latched() == nil {
		return s, err
	}
	head := k.store.Head()
	s.Audit = api.AuditStatus{Seq: head.Seq, Time: head.Time, Hash: head.Hash.String(), Log: k.store.Origin(), Signed: k.store.Covered(), Retired: k.store.Retired()}
	if err := k.store.Latched(); err != nil {
		s.Audit.Fault = err.Error()
	}
	s.Apps = k.apps.Status()
	ready := make(map[string]bool, len(s.Apps))
	for i := range s.Apps {
		ready[s.Apps[i].ID] = s.Apps[i].Ready
	}
	configured := k.rules().cfg.Directory.Agents
	for i := range configured {
		agent := &configured[i]
		s.Agents = append(s.Agents, api.AgentStatus{ID: agent.ID, InstanceID: agent.InstanceID, App: agent.App, Connected: ready[agent.App]})
	}
	return s, nil
}

// storedStatus adds what the store is asked for.
func (k *Kernel) storedStatus(ctx context.Context, s *api.Status) error {
	counts, err := k.tally.of(ctx, k.store.ExchangeCounts, k.now)
	if err != nil {
		return err
	}
	for outcome, n := range counts {
		s.Exchanges[string(outcome)] = n
	}
	_, s.Sessions, err = k.store.Sessions(ctx, store.SessionFilter{ActiveSince: k.now().Add(-k.rules().cfg.ActiveWindow)}, 0, 0)
	if err != nil {
		return err
	}
	if s.Held > 0 {
		if s.OldestHeld, err = k.requests.Oldest(ctx); err != nil {
			return err
		}
	}
	queues, err := k.store.Queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		s.Queues = append(s.Queues, api.QueueStatus{Name: q.Name, Waiting: q.Count})
	}
	return nil
}

// tally keeps the numbers of exchanges where counting them takes long, so that
// who looks every second does not keep a disk busy.
type tally struct {
	mu     sync.Mutex
	counts map[ocip.Outcome]int
	// until is for how long the counts are good.
	until time.Time
}

const (
	// quickCount is what may be counted anew each time.
	quickCount = 20 * time.Millisecond
	// countShare is the part of the time that counting may take, as one of so
	// many.
	countShare = 20
)

func (t *tally) of(ctx context.Context, count func(context.Context) (map[ocip.Outcome]int, error), now func() time.Time) (map[ocip.Outcome]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := now()
	if t.counts != nil && began.Before(t.until) {
		return t.counts, nil
	}
	counts, err := count(ctx)
	if err != nil {
		return nil, err
	}
	t.counts, t.until = counts, time.Time{}
	if took := now().Sub(began); took > quickCount {
		t.until = began.Add(countShare * took)
	}
	return counts, nil
}

// AuditQuery returns a page of records, newest first. One that took much
// searching may be short and have more behind it.
func (k *Kernel) AuditQuery(ctx context.Context, p *api.AuditQueryParams) (api.AuditQueryResult, error) {
	lines, next, err := k.search.Query(ctx, p.Filter, p.Before, p.Page())
	if err != nil {
		return api.AuditQueryResult{}, err
	}
	result := api.AuditQueryResult{Records: make([]jsontext.Value, len(lines)), NextBefore: next}
	for i, line := range lines {
		result.Records[i] = line
	}
	return result, nil
}

// AuditTail opens a stream of records, oldest first.
func (k *Kernel) AuditTail(ctx context.Context, p *api.AuditTailParams) (func(context.Context, api.Stream) error, error) {
	head := k.store.Head().Seq
	after := head
	if p.After != nil {
		after = min(*p.After, head)
	}
	var last []jsontext.Value
	if p.After == nil && p.Last > 0 {
		for before := head + 1; before > 0 && len(last) < p.Last; {
			lines, next, err := k.search.Query(ctx, p.Filter, before, p.Last-len(last))
			if err != nil {
				return nil, err
			}
			for _, line := range lines {
				last = append(last, line)
			}
			before = next
		}
		slices.Reverse(last)
	}
	return func(ctx context.Context, s api.Stream) error {
		for _, line := range last {
			if err := s.Send(ctx, line); err != nil {
				return err
			}
		}
		for {
			page, upTo, err := k.store.LinesAfter(ctx, after)
			if err != nil {
				return err
			}
			for _, line := range page {
				if p.Filter.Match(line) {
					if err := s.Send(ctx, jsontext.Value(line)); err != nil {
						return err
					}
				}
			}
			switch after = upTo; {
			case len(page) > 0:
			case !p.Follow:
				return nil
			default:
				if err := k.store.WaitAfter(ctx, after); err != nil {
					return err
				}
			}
		}
	}, nil
}
