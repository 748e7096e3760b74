package daemon

import (
	"context"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/openclawos/ocipd/internal/daemon/metricshttp"
	"github.com/openclawos/ocipd/internal/ocip"
)

// newMetrics makes the counters, with all words of the protocol that labels may have.
func newMetrics() *metrics.Set {
	w := metrics.Words{
		Sides:   []string{audit.SideSender, audit.SideReceiver},
		Results: []string{string(ocip.Allow), string(ocip.Deny), string(ocip.RequireApproval)},
	}
	for _, code := range ocip.Codes() {
		w.Codes = append(w.Codes, string(code))
	}
	for _, code := range api.Codes() {
		w.ErrorCodes = append(w.ErrorCodes, string(code))
	}
	return metrics.New(w)
}

// latency is the summary of times for people.
func latency(m *metrics.Set) api.LatencyStatus {
	l := m.Latencies()
	micro := func(t time.Duration) int64 { return t.Microseconds() }
	return api.LatencyStatus{
		Decisions: l.Decisions, DecisionP50: micro(l.DecisionP50), DecisionP99: micro(l.DecisionP99),
		CommitP50: micro(l.CommitP50), CommitP99: micro(l.CommitP99),
	}
}

// serveMetrics serves the metrics if they are configured.
func (d *Daemon) serveMetrics(ctx context.Context) error {
	server, err := metricshttp.Serve(ctx, metricshttp.Options{
		Socket: d.cfg.Metrics.Socket, Listen: d.cfg.Metrics.Listen, Metrics: d.metrics,
		Status:  func(ctx context.Context) (api.Status, error) { return d.status(ctx, nil) },
		Traffic: func() (int, int64) { return d.serving.Connections(), d.serving.Queued() },
		Shared:  func() bool { return len(tenants(d.config())) > 1 },
		Version: d.options.Version, Now: time.Now, Log: d.log.Named("metrics"),
	})
	if err != nil {
		return err
	}
	d.ends.add("metrics", server.Close)
	return nil
}
