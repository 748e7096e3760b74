package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// scrapeTime bounds how long one answer to a scraper may take, and scrapes how
// many are answered at a time.
const (
	scrapeTime = 10 * time.Second
	scrapes    = 2
)

// serveMetrics serves the numbers where the configuration says, and nowhere
// unless it does.
func (d *Daemon) serveMetrics(ctx context.Context) error {
	var listeners []net.Listener
	if path := d.cfg.Metrics.Socket; path != "" {
		l, err := listenForScrapers(path)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		d.onStop(closer(l))
	}
	if address := d.cfg.Metrics.Listen; address != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("cannot serve metrics on %s: %w", address, err)
		}
		listeners = append(listeners, l)
		d.onStop(closer(l))
	}
	if len(listeners) == 0 {
		return nil
	}
	handler, err := d.scraped()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	server := &http.Server{
		Handler: named(mux), ReadTimeout: scrapeTime, ReadHeaderTimeout: scrapeTime, WriteTimeout: 2 * scrapeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(d.log.Named("metrics")),
	}
	var serving sync.WaitGroup
	for _, l := range listeners {
		d.log.Info("serving metrics", zap.Stringer("at", l.Addr()))
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				d.log.Error("metrics are served no more", zap.Error(err))
			}
		})
	}
	d.onStop(func() error {
		err := server.Close()
		serving.Wait()
		return err
	})
	return nil
}

// named answers on a port only who asked for this machine by one of its own names:
// a page in a browser here can have a name of its own point to the loopback, and
// would then read the numbers as if they were its own (DNS rebinding). On a socket
// of the file system there is nobody to ask so.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && !names(r.Host, at) {
			http.Error(w, "ask for localhost, 127.0.0.1 or [::1] and the port", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// names reports whether the host of a request means the loopback address it came
// to.
func names(host string, at *net.TCPAddr) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		// The port that HTTP leaves out.
		name, port = strings.Trim(host, "[]"), "80"
	}
	if port != strconv.Itoa(at.Port) {
		return false
	}
	switch strings.ToLower(name) {
	case "localhost", "127.0.0.1", "::1":
		return true
	}
	return name == at.IP.String()
}

// listenForScrapers opens a socket for the daemon's user alone. One that a daemon
// left that is gone is replaced.
func listenForScrapers(path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("cannot serve metrics on %s: %w", path, err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return fail(errors.New("something that is no socket is there; remove it"))
		}
		if probe, err := net.DialTimeout("unix", path, time.Second); err == nil {
			return fail(errors.Join(errors.New("somebody serves there already"), probe.Close()))
		}
		if err := os.Remove(path); err != nil {
			return fail(err)
		}
	}
	// Made under another name and moved there, so that it is never open to
	// others, whatever the umask is.
	hidden, err := os.MkdirTemp(filepath.Dir(path), ".m")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(hidden) }() // it is empty by then, or harmless
	made := filepath.Join(hidden, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return fail(errors.Join(err, l.Close()))
	}
	return unlinker{l, path}, nil
}

// unlinker removes a socket's name with its listener.
type unlinker struct {
	net.Listener
	path string
}

func (u unlinker) Close() error {
	err := u.Listener.Close()
	if err == nil {
		err = os.Remove(u.path)
	}
	return err
}

func (u unlinker) Addr() net.Addr { return &net.UnixAddr{Name: u.path, Net: "unix"} }

// scraped answers scrapers with what is counted, and with what the runtime and
// the kernel say of the process.
func (d *Daemon) scraped() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ocipd_build_info", Help: "1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": d.version, "goversion": runtime.Version()},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{build, newScrape(d), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("cannot serve metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: scrapeTime, ErrorLog: zap.NewStdLog(d.log.Named("metrics")),
	}), nil
}

// scrape shows a [metrics.Set] to Prometheus' library.
type scrape struct {
	daemon *Daemon
	descs  []*prometheus.Desc // in the order of the families
}

func newScrape(d *Daemon) *scrape {
	s := &scrape{daemon: d}
	for _, f := range d.metrics.Families() {
		s.descs = append(s.descs, prometheus.NewDesc(f.Name, f.Help, f.Labels, nil))
	}
	return s
}

// Describe lists the families.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		ch <- desc
	}
}

// Collect shows what was counted by now. Gauges are left out where they cannot be
// looked up, and so is what is rare and never came.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	gauges, err := s.daemon.gauges(ctx)
	if err != nil {
		s.daemon.log.Warn("cannot look up gauges", zap.Error(err))
	}
	for i, f := range s.daemon.metrics.Families() {
		for _, series := range f.Series {
			switch {
			case series.Counter != nil:
				if n := series.Counter.Value(); n > 0 || !series.Rare {
					ch <- prometheus.MustNewConstMetric(s.descs[i], prometheus.CounterValue, float64(n), series.Values...)
				}
			case series.Histogram != nil:
				seen := series.Histogram.Snapshot()
				ch <- prometheus.MustNewConstHistogram(s.descs[i], seen.Count, seen.Sum, seen.Buckets, series.Values...)
			case gauges != nil:
				ch <- prometheus.MustNewConstMetric(s.descs[i], prometheus.GaugeValue, series.Gauge(gauges), series.Values...)
			}
		}
	}
}

// gauges looks up the numbers that are not counted.
func (d *Daemon) gauges(ctx context.Context) (*metrics.Gauges, error) {
	s, err := facade{d}.Status(ctx, nil)
	if err != nil {
		return nil, err
	}
	g := &metrics.Gauges{
		Apps: float64(len(s.Apps)), Agents: float64(len(s.Agents)), Connections: float64(d.server.Connections()), ReaderQueues: float64(d.server.Queued()), Held: float64(s.Held),
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
