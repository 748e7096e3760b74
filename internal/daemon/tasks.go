package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/registry"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
	"go.uber.org/zap"
)

// taskSession is the caller of the tasks' methods: one connection.
type taskSession = *taskservice.Session

// bootName is the length of the shortened id of a boot.
const bootName = 8

// permitWithin bounds the wait for a person's decision about a tool call.
const permitWithin = 10 * time.Minute

// tasksConfig types the tasks' part of the configuration. seal, if set, seals texts for
// records; with held, only those that wait for a person.
func tasksConfig(c *config.Config, seal func(text string) (string, error), held bool) taskservice.Config {
	t := taskservice.Config{
		Rules: task.Rules{
			Lease:       c.Tasks.Lease,
			SpecReviews: c.Tasks.Reviews.Spec, QualityReviews: c.Tasks.Reviews.Quality, AskLate: c.Tasks.Effects.Late == config.LateAsk, SelfApproval: c.Tasks.SelfApproval, SharedPrincipals: c.Tasks.SelfReview,
			Approvers: c.Approvals.Required,
		},
		ApproveWithin: c.Approvals.ExpiresAfter, PermitWithin: permitWithin, MaxAsked: c.Approvals.MaxOpen, Tenants: tenants(c),
	}
	r, tries := &t.Rules, &c.Tasks
	r.Retry.Attempts, r.Retry.Base, r.Retry.Factor = tries.Retry.Attempts, tries.Retry.Base, tries.Retry.Factor
	r.Rework.Attempts, r.Rework.Base, r.Rework.Factor = tries.Rework.Attempts, tries.Rework.Base, tries.Rework.Factor
	if seal != nil {
		t.SealHeld = held
		t.Seal = func(text string) (string, error) {
			sealed, err := seal(text)
			if err != nil {
				err = storeerror.NotRecorded("cannot record what was said, so nothing was done", err)
			}
			return sealed, err
		}
	}
	for _, l := range ocip.Levels() {
		t.Levels = append(t.Levels, l.String())
	}
	for i := range c.Tasks.Actors {
		a := &c.Tasks.Actors[i]
		t.Actors = append(t.Actors, taskservice.Actor{
			Name: a.Name, Role: task.Role(a.Role), App: a.App, Tenant: a.TenantID, MaxClassification: cmp.Or(a.MaxClassification, ocip.Internal.String()), UID: a.UID, Exe: a.Exe,
		})
	}
	return t
}

// startTasks comes after the kernel, whose rules apply to people's decisions.
func (d *Daemon) startTasks(ctx context.Context) error {
	detector, err := content.New(content.Options{})
	if err != nil {
		return err
	}
	seal, held, err := sealing(d.cfg)
	if err != nil {
		return err
	}
	boot, err := peer.Boot()
	if err != nil {
		return err
	}
	d.runner = newRunners(d)
	made, err := taskservice.New(ctx, taskservice.Options{
		Store: d.store, Search: d.followers.index, Approvals: d.kernel.Approvals, Config: tasksConfig(d.cfg, seal, held),
		Private: d.places.private(d.sockets.app), Agent: d.kernel.Grantable, Paused: d.kernel.Sending.PausedActor, Deciding: d.kernel.Deciding, Revoking: d.kernel.Replacing, Revoked: d.kernel.Exempt.End, Runner: d.runner, Note: d.kernel.Processes.NoteActor, Boot: boot[:min(len(boot), bootName)],
		Program: registry.Program,
		Keys: func(tenant, label string, form func([]byte) ([]byte, error)) (string, error) {
			digest, err := d.keys.DigestForm(tenant, label, form)
			if err != nil {
				d.log.Error("cannot record a text: nothing was done", zap.Error(err))
				err = storeerror.NotRecorded("cannot record what was said, so nothing was done", err)
			}
			return digest, err
		},
		Commit: func(c *store.Change) (store.Receipt, error) {
			receipt, err := d.store.Commit(c)
			if err != nil {
				err = storeerror.NotRecorded("cannot record what was decided, so nothing was done", err)
			}
			return receipt, err
		},
		Ask: func(ctx context.Context, q taskservice.Question) task.Answer {
			return askPolicy(ctx, d.inForce.policy.Load(), q)
		},
		Raise: func(level string, texts ...string) string { return raised(detector, level, texts) },
		Now:   time.Now, NewID: d.ids.next, Log: d.log.Named("tasks"),
	})
	if err != nil {
		return fmt.Errorf("cannot take up the tasks: %w", err)
	}
	d.tasks.Store(made)
	d.ends.add("tasks", func() error {
		made.Close()
		return nil
	})
	return nil
}

