package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// status is the kernel's status with the daemon's additions.
func (d *Daemon) status(ctx context.Context, _ *api.Empty) (api.Status, error) {
	s, err := d.kernel.Status(ctx)
	if err != nil {
		return s, err
	}
	s.Version, s.PID, s.StartedAt = d.options.Version, os.Getpid(), d.started.UTC()
	s.Socket, s.OperatorSocket, s.ConfigFile, s.Database, s.Mirror = d.sockets.app, d.sockets.operator, d.reloader.File(), d.places.database, d.places.mirror
	s.UnusedSocket = d.sockets.unused
	// The caller is in another folder.
	for _, path := range []*string{&s.Socket, &s.OperatorSocket, &s.ConfigFile, &s.Database, &s.Mirror} {
		if whole, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = whole
		}
	}
	s.Connections = max(d.serving.Connections()-1, 0)
	s.Latency = latency(d.metrics)
	mirror := d.followers.mirror.Load().Status()
	s.Audit.Mirrored, s.Audit.Mirror = mirror.Mirrored, api.MirrorStatus{
		Segments: mirror.Segments, Pending: mirror.Pending, SegmentBytes: mirror.PackedBytes, Problems: mirror.Problems,
	}
	s.Audit.Indexed = d.followers.index.Indexed()
	if tail := d.store.FoundUnsigned(); tail.Long {
		s.Audit.Unsigned = &api.UnsignedRecords{First: tail.First, Last: tail.Last, Since: tail.From, Until: tail.To}
	}
	if damaged := d.evidence.damaged.Load(); damaged != nil {
		s.Audit.Damaged = *damaged
	}
	s.Sinks, s.Witnesses = sinkStatus(d.followers.sinks), d.witnesses.seenBy.status()
	s.Policy, s.Config = d.reloader.PolicyStatus(), d.reloader.ConfigStatus()
	s.PendingRestart = d.reloader.Waiting()
	s.Store = storeStatus(d.store)
	for _, u := range d.gateways.Ungated() {
		s.Ungated = append(s.Ungated, api.UngatedProcess{App: u.App, Title: u.Title, PID: u.PID, Since: u.Since.UTC(), Why: u.Why})
	}
	return s, nil
}

// stats answers audit.stats.
func (f *followers) stats(ctx context.Context, p *api.AuditStatsParams) (api.AuditStats, error) {
	// Larger buckets than this make no difference.
	const longest = 1 << 31
	stats, err := f.index.Stats(ctx, p.Since, p.Until, time.Duration(min(max(0, p.Bucket), longest))*time.Second)
	if !p.Pairs {
		stats.Pairs, stats.PairCount = nil, 0
	}
	return stats, err
}
