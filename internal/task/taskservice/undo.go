package taskservice

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/task"
)

// again is the digest of a request and its files as they would be by now. A program that ran already may have been
// replaced since: of a request to undo it, only what undoes it counts.
func (r reader) again(at *task.Task, p *task.Planned, was *task.BoundPair) (digest string, now task.BoundPair, err error) {
	if was.Undo == 0 {
		return r.digest(at, p, was.Salt)
	}
	now = *was
	if now.Compensation, err = r.bind(at, p.Compensation, true); err != nil {
		return "", now, err
	}
	digest, err = task.RequestDigest(at.ID, p, &now)
	return digest, now, err
}

// toUndo completes the command that asks whether an effect may be undone: it names what the approval
// of the run that is undone names.
func toUndo(at *task.Task, key string, c *task.RequestApproval, pair *task.BoundPair) error {
	c.Planned.Key = key
	e := at.EffectOf(key)
	if e == nil {
		return nil
	}
	run := at.Undoing(e)
	if run == nil {
		return nil
	}
	err := json.Unmarshal(at.Approval(run.ApprovalID).Bound, pair)
	pair.Salt, pair.Undo = approval.NewSalt(), run.Number
	if err == nil {
		c.Digest, err = task.RequestDigest(at.ID, &e.Planned, pair)
	}
	if err == nil {
		c.Bound, err = json.Marshal(pair)
	}
	return err
}

// textOf is the text of a request that people see, and its line in lists. Of a request to undo an
// effect it has only what undoes it.
func textOf(p *task.Planned, pair *task.BoundPair) (content, line string) {
	if pair.Undo == 0 {
		content = describe(p, pair)
		return content, summary(p.RequestedAction, content)
	}
	alone := *p
	alone.Command, alone.Params = nil, nil
	content = fmt.Sprintf("undo run %d of ", pair.Undo) + describe(&alone, pair)
	return content, summary(content)
}
