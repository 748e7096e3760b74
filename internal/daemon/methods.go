package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/pprof"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/kernel/logquery"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// client is the caller of the apps' methods: one app's connection.
type client = *kernel.Client

// methods is the table of all methods. A row has a method's name, its permitted callers and
// the function that answers; the function's types are those of parameters and result.
func (d *Daemon) methods() []ipc.Method {
	return slices.Concat(taskMethods(d), appMethods(), agentMethods(d), []ipc.Method{
		ipc.Cancel("stream.cancel").Fails(api.NotFound),
		ipc.Describe("kernel.describe"),
		ipc.Challenge("operator.challenge").Fails(api.NotFound),
	}, operatorMethods(d))
}

// appMethods are those of an app's connection.
func appMethods() []ipc.Method {
	return []ipc.Method{
		ipc.Register("app.register", client.Register).Fails(api.Conflict, api.Forbidden),
		ipc.App("app.heartbeat", ipc.Quick, client.Heartbeat),
		ipc.App("app.ready", ipc.Quick, client.Ready).Fails(api.Conflict),
		ipc.App("app.acknowledge", ipc.Quick, client.Acknowledge),
		ipc.App("app.shutdown", ipc.Patient, client.Shutdown),
		ipc.App("capability.register", ipc.Quick, client.RegisterCapability),
		ipc.App("capability.unregister", ipc.Quick, client.UnregisterCapability),
		ipc.App("hook.subscribe", ipc.Quick, client.Subscribe),
		ipc.App("hook.unsubscribe", ipc.Quick, client.Unsubscribe),
		ipc.App("hook.result", ipc.Quick, client.HookResult).Fails(api.HookNotSubscribed),
		ipc.App("config.get", ipc.Quick, client.Config),
		ipc.AppStream[api.ConfigChange]("config.watch", api.Watching{Watching: true}, client.WatchConfig),
		ipc.App("session.get", ipc.Patient, client.Session),
		ipc.App("session.list", ipc.Patient, client.Sessions),
		ipc.AppThen("message.dispatch", client.Dispatch).Fails(api.Forbidden, api.NotFound, api.Conflict, api.Timeout),
		ipc.AppThen("agent.queue", client.Queue).Fails(api.CapabilityDenied, api.NotFound, api.Forbidden),
		ipc.App("agent.complete", ipc.Patient, client.Complete).Fails(api.NotFound),
		ipc.App("hook.emit", ipc.Patient, client.Emit).Fails(api.Forbidden, api.CapabilityDenied, api.NotFound, api.Conflict),
		ipc.App("exchange.get", ipc.Patient, client.Exchange).Fails(api.NotFound),
		ipc.App("exchange.list", ipc.Patient, client.Exchanges).Fails(api.Forbidden),
		ipc.App("exchange.resolve", ipc.Patient, client.ResolveExchange).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.App("approval.get", ipc.Patient, client.Approval).Fails(api.NotFound),
		ipc.App("approval.redeem", ipc.Patient, client.Redeem).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.App("approval.confirm", ipc.Patient, client.Confirm).Fails(api.NotFound, api.Conflict),
		ipc.App("approval.redeemable", ipc.Patient, client.Redeemable),
		ipc.App("approval.withdraw", ipc.Patient, client.Withdraw).Fails(api.NotFound, api.Conflict, api.Forbidden),
	}
}

