package daemon

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/logquery"
	"github.com/openclawos/ocipd/internal/profile"
	"github.com/openclawos/ocipd/internal/taskapi"
	"github.com/openclawos/ocipd/internal/tasks"
)

// client is who calls the methods of apps: one app's connection.
type client = *kernel.Client

// methods is the table of everything that can be called: a row names a method, says
// who may call it and which function answers. What it takes and gives are the types of
// that function.
func (d *Daemon) methods() []ipc.Method {
	k, log := d.kernel, logquery.Log{Store: d.store, Search: d.index}
	return []ipc.Method{
		ipc.Register("app.register", client.Register),
		ipc.App("app.heartbeat", ipc.Quick, client.Heartbeat),
		ipc.App("app.ready", ipc.Quick, client.Ready),
		ipc.App("app.shutdown", ipc.Patient, client.Shutdown),
		ipc.App("capability.register", ipc.Quick, client.RegisterCapability),
		ipc.App("capability.unregister", ipc.Quick, client.UnregisterCapability),
		ipc.App("hook.subscribe", ipc.Quick, client.Subscribe),
		ipc.App("hook.unsubscribe", ipc.Quick, client.Unsubscribe),
		ipc.App("hook.result", ipc.Quick, client.HookResult),
		ipc.App("config.get", ipc.Quick, client.Config),
		ipc.AppStream[api.ConfigChange]("config.watch", api.Watching{Watching: true}, client.WatchConfig),
		ipc.App("session.get", ipc.Patient, client.Session),
		ipc.App("session.list", ipc.Patient, client.Sessions),
		ipc.AppThen("message.dispatch", client.Dispatch),
		ipc.AppThen("agent.queue", client.Queue),
		ipc.App("agent.complete", ipc.Patient, client.Complete),
		ipc.App("hook.emit", ipc.Patient, client.Emit),
		ipc.App("exchange.get", ipc.Patient, client.Exchange),
		ipc.App("exchange.list", ipc.Patient, client.Exchanges),
		ipc.App("exchange.resolve", ipc.Patient, client.ResolveExchange),
		ipc.App("approval.get", ipc.Patient, client.Approval),
		ipc.App("approval.redeem", ipc.Patient, client.Redeem),
		ipc.App("approval.confirm", ipc.Patient, client.Confirm),
		ipc.App("approval.redeemable", ipc.Patient, client.Redeemable),
		ipc.App("approval.withdraw", ipc.Patient, client.Withdraw),

		ipc.TaskAttach("task.attach", taskSession.Attach),
		taskRow("task.create", taskSession.Create),
		taskRow("task.get", taskSession.Get),
		taskRow("task.transition", taskSession.Transition),
		taskRow("task.start_attempt", taskSession.StartAttempt),
		taskRow("task.record_checkpoint", taskSession.RecordCheckpoint),
		taskRow("task.record_artifact", taskSession.RecordArtifact),
		taskRow("task.append_review", taskSession.AppendReview),
		taskRow("task.request_approval", taskSession.RequestApproval),
		taskRow("task.resolve_approval", taskSession.ResolveApproval),
		taskRow("task.open_circuit", taskSession.OpenCircuit),
		taskRow("task.list_ready", taskSession.ListReady),
		taskRow("task.claim", taskSession.Claim),
		taskRow("task.update", taskSession.Update),
		taskRow("task.finish_attempt", taskSession.FinishAttempt),
		taskRow("task.plan_effect", taskSession.PlanEffect),
		taskRow("task.run_effect", taskSession.RunEffect),
		taskRow("task.finish_effect", taskSession.FinishEffect),
		taskRow("task.settle_effect", taskSession.SettleEffect),
		taskRow("task.kill_effect", taskSession.KillEffect),
		taskRow("task.cancel_effect", taskSession.CancelEffect),
		taskRow("task.close_circuit", taskSession.CloseCircuit),
		taskRow("task.ask_permission", taskSession.AskPermission),
		taskRow("task.grant", taskSession.Grant),
		taskRow("task.revoke_grant", taskSession.RevokeGrant),
		taskRow("task.list", taskSession.List),
		taskRow("task.import", taskSession.Import),
		ipc.OperatorStream[taskapi.News]("task.watch", d.tasks.Load().Watch),
		ipc.OperatorStreamAs[taskapi.RunnerChunk]("runner.attach", d.runner.attach),
		ipc.OperatorAs("runner.report", d.runner.report),

		agentRow(d, "agent.send", granted.Send),
		agentRow(d, "agent.read", granted.Read),
		agentRow(d, "agent.contacts", granted.Contacts),
		agentRow(d, "agent.exchange", granted.Exchange),
		agentRow(d, "agent.approval", granted.Approval),
		agentRow(d, "agent.emit", granted.Emit),
		agentRow(d, "agent.redeem", granted.Redeem),
		agentRow(d, "agent.confirm", granted.Confirm),
		agentRow(d, "agent.redeemable", granted.Redeemable),
		agentRow(d, "agent.withdraw", granted.Withdraw),
		d.agentWatch("agent.watch"),

		ipc.Cancel("stream.cancel"),
		ipc.Describe("kernel.describe"),

		ipc.Operator("kernel.methods", d.listMethods),
		ipc.Operator("kernel.status", d.status),
		ipc.Operator("audit.query", log.Query),
		ipc.Operator("audit.stats", d.auditStats),
		ipc.OperatorStream[jsontext.Value]("audit.tail", log.Tail),
		ipc.Operator("audit.verify", d.auditVerify),
		ipc.Operator("audit.inspect", d.auditInspect),
		ipc.OperatorStream[api.StoreSnapshot]("store.snapshot", d.storeSnapshot),
		ipc.Operator("exchange.get", k.ExchangeGet),
		ipc.Operator("exchange.list", k.ExchangeList),
		ipc.OperatorAs("exchange.resolve", k.ExchangeResolve),
		ipc.Operator("approval.get", k.ApprovalGet),
		ipc.Operator("approval.list", k.ApprovalList),
		ipc.OperatorAs("approval.resolve", k.ApprovalResolve),
		ipc.OperatorStream[api.ApprovalNews]("approval.watch", k.ApprovalWatch),
		ipc.OperatorAs("sending.message", k.Send),
		ipc.OperatorAs("sending.check", k.Check),
		ipc.Operator("grant.list", k.GrantList),
		ipc.OperatorAs("grant.add", k.GrantAdd),
		ipc.OperatorAs("grant.revoke", k.GrantRevoke),
		ipc.OperatorAs("sending.pause", k.Pause),
		ipc.OperatorAs("sending.resume", k.Resume),
		ipc.Operator("queue.list", k.QueueList),
		ipc.OperatorAs("queue.drop", k.QueueDrop),
		ipc.Operator("contact.list", k.ContactList),
		ipc.OperatorAs("contact.forget", k.ContactForget),
		ipc.OperatorAs("policy.reload", d.reloader.Reload),
		ipc.Operator("config.diff", d.reloader.Diff),
		ipc.OperatorAs("audit.forget", d.keys.Forget),
		ipc.OperatorAs("audit.rotate_key", d.auditRotateKey),
		ipc.OperatorAs("audit.retire", d.retention.Retire),
		ipc.OperatorStream[api.ProfileChunk]("debug.profile", profile.Feed),
	}
}

