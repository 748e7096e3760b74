package kernel

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// ApprovalGet returns all about one held message.
func (k *Kernel) ApprovalGet(ctx context.Context, p *api.ApprovalParams) (api.Approval, error) {
	rules := k.rules()
	h, err := rules.lookUp(ctx, p.ApprovalID)
	if err != nil {
		return api.Approval{}, err
	}
	h.CounterpartyNow = rules.becomes(ctx, h)
	return h.Approval, nil
}

// becomes is what the counterparty of a held message is by now, "" where that is
// what it was, or is not known: the configuration may have changed since.
func (k *ruleset) becomes(ctx context.Context, h *held) ocip.Kind {
	sender := k.directory.Agent(h.AgentID)
	var metadata map[string]jsontext.Value
	if h.State != api.ApprovalPending || h.Kind != api.ApprovalOfMessage || sender == nil || json.Unmarshal([]byte(h.Metadata), &metadata) != nil {
		return ""
	}
	m := &outgoing{key: h.SessionKey, account: h.Account, sender: sender}
	bound, err := k.directory.Brought(m.key, metadata)
	if err != nil || k.reach(ctx, m, bound) != nil || m.to.Kind == h.CounterpartyKind {
		return ""
	}
	return m.to.Kind
}

// Approval returns what became of a message that the app asked for.
func (c *Client) Approval(ctx context.Context, p *api.ApprovalParams) (api.Approval, error) {
	h, err := c.kernel.rules().lookUp(ctx, p.ApprovalID)
	if err != nil {
		return api.Approval{}, err
	}
	if h.AppID != c.app.Load().id() {
		return api.Approval{}, noApproval(p.ApprovalID)
	}
	// What people sign is not for the one that asked.
	h.ToSign = nil
	for i := range h.Approvals {
		h.Approvals[i].Signature = ""
	}
	if h.Decision != nil {
		h.Decision.Signature = ""
	}
	return h.Approval, nil
}

func noApproval(id string) error { return api.Errorf(api.NotFound, "there is no approval %q", id) }

func (k *ruleset) lookUp(ctx context.Context, id string) (*held, error) {
	stored, err := k.store.Approval(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noApproval(id)
	}
	if err != nil {
		return nil, err
	}
	h, err := decodeHeld(stored)
	if err != nil {
		return nil, err
	}
	h.SignatureRequired = k.signers != nil
	return h, nil
}

// ApprovalList returns a page of held messages, oldest first.
func (k *Kernel) ApprovalList(ctx context.Context, p *api.ApprovalListParams) (api.ApprovalListResult, error) {
	f := store.ApprovalFilter{State: p.State, Agent: p.Agent, After: p.After}
	switch f.State {
	case "":
		f.State = api.ApprovalPending
	case "all":
		f.State = ""
	}
	// An agent may be named as in session keys too.
	if agent := k.rules().directory.Agent(f.Agent); agent != nil {
		f.Agent = agent.InstanceID
	}
	page, total, err := k.store.Summaries(ctx, f, p.Page())
	if err != nil {
		return api.ApprovalListResult{}, err
	}
	result := api.ApprovalListResult{Approvals: make([]jsontext.Value, len(page)), Total: total}
	for i, summary := range page {
		result.Approvals[i] = summary
	}
	return result, nil
}

// approvalWatch is one person looking on. What changed and was not sent yet is
// kept as ids, so that a slow reader costs little and gets the newest state.
type approvalWatch struct {
	mu      sync.Mutex
	changed []string
	known   map[string]bool
	wake    chan struct{}
}

func (w *approvalWatch) tell(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known[id] {
		w.known[id] = true
		w.changed = append(w.changed, id)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *approvalWatch) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.changed
	w.changed = nil
	clear(w.known)
	return ids
}

// tell wakes those who watch.
func (h *holds) tell(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.tell(id)
	}
}

// ApprovalWatch opens a stream of held messages: those that wait, and then each
// that is new or changes.
func (k *Kernel) ApprovalWatch(context.Context, *api.Empty) (func(context.Context, api.Stream) error, error) {
	return func(ctx context.Context, s api.Stream) error {
		w := &approvalWatch{known: make(map[string]bool), wake: make(chan struct{}, 1)}
		k.holds.mu.Lock()
		k.holds.watchers[w] = struct{}{}
		k.holds.mu.Unlock()
		defer func() {
			k.holds.mu.Lock()
			defer k.holds.mu.Unlock()
			delete(k.holds.watchers, w)
		}()
		if err := k.sendPending(ctx, s); err != nil {
			return err
		}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-w.wake:
			}
			for _, id := range w.take() {
				h, err := k.rules().lookUp(ctx, id)
				if err != nil {
					return err
				}
				if err := s.Send(ctx, api.ApprovalNews{Approval: &h.ApprovalSummary}); err != nil {
					return err
				}
			}
		}
	}, nil
}

// watchPage is how many held messages are read at a time for who begins to look.
const watchPage = 500

func (k *Kernel) sendPending(ctx context.Context, s api.Stream) error {
	after := ""
	for {
		page, _, err := k.store.Summaries(ctx, store.ApprovalFilter{State: api.ApprovalPending, After: after}, watchPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return s.Send(ctx, api.ApprovalNews{Caught: true})
		}
		for _, raw := range page {
			var summary api.ApprovalSummary
			if err := json.Unmarshal(raw, &summary); err != nil {
				return err
			}
			if err := s.Send(ctx, api.ApprovalNews{Approval: &summary}); err != nil {
				return err
			}
			after = summary.ApprovalID
		}
	}
}
