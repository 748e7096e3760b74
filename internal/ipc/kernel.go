package ipc

import (
	"context"

	"github.com/openclawos/ocipd/internal/api"
)

// Kernel is what stands behind the sockets.
type Kernel interface {
	// Connect begins a connection of an app. It refuses with an error that is
	// answered and ends the connection.
	Connect(api.Peer, api.Link) (Client, error)
	// Admit decides whether a process may use the operator socket. It is asked when
	// the process connects and at each of its requests.
	Admit(api.Peer) error
	Operator
}

// Client is one app's connection inside the kernel. A method's error is
// answered in its own code where it is an [*api.Error].
type Client interface {
	// Authorize checks a request's token: APP_NOT_REGISTERED before
	// registration, UNAUTHORIZED where it is missing or wrong. It also counts
	// as a sign of life.
	Authorize(token string) error
	// Registered reports whether the connection has an app.
	Registered() bool
	// Register takes the token of an earlier registration, or "".
	Register(ctx context.Context, token string, p *api.RegisterParams) (api.RegisterResult, error)

	Heartbeat(context.Context, *api.HeartbeatParams) (api.HeartbeatResult, error)
	Ready(context.Context, *api.ReadyParams) (api.OK, error)
	Shutdown(context.Context, *api.ShutdownParams) (api.OK, error)
	RegisterCapability(context.Context, *api.CapabilityParams) (api.CapabilityResult, error)
	UnregisterCapability(context.Context, *api.UnregisterParams) (api.OK, error)
	Subscribe(context.Context, *api.HooksParams) (api.SubscribeResult, error)
	Unsubscribe(context.Context, *api.HooksParams) (api.UnsubscribeResult, error)
	HookResult(context.Context, *api.HookResultParams) (api.OK, error)
	Config(context.Context, *api.ConfigGetParams) (api.ConfigValue, error)
	Session(context.Context, *api.SessionGetParams) (api.SessionResult, error)
	Sessions(context.Context, *api.SessionListParams) (api.SessionListResult, error)
	Dispatch(context.Context, *api.DispatchParams) (api.DispatchResult, error)
	Queue(context.Context, *api.QueueParams) (api.QueueResult, error)
	Complete(context.Context, *api.CompleteParams) (api.OK, error)
	Emit(context.Context, *api.EmitParams) (api.EmitResult, error)
	Exchange(context.Context, *api.ExchangeParams) (api.ExchangeResult, error)
	Exchanges(context.Context, *api.ExchangeListParams) (api.ExchangeResult, error)
	ResolveExchange(context.Context, *api.ExchangeResolveParams) (api.OK, error)
	Approval(context.Context, *api.ApprovalParams) (api.Approval, error)

	// WatchConfig opens a stream: it is established when it returns, and
	// runs until the context ends.
	WatchConfig(context.Context, *api.ConfigWatchParams) (Feed, error)

	// Gone ends the connection's part in the kernel. It is called once, when
	// no further call will be made.
	Gone()
}

// Operator is what a person asks of the daemon, on the operator socket.
type Operator interface {
	Status(context.Context, *api.Empty) (api.Status, error)
	AuditQuery(context.Context, *api.AuditQueryParams) (api.AuditQueryResult, error)
	AuditStats(context.Context, *api.AuditStatsParams) (api.AuditStats, error)
	AuditTail(context.Context, *api.AuditTailParams) (Feed, error)
	AuditVerify(context.Context, *api.Empty) (api.AuditVerifyResult, error)
	DebugProfile(context.Context, *api.ProfileParams) (Feed, error)
	ExchangeGet(context.Context, *api.ExchangeParams) (api.ExchangeResult, error)
	ExchangeList(context.Context, *api.ExchangeListParams) (api.ExchangeResult, error)
	ApprovalGet(context.Context, *api.ApprovalParams) (api.Approval, error)
	ApprovalList(context.Context, *api.ApprovalListParams) (api.ApprovalListResult, error)
	ApprovalWatch(context.Context, *api.Empty) (Feed, error)

	QueueList(context.Context, *api.QueueListParams) (api.QueueListResult, error)
	ContactList(context.Context, *api.ContactListParams) (api.ContactListResult, error)
	ConfigDiff(context.Context, *api.Empty) (api.ConfigDiffResult, error)

	// What a person decides is decided by somebody: the peer.
	ExchangeResolve(context.Context, api.Peer, *api.ExchangeResolveParams) (api.OK, error)
	ApprovalResolve(context.Context, api.Peer, *api.ApprovalResolveParams) (api.ApprovalResolveResult, error)
	SendingPause(context.Context, api.Peer, *api.PauseParams) (api.PauseResult, error)
	SendingResume(context.Context, api.Peer, *api.PauseParams) (api.PauseResult, error)
	QueueDrop(context.Context, api.Peer, *api.QueueDropParams) (api.QueueDropResult, error)
	ContactForget(context.Context, api.Peer, *api.ContactForgetParams) (api.ContactForgetResult, error)
	PolicyReload(context.Context, api.Peer, *api.Empty) (api.PolicyReloadResult, error)
	AuditForget(context.Context, api.Peer, *api.AuditForgetParams) (api.AuditForgetResult, error)
	AuditRotateKey(context.Context, api.Peer, *api.Empty) (api.AuditRotateKeyResult, error)
	AuditRetire(context.Context, api.Peer, *api.AuditRetireParams) (api.AuditRetireResult, error)
}

// Feed sends the chunks of a stream until it ends or the context does.
type Feed = func(context.Context, api.Stream) error
