package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ipc"
)

// facade introduces the kernel to the sockets: neither room knows the other.
type facade struct{ *Daemon }

var _ ipc.Kernel = facade{}

// Connect begins an app's connection.
func (f facade) Connect(p api.Peer, l api.Link) (ipc.Client, error) {
	return f.kernel.Connect(p, l), nil
}

// Admit decides who may use the operator socket. The socket's mode and the
// check of users have kept others out already; this keeps apps out.
func (f facade) Admit(p api.Peer) error { return f.kernel.MayOperate(p) }

// Status is the kernel's status with what only the daemon knows.
func (f facade) Status(ctx context.Context, _ *api.Empty) (api.Status, error) {
	s, err := f.kernel.Status(ctx)
	if err != nil {
		return s, err
	}
	s.Version, s.PID, s.StartedAt = f.version, os.Getpid(), f.started.UTC()
	s.Socket, s.OperatorSocket, s.ConfigFile, s.Database, s.Mirror = f.socket, f.operator, *f.reloader.file.Load(), f.database, f.mirror
	s.UnusedSocket = f.unused
	// Who asks is somewhere else.
	for _, path := range []*string{&s.Socket, &s.OperatorSocket, &s.ConfigFile, &s.Database, &s.Mirror} {
		if whole, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = whole
		}
	}
	s.Connections = max(f.server.Connections()-1, 0)
	s.Latency = f.latency()
	mirror := f.mirrored.Load().Status()
	s.Audit.Mirrored, s.Audit.Mirror = mirror.Mirrored, api.MirrorStatus{
		Segments: mirror.Segments, Pending: mirror.Pending, SegmentBytes: mirror.PackedBytes, Problems: mirror.Problems,
	}
	s.Audit.Indexed = f.index.Indexed()
	if tail := f.store.FoundUnsigned(); tail.Long {
		s.Audit.Unsigned = &api.UnsignedRecords{First: tail.First, Last: tail.Last, Since: tail.From, Until: tail.To}
	}
	s.Sinks = f.sinkStatus()
	s.Policy, s.Config = *f.reloader.status.Load(), *f.reloader.config.Load()
	s.PendingRestart = f.reloader.waiting()
	s.Store = f.storeStatus()
	return s, nil
}

// PolicyReload puts the policy in force as the files have it now. It does not
// end with its caller.
func (f facade) PolicyReload(_ context.Context, who api.Peer, _ *api.Empty) (api.PolicyReloadResult, error) {
	return f.reloader.reload(asker{by: byOperator, peer: who})
}

// ConfigDiff says what a reload would change, and changes nothing.
func (f facade) ConfigDiff(context.Context, *api.Empty) (api.ConfigDiffResult, error) {
	return f.reloader.diff()
}

// AuditForget destroys a tenant's digest key. It does not end with its caller.
func (f facade) AuditForget(_ context.Context, who api.Peer, p *api.AuditForgetParams) (api.AuditForgetResult, error) {
	return f.forget(*p.Tenant, who)
}

// AuditRotateKey hands the log over to a new key. It does not end with its
// caller.
func (f facade) AuditRotateKey(_ context.Context, who api.Peer, _ *api.Empty) (api.AuditRotateKeyResult, error) {
	if _, err := f.keyRecord(eventRotating, "", byPeer(who)); err != nil {
		return api.AuditRotateKeyResult{}, err
	}
	previous := f.signer.Verifier()
	seq, public, err := f.rotateKey()
	return api.AuditRotateKeyResult{Verifier: public, Previous: previous, AuditSeq: seq}, err
}

// AuditRetire removes old records for good. It does not end with its caller.
func (f facade) AuditRetire(_ context.Context, who api.Peer, p *api.AuditRetireParams) (api.AuditRetireResult, error) {
	r, err := f.retire(context.Background(), p.Before)
	if err != nil {
		return r, api.Errorf(api.InternalError, "%v", err)
	}
	return r, nil
}

