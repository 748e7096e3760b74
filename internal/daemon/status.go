package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
)

// status is the kernel's status with the daemon's additions.
func (d *Daemon) status(ctx context.Context, _ *api.Empty) (api.Status, error) {
	s, err := d.kernel.Status(ctx)
	if err != nil {
		return s, err
	}
	s.Version, s.PID, s.StartedAt = d.version, os.Getpid(), d.started.UTC()
	s.Socket, s.OperatorSocket, s.ConfigFile, s.Database, s.Mirror = d.socket, d.operator, d.reloader.File(), d.database, d.mirror
	s.UnusedSocket = d.unused
	// The caller is in another folder.
	for _, path := range []*string{&s.Socket, &s.OperatorSocket, &s.ConfigFile, &s.Database, &s.Mirror} {
		if whole, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = whole
		}
	}
	s.Connections = max(d.server.Connections()-1, 0)
	s.Latency = d.latency()
	mirror := d.mirrored.Load().Status()
	s.Audit.Mirrored, s.Audit.Mirror = mirror.Mirrored, api.MirrorStatus{
		Segments: mirror.Segments, Pending: mirror.Pending, SegmentBytes: mirror.PackedBytes, Problems: mirror.Problems,
	}
	s.Audit.Indexed = d.index.Indexed()
	if tail := d.store.FoundUnsigned(); tail.Long {
		s.Audit.Unsigned = &api.UnsignedRecords{First: tail.First, Last: tail.Last, Since: tail.From, Until: tail.To}
	}
	if damaged := d.damaged.Load(); damaged != nil {
		s.Audit.Damaged = *damaged
	}
	s.Sinks, s.Witnesses = d.sinkStatus(), d.seenBy.status()
	s.Policy, s.Config = d.reloader.PolicyStatus(), d.reloader.ConfigStatus()
	s.PendingRestart = d.reloader.Waiting()
	s.Store = d.storeStatus()
	for _, u := range d.gateways.Ungated() {
		s.Ungated = append(s.Ungated, api.UngatedProcess{App: u.App, Title: u.Title, PID: u.PID, Since: u.Since.UTC(), Why: u.Why})
	}
	return s, nil
}

// auditRotateKey hands the log over to a new key. It continues if the caller goes away.
func (d *Daemon) auditRotateKey(_ context.Context, who api.Peer, _ *api.Empty) (api.AuditRotateKeyResult, error) {
	_, err := d.store.Commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: "key_rotation", Details: caller.Details(who),
	}}})
	if err != nil {
		d.log.Error("cannot record that the log gets a new key: the old one stays", zap.Error(err))
		return api.AuditRotateKeyResult{}, storeerror.NotRecorded("cannot record it, so nothing was done", err)
	}
	previous := d.signer.Verifier()
	seq, public, err := d.rotateKey()
	return api.AuditRotateKeyResult{Verifier: public, Previous: previous, AuditSeq: seq}, err
}

// auditVerify checks the whole log.
func (d *Daemon) auditVerify(ctx context.Context, _ *api.Empty) (api.AuditVerifyResult, error) {
	r, err := d.verify(ctx)
	if err != nil && ctx.Err() == nil {
		return r, api.Errorf(api.InternalError, "%v", err)
	}
	return r, err
}

// auditStats counts records.
func (d *Daemon) auditStats(ctx context.Context, p *api.AuditStatsParams) (api.AuditStats, error) {
	// Larger buckets than this make no difference.
	const longest = 1 << 31
	stats, err := d.index.Stats(ctx, p.Since, p.Until, time.Duration(min(max(0, p.Bucket), longest))*time.Second)
	if !p.Pairs {
		stats.Pairs, stats.PairCount = nil, 0
	}
	return stats, err
}