// agentMethods are those of agents with grants.
func agentMethods(d *Daemon) []ipc.Method {
	return []ipc.Method{
		agentRow(d, "agent.send", granted.Send).Fails(api.Forbidden, api.NotFound, api.Conflict, api.Timeout, api.CapabilityDenied),
		agentRow(d, "agent.read", granted.Read).Fails(api.Forbidden, api.Conflict),
		agentRow(d, "agent.contacts", granted.Contacts),
		agentRow(d, "agent.exchange", granted.Exchange).Fails(api.NotFound),
		agentRow(d, "agent.approval", granted.Approval).Fails(api.NotFound),
		agentRow(d, "agent.emit", granted.Emit).Fails(api.Forbidden, api.NotFound, api.Conflict),
		agentRow(d, "agent.redeem", granted.Redeem).Fails(api.NotFound, api.Conflict, api.Forbidden),
		agentRow(d, "agent.confirm", granted.Confirm).Fails(api.NotFound, api.Conflict),
		agentRow(d, "agent.redeemable", granted.Redeemable),
		agentRow(d, "agent.withdraw", granted.Withdraw).Fails(api.NotFound, api.Conflict, api.Forbidden),
		agentWatch(d, "agent.watch"),
	}
}

// operatorMethods are those of people and of commands, on the operators' socket.
func operatorMethods(d *Daemon) []ipc.Method {
	k, reads, inspector := d.kernel, &reads{d: d}, &inspector{d.store, d.places.database, d.log}
	log := logquery.Log{Lines: d.store, Search: d.followers.index, Instance: func(name string) string { return config.InstanceOf(d.config().Agents, name) }}
	return []ipc.Method{
		ipc.Operator("kernel.methods", api.Reads, func(context.Context, *api.Empty) (list api.MethodList, err error) {
			for _, m := range d.methods() {
				list.Methods = append(list.Methods, api.MethodEntry{Name: m.Name, Access: string(m.Access), Pace: string(m.Pace), Signing: m.Signing})
			}
			return list, nil
		}),
		ipc.Operator("kernel.status", api.Reads, d.status),
		ipc.Operator("audit.query", api.Reads, log.Query),
		ipc.Operator("audit.stats", api.Reads, d.followers.stats),
		ipc.OperatorStreamAs[jsontext.Value]("audit.tail", api.Reads, func(ctx context.Context, who api.Peer, p *api.AuditTailParams) (ipc.Feed, error) {
			return reads.tail(ctx, who, p, log.Tail)
		}),
		ipc.OperatorAs("peer.check", api.Reads, k.Behalf.Check),
		ipc.OperatorAs("console.report", api.Unsigned, k.Behalf.Report),
		ipc.OperatorAs("backup.note", api.Unsigned, reads.backup),
		ipc.Operator("audit.verify", api.Reads, d.evidence.check),
		ipc.Operator("audit.inspect", api.Reads, inspector.inspect),
		ipc.OperatorStream[api.StoreSnapshot]("store.snapshot", inspector.snapshot).Fails(api.Conflict),
		ipc.Operator("exchange.get", api.Reads, k.ExchangeGet).Fails(api.NotFound),
		ipc.Operator("exchange.list", api.Reads, k.ExchangeList),
		ipc.OperatorAs("exchange.resolve", api.SignedParams, k.ExchangeResolve).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.OperatorAs("approval.get", api.Reads, reads.approval).Fails(api.NotFound),
		ipc.Operator("approval.list", api.Reads, reads.approvals),
		ipc.OperatorAs("approval.resolve", api.SignedParams, k.ApprovalResolve).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.OperatorStream[api.ApprovalNews]("approval.watch", k.ApprovalWatch),
		ipc.Operator("approval.judge", api.Unsigned, kernel.Judging(k)).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.OperatorAs("sending.message", api.Signed, k.Send).Fails(api.NotFound, api.Forbidden),
		ipc.OperatorAs("sending.check", api.Unsigned, k.Check).Fails(api.NotFound, api.Forbidden),
		ipc.Operator("grant.list", api.Reads, k.GrantList),
		ipc.OperatorAs("grant.add", api.SignedParams, k.GrantAdd).Fails(api.NotFound, api.Conflict, api.Forbidden),
		ipc.OperatorAs("grant.revoke", api.Unsigned, k.GrantRevoke).Fails(api.NotFound),
		ipc.OperatorAs("sending.pause", api.Unsigned, k.Sending.Pause).Fails(api.NotFound),
		ipc.OperatorAs("sending.resume", api.Signed, d.resume).Fails(api.NotFound, api.Forbidden),
		ipc.Operator("queue.list", api.Reads, k.QueueList),
		ipc.OperatorAs("queue.drop", api.Signed, k.QueueDrop).Fails(api.Forbidden),
		ipc.Operator("contact.list", api.Reads, k.ContactList),
		ipc.OperatorAs("contact.forget", api.Signed, k.ContactForget).Fails(api.Forbidden),
		ipc.OperatorAs("policy.reload", api.Unsigned, d.reloader.Reload).Fails(api.Conflict, api.Forbidden),
		ipc.Operator("config.diff", api.Reads, d.reloader.Diff).Fails(api.Conflict),
		ipc.OperatorAs("audit.forget", api.Signed, d.keys.Forget).Fails(api.NotFound, api.Forbidden),
		ipc.OperatorAs("audit.rotate_key", api.Signed, d.evidence.rotate).Fails(api.Forbidden),
		ipc.OperatorAs("audit.retire", api.Signed, d.followers.retention.Retire).Fails(api.Forbidden),
		ipc.OperatorStreamAs[fleetapi.FleetFrame]("fleet.attach", api.Unsigned, k.Hosts.Carries).Fails(api.Conflict),
		ipc.Operator("fleet.bring", api.Unsigned, k.Hosts.Bring).Fails(api.Conflict, api.Forbidden),
		ipc.Operator("fleet.status", api.Reads, k.Hosts.Status).Fails(api.Conflict),
		ipc.OperatorStream[api.ProfileChunk]("debug.profile", pprof.Feed).Fails(api.Conflict),
	}
}

