package daemon

import (
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

// latency is what people are told of how long things take.
func (d *Daemon) latency() api.LatencyStatus {
	l := d.metrics.Latencies()
	micro := func(t time.Duration) int64 { return t.Microseconds() }
	return api.LatencyStatus{
		Decisions: l.Decisions, DecisionP50: micro(l.DecisionP50), DecisionP99: micro(l.DecisionP99),
		CommitP50: micro(l.CommitP50), CommitP99: micro(l.CommitP99),
	}
}
