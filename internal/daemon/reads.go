package daemon

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// reads records who reads confidential content: held texts, exports of the log, and copies
// of the state. It refuses a read that it cannot record.
type reads struct {
	d *Daemon

	mu sync.Mutex
	// seen are the recorded reads of texts, by reader; one record each is enough.
	seen map[readText]bool
}

// readText is a request that a reader has seen.
type readText struct{ by, approval, digest string }

// someReads bounds the remembered reads. A forgotten one is recorded again.
const someReads = 4096

// record puts a read on record. The read of a pending request may use the disk's reserve, because a
// person decides only about what was shown.
func (r *reads) record(event string, about audit.Record, details map[string]any, pending bool) error {
	about.ID, about.ActionType, about.Event, about.Details = r.d.ids.next(), audit.ActionSecurity, event, details
	_, err := r.d.store.Commit(&store.Change{Drains: true, Last: pending, Records: []*audit.Record{&about}})
	if err != nil {
		err = storeerror.NotRecorded("cannot record who reads it, so it is not shown", err)
	}
	return err
}

// approval answers approval.get of operators.
func (r *reads) approval(ctx context.Context, who api.Peer, p *api.ApprovalParams) (api.Approval, error) {
	a, err := r.d.kernel.ApprovalGet(ctx, p)
	if err == nil && a.Delivery == "" {
		a.Delivery, err = r.use(ctx, &a.ApprovalSummary)
	}
	if err == nil {
		err = taskservice.Show(ctx, r.d.tasks.Load(), &a)
	}
	if err != nil || a.Content == "" {
		return a, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := readText{caller.Principal(who), a.ApprovalID, a.Digest}
	if r.seen[key] {
		return a, nil
	}
	details := caller.PersonDetails(who, "")
	details["digest"] = a.Digest
	if err := r.record("held_text_read", audit.Record{ApprovalID: a.ApprovalID, TaskID: a.TaskID}, details, a.State == api.ApprovalPending); err != nil {
		return api.Approval{}, err
	}
	if r.seen == nil || len(r.seen) >= someReads {
		r.seen = make(map[readText]bool)
	}
	r.seen[key] = true
	return a, nil
}

// use returns the use of an approval of an effect since people gave it.
func (r *reads) use(ctx context.Context, a *api.ApprovalSummary) (string, error) {
	if a.Kind != api.ApprovalOfEffect || a.State != api.ApprovalApproved || a.TaskID == "" {
		return "", nil
	}
	return taskservice.Use(ctx, r.d.tasks.Load(), a.TaskID, a.ApprovalID)
}

// unusable says for a use of an approval of an effect why it lets nothing start any more.
var unusable = map[string]string{taskservice.Used: "a start has used it", taskservice.OutOfTime: "it was not used in time"}

// approvals answers approval.list.
func (r *reads) approvals(ctx context.Context, p *api.ApprovalListParams) (api.ApprovalListResult, error) {
	list, err := r.d.kernel.ApprovalList(ctx, p)
	if err != nil || p.State == "" || p.State == api.ApprovalPending {
		return list, err
	}
	left := store.Left{Names: list.Altered}
	shown := list.Approvals[:0]
	for _, raw := range list.Approvals {
		var a api.ApprovalSummary
		if err := json.Unmarshal(raw, &a); err != nil {
			return list, fmt.Errorf("cannot decode an approval: %w", err)
		}
		use, err := r.use(ctx, &a)
		if left.Takes(err) {
			continue
		}
		if err != nil {
			return list, err
		}
		if why := unusable[use]; why != "" {
			a.Blocked, a.Approvable = why, false
			if raw, err = json.Marshal(&a); err != nil {
				return list, fmt.Errorf("cannot encode approval %s: %w", a.ApprovalID, err)
			}
		}
		shown = append(shown, raw)
	}
	list.Approvals, list.Altered = shown, left.Names
	return list, nil
}

// tail answers audit.tail.
func (r *reads) tail(ctx context.Context, who api.Peer, p *api.AuditTailParams, open func(context.Context, *api.AuditTailParams) (func(context.Context, api.Stream) error, error)) (ipc.Feed, error) {
	if p.Export {
		details := caller.PersonDetails(who, "")
		if p.After != nil {
			details["after"] = *p.After
		}
		if !p.Filter.Unbounded() {
			details["filter"] = p.Filter
		}
		if err := r.record("log_exported", audit.Record{}, details, false); err != nil {
			return nil, err
		}
	}
	return open(ctx, p)
}

// backup answers backup.note: an operator's process is about to copy the state.
func (r *reads) backup(_ context.Context, who api.Peer, p *api.BackupNoteParams) (api.OK, error) {
	details := caller.PersonDetails(who, "")
	details["directory"] = p.Directory
	return api.OK{OK: true}, r.record("backup_begun", audit.Record{}, details, false)
}