// AuditVerify checks the whole log.
func (f facade) AuditVerify(ctx context.Context, _ *api.Empty) (api.AuditVerifyResult, error) {
	r, err := f.verify(ctx)
	if err != nil && ctx.Err() == nil {
		return r, api.Errorf(api.InternalError, "%v", err)
	}
	return r, err
}

// AuditQuery returns records.
func (f facade) AuditQuery(ctx context.Context, p *api.AuditQueryParams) (api.AuditQueryResult, error) {
	return f.kernel.AuditQuery(ctx, p)
}

// AuditStats returns the numbers of records.
func (f facade) AuditStats(ctx context.Context, p *api.AuditStatsParams) (api.AuditStats, error) {
	return f.index.Stats(ctx, p.Since, p.Until, time.Duration(p.Bucket)*time.Second)
}

// ExchangeGet returns an exchange.
func (f facade) ExchangeGet(ctx context.Context, p *api.ExchangeParams) (api.ExchangeResult, error) {
	return f.kernel.ExchangeGet(ctx, p)
}

// ExchangeList returns exchanges.
func (f facade) ExchangeList(ctx context.Context, p *api.ExchangeListParams) (api.ExchangeResult, error) {
	return f.kernel.ExchangeList(ctx, p)
}

// ExchangeResolve ends an exchange.
func (f facade) ExchangeResolve(ctx context.Context, who api.Peer, p *api.ExchangeResolveParams) (api.OK, error) {
	return f.kernel.ExchangeResolve(ctx, who, p)
}

// ApprovalGet returns a held message.
func (f facade) ApprovalGet(ctx context.Context, p *api.ApprovalParams) (api.Approval, error) {
	return f.kernel.ApprovalGet(ctx, p)
}

// ApprovalList returns held messages.
func (f facade) ApprovalList(ctx context.Context, p *api.ApprovalListParams) (api.ApprovalListResult, error) {
	return f.kernel.ApprovalList(ctx, p)
}

// ApprovalResolve decides about a held message.
func (f facade) ApprovalResolve(ctx context.Context, who api.Peer, p *api.ApprovalResolveParams) (api.ApprovalResolveResult, error) {
	return f.kernel.ApprovalResolve(ctx, who, p)
}

// ApprovalWatch follows the held messages.
func (f facade) ApprovalWatch(ctx context.Context, p *api.Empty) (ipc.Feed, error) {
	return f.kernel.ApprovalWatch(ctx, p)
}

// AuditTail follows the log.
func (f facade) AuditTail(ctx context.Context, p *api.AuditTailParams) (ipc.Feed, error) {
	return f.kernel.AuditTail(ctx, p)
}

// SendingPause stops sending.
func (f facade) SendingPause(ctx context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	return f.kernel.Pause(ctx, who, p)
}

// SendingResume lets sending go on.
func (f facade) SendingResume(ctx context.Context, who api.Peer, p *api.PauseParams) (api.PauseResult, error) {
	return f.kernel.Resume(ctx, who, p)
}

// QueueList returns what waits for its receivers.
func (f facade) QueueList(ctx context.Context, p *api.QueueListParams) (api.QueueListResult, error) {
	return f.kernel.QueueList(ctx, p)
}

// QueueDrop takes out what waits for its receivers.
func (f facade) QueueDrop(ctx context.Context, who api.Peer, p *api.QueueDropParams) (api.QueueDropResult, error) {
	return f.kernel.QueueDrop(ctx, who, p)
}

// ContactList lists with whom the agents had sessions.
func (f facade) ContactList(ctx context.Context, p *api.ContactListParams) (api.ContactListResult, error) {
	return f.kernel.ContactList(ctx, p)
}

// ContactForget undoes what was learned of a session.
func (f facade) ContactForget(ctx context.Context, who api.Peer, p *api.ContactForgetParams) (api.ContactForgetResult, error) {
	return f.kernel.ContactForget(ctx, who, p)
}
