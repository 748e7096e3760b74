package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
)

// Notifier notifies people. Its methods must not wait.
type Notifier interface {
	// Held is called when a request begins to wait, Decided when it no longer does.
	Held(*api.Approval)
	Decided(approvalID string)
	// Alarm reports something that needs no decision.
	Alarm(id, title, body string)
}

// Options holds the dependencies of requests.
type Options struct {
	Store *store.Store
	// Search finds the store's records.
	Search store.Search
	// Commit makes a change durable. Callers may be told its error.
	Commit func(*store.Change) (store.Receipt, error)
	// Keyed makes the keyed digest that stands for a tenant's text in records. Callers may be told
	// its error.
	Keyed func(tenant, text string) (string, error)
	// Answers makes the digest, under another key, that stands for the asked thing in the record of
	// its answer.
	Answers func(tenant, asked string) (string, error)
	// Notify, if set, is told about pending requests.
	Notify Notifier
	Now    func() time.Time
	NewID  func() string
}

// Requests are all approval requests. They are the same under every configuration; methods that
// depend on one belong to [Decider]. They are safe for concurrent use.
type Requests struct {
	o Options
	pending
	watchers watchers
}

// New loads the requests from the store.
func New(ctx context.Context, o Options) (*Requests, error) {
	q := &Requests{o: o, pending: pending{asked: make(map[asker]map[string]string)}, watchers: watchers{set: make(map[*watcher]struct{})}}
	return q, o.Store.Pending(ctx, func(id, kind, agent, asked string) { q.put(kind, agent, asked, id) })
}

// Request is one approval request: the part that people see, and the data that its decision needs.
type Request struct {
	api.Approval
	// Asked is the digest that names the request, see [Asked].
	Asked string
	// Anew counts how often a person had to be asked again, so that a digest that was shown once
	// never becomes valid again.
	Anew int
	// Own is the subject's data for its release, in its own form.
	Own jsontext.Value
	// Tenant is the tenant of the asker at the time: an agent may move to another one with its id. It
	// is "" in a request of an earlier version.
	Tenant string
}

// The fields of changes. Every request has the first three, of which the last is the text that
// would be sent; changedInterceptor is the objection of an interceptor.
const (
	changedRevision    = "policyRevision"
	changedVerdict     = "verdict"
	changedSending     = "sending"
	changedInterceptor = "interceptor"
)

// NotFound returns the error for an unknown request.
func NotFound(id string) error { return api.Errorf(api.NotFound, "there is no approval %q", id) }

// Get returns a request.
func (q *Requests) Get(ctx context.Context, id string) (*Request, error) {
	stored, err := q.o.Store.Approval(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, NotFound(id)
	}
	if err == nil {
		err = q.ended(ctx, id, stored.State)
	}
	if err != nil {
		return nil, err
	}
	return q.read(stored)
}

// ended returns an [*store.AlteredError] if a request is in another state than that of the record of its
// end, which has the state as its event. The store knows what the log says about the pending ones.
func (q *Requests) ended(ctx context.Context, id, state string) error {
	if state == api.ApprovalPending {
		return nil
	}
	return store.AgreesEnd(ctx, q.o.Store, q.o.Search, id, state, api.ApprovalStates()[1:])
}

// read decodes a request. A row that the log agrees with and that cannot be decoded is somebody
// else's.
func (q *Requests) read(stored store.Approval) (*Request, error) {
	r, err := decode(stored)
	if err != nil {
		err = errors.Join(err, q.o.Store.Altered(fold.Approvals, stored.ID))
	}
	return r, err
}

// OfExchange returns the pending requests of one agent's side of an exchange.
func (q *Requests) OfExchange(ctx context.Context, exchangeID, agent string) (list []*Request, err error) {
	waiting, err := q.o.Store.PendingOf(ctx, exchangeID)
	if err != nil {
		return nil, err
	}
	for _, stored := range waiting {
		if stored.Agent != agent {
			continue
		}
		r, err := q.read(stored)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// List returns a page of requests, oldest first.
func (q *Requests) List(ctx context.Context, p *api.ApprovalListParams) (api.ApprovalListResult, error) {
	f := store.ApprovalFilter{State: p.State, Agent: p.Agent, After: p.After}
	switch f.State {
	case "":
		f.State = api.ApprovalPending
	case "all":
		f.State = ""
	}
	var left store.Left
	page, total, err := q.summaries(ctx, f, p.Page(), &left)
	if err != nil {
		return api.ApprovalListResult{}, err
	}
	result := api.ApprovalListResult{Approvals: make([]jsontext.Value, len(page)), Total: total, Altered: left.Names}
	for i := range page {
		if result.Approvals[i], err = json.Marshal(&page[i]); err != nil {
			return api.ApprovalListResult{}, fmt.Errorf("cannot encode approval %s: %w", page[i].ApprovalID, err)
		}
	}
	return result, nil
}

// Oldest returns when the oldest pending request was made, zero if there is none.
func (q *Requests) Oldest(ctx context.Context) (time.Time, error) {
	page, _, err := q.summaries(ctx, store.ApprovalFilter{State: api.ApprovalPending}, 1, new(store.Left))
	if err != nil || len(page) == 0 {
		return time.Time{}, err
	}
	return time.UnixMilli(page[0].AskedAt).UTC(), nil
}

// summaries returns a page of requests, without those that somebody else has changed.
func (q *Requests) summaries(ctx context.Context, f store.ApprovalFilter, limit int, left *store.Left) (page []api.ApprovalSummary, total int, err error) {
	for {
		want := limit - len(page)
		stored, all, err := q.o.Store.Summaries(ctx, f, want, left)
		if err != nil {
			return nil, 0, err
		}
		for i := range stored {
			one, err := q.summary(ctx, &stored[i])
			switch {
			case err == nil:
				page = append(page, one)
			case !left.Takes(err):
				return nil, 0, err
			}
		}
		if len(stored) < want || len(page) == limit {
			return page, all, nil
		}
		f.After = stored[len(stored)-1].ID
	}
}

// summary decodes a request for a list.
func (q *Requests) summary(ctx context.Context, stored *store.ApprovalSummary) (one api.ApprovalSummary, err error) {
	if one, err = decodeSummary(stored.Text); err != nil {
		return one, errors.Join(err, q.o.Store.Altered(fold.Approvals, stored.ID))
	}
	return one, q.ended(ctx, stored.ID, stored.State)
}

// Add enters a new request into a change, with its digest for people. It is pending once the change
// is durable.
func (q *Requests) Add(r *Request, s Subject, change *store.Change) error {
	r.Salt, r.Tenant = NewSalt(), cmp.Or(r.Tenant, s.Record().TenantID)
	r.name(s.Shown())
	if err := r.enter(change, "", api.ApprovalPending); err != nil {
		return err
	}
	change.OnDurable(func(store.Receipt) {
		q.put(r.Kind, r.Agent, r.Asked, r.ApprovalID)
		q.watchers.tell(r.ApprovalID)
		if q.o.Notify != nil {
			q.o.Notify.Held(&r.Approval)
		}
	})
	return nil
}
