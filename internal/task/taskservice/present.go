package taskservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task"
)

// maxInput bounds an input of a command, in bytes: the runner copies no larger one.
const maxInput = 1 << 30

// present refuses an artifact whose file is not what was recorded. Of an artifact that the daemon has
// hashed itself, the answer tells everybody no more than that. The digest of another one is somebody's
// word: whether it is right is only for callers who could read the file.
func (r reader) present(at *task.Task, a *task.Artifact) error {
	whose := r
	whose.own = r.own || a.Verified
	if !whose.own {
		return nil
	}
	digest := ""
	f, err := whose.openIn(at.Workspace, a.URI)
	if err == nil {
		defer f.Close()
		digest, _, err = hash(f, maxInput)
	}
	const then = "put it back, or open the circuit and have it recorded and reviewed anew"
	var refusal *task.Refusal
	switch {
	case errors.Is(err, errNoFile):
		refusal = &task.Refusal{Message: fmt.Sprintf("the input %q is no file of the workspace: %s", a.URI, then)}
	case err != nil:
		return err
	case digest != a.Digest:
		refusal = &task.Refusal{Message: fmt.Sprintf("the input %q is not what was recorded, which is %s: it is %s by now; %s", a.URI, a.Digest, digest, then)}
	default:
		return nil
	}
	refusal.Code, refusal.Guards = task.GuardFailed, []task.Guard{task.Delivered}
	return refusal
}

// differs names the files and folders that are not as they were when an approval was asked for. Of
// names that were not bound it knows nothing.
func differs(was, now *task.BoundPair) string {
	var list []string
	of := func(what string, was, now *task.Bound) {
		if was == nil || now == nil {
			return
		}
		changed := func(part, before, after string) {
			if before != after {
				list = append(list, fmt.Sprintf("%s%s was %s, and is %s", what, part, before, after))
			}
		}
		changed("the program", fmt.Sprintf("%q sha256:%s", was.Exe.Path, was.Exe.SHA256), fmt.Sprintf("%q sha256:%s", now.Exe.Path, now.Exe.SHA256))
		changed("the folder", fmt.Sprintf("%q", was.Folder), fmt.Sprintf("%q", now.Folder))
		for _, in := range was.Inputs {
			if i := slices.IndexFunc(now.Inputs, func(n task.Input) bool { return n.URI == in.URI }); i >= 0 {
				changed(fmt.Sprintf("the input %q", in.URI), in.Digest, now.Inputs[i].Digest)
			}
		}
		for _, n := range was.Named {
			i := slices.IndexFunc(now.Named, func(m task.Named) bool { return m.Path == n.Path })
			switch {
			case n.Absent && i >= 0 && !now.Named[i].Absent:
				changed(fmt.Sprintf("the file %q", n.Path), "not there", cmp.Or(now.Named[i].Digest, "there"))
			case n.Digest == "":
			case i < 0:
				changed(fmt.Sprintf("the file %q", n.Path), n.Digest, "not there")
			default:
				changed(fmt.Sprintf("the file %q", n.Path), n.Digest, cmp.Or(now.Named[i].Digest, "no file that can be bound"))
			}
		}
	}
	of("", was.Command, now.Command)
	of("to undo it, ", was.Compensation, now.Compensation)
	return strings.Join(list, "; ")
}

// unchanged is why what an approval names is not what would be done now, "" if it is. Names that were
// not bound count too, unless bound is set: then only what would keep the command from starting.
func unchanged(t *Tasks, at *task.Task, a *task.Approval, bound bool) (string, error) {
	var was task.BoundPair
	if len(a.Bound) > 0 {
		if err := json.Unmarshal(a.Bound, &was); err != nil {
			return "", err
		}
	}
	e := at.Effect(a.EffectID)
	digest, now, err := reader{own: true, private: t.o.Private}.again(at, &e.Planned, &was)
	switch {
	case err != nil:
		if r, ok := errors.AsType[*task.Refusal](err); ok {
			return r.Message, nil
		}
		return api.AsError(err).Message, nil
	case digest == a.Digest:
		return "", nil
	}
	why := differs(&was, &now)
	if why == "" && !bound {
		why = "the files that the command names are others by now"
	}
	return why, nil
}

// startable refuses to start an effect whose files are not as they were when its approval was asked
// for, before the start uses the approval up. The runner looks again when the command begins.
func startable(t *Tasks, at *task.Task, c *task.RunEffect) error {
	e := at.Effect(c.EffectID)
	if c.EffectID == "" {
		e = at.EffectOf(c.Key)
	}
	if e == nil || c.Compensation || e.Command == nil || at.Phase != task.ReadyToResume || e.State != task.EffectPlanned && e.State != task.EffectFailed {
		return nil
	}
	a := at.Live(e.ID, t.o.Now())
	if a == nil || a.Digest != c.Digest {
		return nil
	}
	why, err := unchanged(t, at, a, true)
	if err != nil || why == "" {
		return err
	}
	return &task.Refusal{
		Code: task.GuardFailed, Guards: []task.Guard{task.Approved},
		Message: fmt.Sprintf("%s. Approval %s is not used: put it back, or revoke the approval (ocipd approvals deny) and ask anew", why, a.ID),
	}
}

// The states of an approval of an effect after people gave it, in the words for messages.
const (
	NotUsed   = "ready"
	Used      = "sent"
	OutOfTime = "expired"
)

// Use returns the state of an approval of an effect: NotUsed, Used or OutOfTime. It returns "" if the
// request is not approved.
func Use(ctx context.Context, t *Tasks, taskID, approvalID string) (string, error) {
	defer t.locks.Lock(taskID)()
	at, err := t.loadLocked(ctx, taskID)
	if err != nil {
		if api.AsError(err).Code == api.NotFound {
			err = nil
		}
		return "", err
	}
	switch a := at.Approval(approvalID); {
	case a == nil || a.Status != task.ApprovalApproved:
		return "", nil
	case a.Used:
		return Used, nil
	case !t.o.Now().Before(a.ExpiresAt):
		return OutOfTime, nil
	}
	return NotUsed, nil
}
