package daemon

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/ocip"
)

// newMetrics makes what counts, with all the words that labels may say: those of
// the protocol, and the names of sinks, which are the operator's.
func newMetrics(cfg *config.Config) *metrics.Set {
	w := metrics.Words{
		Sides: []string{audit.SideSender, audit.SideReceiver}, Methods: ipc.MethodNames(),
		Results: []string{string(ocip.Allow), string(ocip.Deny), string(ocip.RequireApproval)},
	}
	for _, code := range ocip.Codes() {
		w.Codes = append(w.Codes, string(code))
	}
	for _, code := range api.Codes() {
		w.ErrorCodes = append(w.ErrorCodes, string(code))
	}
	for i := range cfg.Audit.Sinks {
		w.Sinks = append(w.Sinks, cfg.Audit.Sinks[i].Name)
	}
	return metrics.New(w)
}

// gauges looks up the numbers that are not counted.
func (d *Daemon) gauges(ctx context.Context) (*metrics.Gauges, error) {
	s, err := facade{d}.Status(ctx, nil)
	if err != nil {
		return nil, err
	}
	g := &metrics.Gauges{
		Apps: float64(len(s.Apps)), Agents: float64(len(s.Agents)), Connections: float64(d.server.Connections()), Held: float64(s.Held),
		Queues: float64(len(s.Queues)), LogSeq: float64(s.Audit.Seq), LogSigned: float64(s.Audit.Signed), LogMirrored: float64(s.Audit.Mirrored),
		LogIndexed: float64(s.Audit.Indexed), DiskFree: float64(s.Store.FreeBytes), DiskReserve: one(s.Store.Reserve), Latched: one(s.Audit.Fault != ""),
		PolicyRefused: one(s.Policy.Refusal != ""), StartTime: float64(s.StartedAt.UnixMilli()) / 1000, Sinks: map[string]float64{}, Version: s.Version,
	}
	for i := range s.Apps {
		g.AppsUnhealthy += one(s.Apps[i].Health != "healthy")
	}
	for _, q := range s.Queues {
		g.Queued += float64(q.Waiting)
	}
	for i := range s.Sinks {
		g.Sinks[s.Sinks[i].Name] = float64(s.Sinks[i].Lag)
	}
	if !s.OldestHeld.IsZero() {
		g.OldestHeldSeconds = time.Since(s.OldestHeld).Seconds()
	}
	return g, nil
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// latency is what people are told of how long things take.
func (d *Daemon) latency() api.LatencyStatus {
	l := d.metrics.Latencies()
	micro := func(t time.Duration) int64 { return t.Microseconds() }
	return api.LatencyStatus{
		Decisions: l.Decisions, DecisionP50: micro(l.DecisionP50), DecisionP99: micro(l.DecisionP99),
		CommitP50: micro(l.CommitP50), CommitP99: micro(l.CommitP99),
	}
}