// askPolicy asks the policy if it has rules for tasks, or else the built-in rules.
// An error means a refusal; its cause appears only in the record.
func askPolicy(ctx context.Context, p *policy.Policy, q taskservice.Question) task.Answer {
	if !p.JudgesTasks() {
		a := taskservice.BuiltIn(&q)
		a.Revision = p.Revision()
		return a
	}
	in := policy.TaskQuestion{
		Action: q.Action, Tenant: q.Tenant, Classification: q.Classification, Labels: q.Labels, Phase: string(q.Phase), Actor: q.Actor, Role: string(q.ActorAs),
		To: string(q.To), Attempt: q.Attempt, Executor: q.WorkedBy,
	}
	if e := q.Effect; e != nil {
		in.Effect = &policy.TaskEffect{Kind: e.Kind, Type: e.EffectType, Compensation: q.Compensation, Late: e.Late}
		action := e.Command
		if q.Compensation {
			action, in.Effect.Type = e.Compensation, task.TypeCommand
		}
		if action != nil {
			in.Effect.Program = action.Argv[0]
		}
	}
	if t := q.Tool; t != nil {
		in.Tool = &policy.TaskTool{Kind: t.Kind, Server: t.Server, InWorkspace: t.InWorkspace, Research: q.Research}
	}
	said, name, revision, err := p.EvaluateTask(ctx, &in)
	if err != nil {
		return task.Answer{Reason: "the policy gave no answer", Cause: err.Error(), Policy: name, Revision: revision}
	}
	return task.Answer{Allow: said.Allow, RequireApproval: said.RequireApproval, Reason: said.Reason, Approvers: said.Approvers, Policy: name, Revision: revision}
}

// raised is the level to which texts raise a given level.
func raised(detector *content.Detector, level string, texts []string) string {
	names := make([]string, 0, 4)
	for _, l := range ocip.Levels() {
		names = append(names, l.String())
	}
	at := max(0, slices.Index(names, level))
	var passages []text.Passage
	for _, s := range texts {
		passages = append(passages, text.Passage{Text: s})
	}
	for _, f := range detector.Scan(passages) {
		at = max(at, slices.Index(names, f.Level))
	}
	return names[at]
}

// tasks is the service of the tasks, once it has started; the kernel asks for it from the start.
type tasks struct {
	atomic.Pointer[taskservice.Tasks]
}

// subject finds the subject of an approval request about a task.
func (t *tasks) subject(r *approval.Request) (approval.Subject, error) {
	if made := t.Load(); made != nil {
		return made.Subject(r)
	}
	return nil, approval.NotFound(r.ApprovalID)
}

// of finds the tenant and the level of the task that a message is about.
func (t *tasks) of(ctx context.Context, id string) (tenant, level string, ok bool, err error) {
	if made := t.Load(); made != nil {
		return made.Whose(ctx, id)
	}
	return "", "", false, nil
}

// connect makes a connection's session for tasks.
func (t *tasks) connect(p api.Peer, c ipc.Client) ipc.TaskSession {
	app := func() string { return "" }
	if client, ok := c.(*kernel.Client); ok {
		app = func() string {
			if a := client.App(); a != nil {
				return a.ID()
			}
			return ""
		}
	}
	return t.Load().Connect(p, c == nil, app)
}