// taskRow makes the row of a method of tasks, with the roles that may call it.
func taskRow[P, R any](name string, f func(taskSession, context.Context, *P) (R, error)) ipc.Method {
	return ipc.Task(name, tasks.Matrix()[name], f)
}

// granted is who calls the methods of agents that speak by grants.
type granted = *kernel.Granted

// agentRow makes the row of a method of such agents.
func agentRow[P, R any](d *Daemon, name string, f func(granted, context.Context, *P) (R, api.AfterReply, error)) ipc.Method {
	return ipc.Agent(name, func(s taskSession, ctx context.Context, p *P) (result R, after api.AfterReply, err error) {
		who, err := d.granted(ctx, s, name)
		if err != nil {
			return result, nil, err
		}
		return f(who, ctx, p)
	})
}

// granted is who a connection speaks for by its grant as it is now.
func (d *Daemon) granted(ctx context.Context, s taskSession, method string) (granted, error) {
	grant, err := s.Agent(ctx, method)
	if err != nil {
		return nil, err
	}
	who, err := d.kernel.Granted(grant.Agent, grant.Tenant, grant.ID, s.Peer())
	if err != nil {
		return nil, err
	}
	who.While(func(ctx context.Context) error {
		_, err := d.granted(ctx, s, method)
		return err
	})
	return who, nil
}

// agentWatch makes the row of the stream that tells such an agent of its requests. A grant
// that is over ends it.
func (d *Daemon) agentWatch(name string) ipc.Method {
	return ipc.AgentStream[api.AgentNews](name, api.Watching{Watching: true}, func(s taskSession, ctx context.Context, _ *api.Empty) (ipc.Feed, error) {
		who, err := d.granted(ctx, s, name)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, stream api.Stream) error {
			return who.Watch(ctx, checked{stream, func(ctx context.Context) error {
				_, err := d.granted(ctx, s, name)
				return err
			}})
		}, nil
	})
}

// checked is a stream each of whose chunks is sent to who may still have it.
type checked struct {
	api.Stream
	may func(context.Context) error
}

func (s checked) Send(ctx context.Context, chunk any) error {
	if err := s.may(ctx); err != nil {
		return err
	}
	return s.Stream.Send(ctx, chunk)
}

// makeServer comes after all that its methods are of, and answers nobody yet.
func (d *Daemon) makeServer(context.Context) error {
	d.server = ipc.NewServer(ipc.Options{
		Methods: d.methods(),
		Connect: func(p api.Peer, l api.Link) (ipc.Client, error) { return d.kernel.Connect(p, l), nil },
		// The socket's mode and the check of users have kept others out already; this
		// keeps apps out.
		Admit: d.kernel.MayOperate, Tasks: d.connectTasks, Limits: limits(d.cfg),
		AllowUID: d.allows, Now: time.Now, NewID: d.ids.next, Version: d.version, Log: d.log.Named("ipc"), Metrics: d.metrics,
		Apps: d.apps, Operators: d.operators,
	})
	return nil
}

// listMethods lists the table.
func (d *Daemon) listMethods(context.Context, *api.Empty) (list api.MethodList, err error) {
	for _, m := range d.methods() {
		list.Methods = append(list.Methods, api.MethodEntry{Name: m.Name, Access: string(m.Access), Pace: string(m.Pace)})
	}
	return list, nil
}