// granted is the caller of methods for agents with grants.
type granted = *kernel.Granted

// agentRow makes the row of a method for agents with grants.
func agentRow[P, R any](d *Daemon, name string, f func(granted, context.Context, *P) (R, api.AfterReply, error)) ipc.Method {
	return ipc.Agent(name, func(s taskSession, ctx context.Context, p *P) (result R, after api.AfterReply, err error) {
		who, err := grantedOf(ctx, d, s, name)
		if err != nil {
			return result, nil, err
		}
		return f(who, ctx, p)
	})
}

// grantedOf is the agent of a connection's grant, with the grant's current state.
func grantedOf(ctx context.Context, d *Daemon, s taskSession, method string) (granted, error) {
	grant, err := s.Agent(ctx, method)
	if err != nil {
		return nil, err
	}
	who, err := d.kernel.Granted(grant.Agent, grant.Tenant, grant.ID, s.Peer())
	if err != nil {
		return nil, err
	}
	var lasts time.Time
	if grant.TaskID == "" {
		// A grant that ends with a task can end in many ways.
		lasts = grant.ExpiresAt
	}
	who.While(func(ctx context.Context) error {
		_, err := grantedOf(ctx, d, s, method)
		return err
	}, func(ctx context.Context) error { return taskservice.Stands(ctx, d.tasks.Load(), grant.ID) }, lasts)
	return who, nil
}

// taskMethods are the methods about tasks.
func taskMethods(d *Daemon) []ipc.Method {
	return []ipc.Method{
		ipc.TaskAttach("task.attach", taskSession.Attach).Fails(api.Unauthorized),
		ipc.Task("task.create", api.Unsigned, taskSession.Create),
		ipc.Task("task.get", api.Reads, taskSession.Get),
		ipc.Task("task.transition", api.Unsigned, taskSession.Transition),
		ipc.Task("task.start_attempt", api.Unsigned, taskSession.StartAttempt),
		ipc.Task("task.record_checkpoint", api.Unsigned, taskSession.RecordCheckpoint),
		ipc.Task("task.record_artifact", api.Unsigned, taskSession.RecordArtifact),
		ipc.Task("task.append_review", api.Unsigned, taskSession.AppendReview),
		ipc.Task("task.request_approval", api.Unsigned, taskSession.RequestApproval),
		ipc.Task("task.resolve_approval", api.SignedParams, taskSession.ResolveApproval),
		ipc.Task("task.open_circuit", api.Unsigned, taskSession.OpenCircuit),
		ipc.Task("task.list_ready", api.Reads, taskSession.ListReady),
		ipc.Task("task.claim", api.Unsigned, taskSession.Claim),
		ipc.Task("task.update", api.Unsigned, taskSession.Update),
		ipc.Task("task.finish_attempt", api.Unsigned, taskSession.FinishAttempt),
		ipc.Task("task.plan_effect", api.Unsigned, taskSession.PlanEffect),
		ipc.Task("task.run_effect", api.Unsigned, taskSession.RunEffect),
		ipc.Task("task.finish_effect", api.Unsigned, taskSession.FinishEffect),
		ipc.Task("task.settle_effect", api.Signed, taskSession.SettleEffect),
		ipc.Task("task.kill_effect", api.Unsigned, taskSession.KillEffect),
		ipc.Task("task.cancel_effect", api.Unsigned, taskSession.CancelEffect),
		ipc.Task("task.close_circuit", api.Signed, taskSession.CloseCircuit),
		ipc.Task("task.ask_permission", api.Unsigned, taskSession.AskPermission),
		ipc.Task("task.grant", api.Signed, taskSession.Grant),
		ipc.Task("task.revoke_grant", api.Unsigned, taskSession.RevokeGrant),
		ipc.Task("task.grants", api.Reads, taskSession.Grants),
		ipc.Task("task.list", api.Reads, taskSession.List),
		ipc.Task("task.import", api.Signed, taskSession.Import),
		ipc.OperatorStream[taskapi.News]("task.watch", d.tasks.Load().Watch),
		ipc.OperatorStreamAs[taskapi.RunnerChunk]("runner.attach", api.Unsigned, d.runner.attach).Fails(api.Conflict),
		ipc.OperatorAs("runner.report", api.Unsigned, d.runner.report).Fails(api.Conflict, api.Forbidden),
	}
}

// agentWatch makes the row of the stream that tells an agent with a grant about its
// requests. The stream ends with the grant.
func agentWatch(d *Daemon, name string) ipc.Method {
	return ipc.AgentStream[api.AgentNews](name, api.Watching{Watching: true}, func(s taskSession, ctx context.Context, _ *api.Empty) (ipc.Feed, error) {
		who, err := grantedOf(ctx, d, s, name)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, stream api.Stream) error {
			return who.Watch(ctx, checked{stream, func(ctx context.Context) error {
				_, err := grantedOf(ctx, d, s, name)
				return err
			}})
		}, nil
	})
}

// checked is a stream that checks the recipient's right before it sends.
type checked struct {
	api.Stream
	may func(context.Context) error
}

func (s checked) Send(ctx context.Context, chunks ...any) error {
	if err := s.may(ctx); err != nil {
		return err
	}
	return s.Stream.Send(ctx, chunks...)
}

// makeServer comes after everything that its methods use. The server does not answer yet.
func (d *Daemon) makeServer(context.Context) error {
	d.serving.Server = ipc.NewServer(ipc.Options{
		Methods: d.methods(),
		Connect: func(p api.Peer, l api.Link) (ipc.Client, error) { return d.kernel.Connect(p, l), nil },
		// The socket's mode and the check of users already exclude other users; this excludes apps.
		Admit: d.kernel.Processes.MayOperate, Signs: d.kernel.Signs, Vouch: d.kernel.Vouch, Behalf: d.kernel.Behalf.For, Tasks: d.tasks.connect, Limits: limits(d.cfg),
		AllowUID: d.sockets.allows, Now: time.Now, NewID: d.ids.next, Version: d.options.Version, Log: d.log.Named("ipc"), Metrics: d.metrics,
		Apps: d.sockets.apps, Operators: d.sockets.operators,
	})
	return nil
}
