// Package metricshttp serves the daemon's counters, and the numbers in its status, to Prometheus'
// scrapers: on a Unix socket for the daemon's user alone, or on a port of the loopback.
package metricshttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

// scrapeTime bounds one answer, headerTime the reading of a request, and scrapes the
// answers in progress, on the socket and on the port each.
const (
	scrapeTime     = 10 * time.Second
	headerTime     = 2 * time.Second
	maxHeaderBytes = 16 << 10
	scrapes        = 2
)

// Options give the places of the metrics, and the sources of those that are not counted.
type Options struct {
	// Socket is a path, and Listen an address of the loopback; empty for none.
	Socket, Listen string
	// Metrics are the counters, Status the source of the status, and Traffic the numbers of
	// open connections and of bytes that wait for readers.
	Metrics *metrics.Set
	Status  func(context.Context) (api.Status, error)
	Traffic func() (connections int, waiting int64)
	// Shared reports whether there are agents of several tenants. If so, the port, which
	// every user of the machine can read, serves only the metrics of [public].
	Shared  func() bool
	Version string
	Now     func() time.Time
	Log     *zap.Logger
}

// Server answers scrapers until it is closed. A nil Server answers nobody.
type Server struct {
	o         Options
	http      *http.Server
	listeners []net.Listener
	bound     bound
	serving   sync.WaitGroup
}

// Serve serves the metrics in the places of the options. It returns nil if they name none.
func Serve(ctx context.Context, o Options) (s *Server, err error) {
	if o.Socket == "" && o.Listen == "" {
		return nil, nil
	}
	s = &Server{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := s.listen(ctx); err != nil {
		return s, err
	}
	onSocket, onPort, err := s.handlers()
	if err != nil {
		return s, err
	}
	s.http = &http.Server{
		Handler: byListener(onSocket, named(onPort)), ReadTimeout: headerTime, ReadHeaderTimeout: headerTime, WriteTimeout: 2 * scrapeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: zap.NewStdLog(o.Log), ConnState: s.bound.watch,
	}
	for _, l := range s.listeners {
		o.Log.Info("serving metrics", zap.Stringer("at", l.Addr()))
		s.serving.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				o.Log.Error("metrics are served no more", zap.Error(err))
			}
		})
	}
	return s, nil
}

func (s *Server) listen(ctx context.Context) error {
	if path := s.o.Socket; path != "" {
		l, err := listenUnix(path)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	if address := s.o.Listen; address != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("cannot serve metrics on %s: %w", address, err)
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// Close ends the answers in progress and the listeners.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	var failures []error
	if s.http != nil {
		failures = append(failures, s.http.Close())
		s.serving.Wait()
	}
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// byListener passes a request to the handler for its listener: the Unix socket or the port.
func byListener(onSocket, onPort http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if portOf(r) != nil {
			onPort.ServeHTTP(w, r)
			return
		}
		onSocket.ServeHTTP(w, r)
	})
}

// portOf is the port of a request, or nil for the Unix socket.
func portOf(r *http.Request) *net.TCPAddr {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return at
}

// named answers requests on a port only if they name this machine. Otherwise a page in a
// browser here could point its own name to the loopback and read the metrics (DNS
// rebinding). On a Unix socket this is impossible.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !names(r.Host, portOf(r)) {
			http.Error(w, "ask for localhost, 127.0.0.1 or [::1] and the port", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// names reports whether the host of a request means its loopback address.
func names(host string, at *net.TCPAddr) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		// The default port of HTTP.
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

// listenUnix opens a socket for the daemon's user alone. It replaces the socket of a daemon
// that is gone.
func listenUnix(path string) (net.Listener, error) {
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
	// Created under another name and moved, so that it is never open to others, whatever the umask.
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

// handlers returns the handlers for the socket and the port, with the daemon's metrics and
// the process's.
func (s *Server) handlers() (onSocket, onPort http.Handler, err error) {
	registry := s.o.Metrics.Registry()
	for _, c := range []prometheus.Collector{metrics.Look(s.gauges), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, nil, fmt.Errorf("cannot serve metrics: %w", err)
		}
	}
	serve := func(g prometheus.Gatherer) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: scrapeTime, ErrorLog: zap.NewStdLog(s.o.Log),
		}))
		return mux
	}
	return serve(registry), serve(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		shared := s.o.Shared() // before the numbers, so that none is of a tenant that came meanwhile
		all, err := registry.Gather()
		if shared || s.o.Shared() {
			all = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !slices.Contains(public(), f.GetName()) })
		}
		return all, err
	})), nil
}

// public are the names of metrics that reveal nothing about a tenant's activity: neither
// records, messages, requests and connections, nor the resources used for them.
func public() []string {
	return []string{
		"ocipd_build_info", "ocipd_start_time_seconds", "ocipd_log_damaged", "ocipd_store_latched", "ocipd_store_free_bytes", "ocipd_store_reserve_kept", "ocipd_policy_refused",
	}
}

// gauges returns the metrics that are not counted. On failure, it omits them.
func (s *Server) gauges() []metrics.Gauge {
	list := []metrics.Gauge{{Name: "ocipd_build_info", Help: "1; the labels say what was built.", Value: 1,
		Labels: prometheus.Labels{"version": s.o.Version, "goversion": runtime.Version()}}}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	now, err := s.o.Status(ctx)
	if err != nil {
		s.o.Log.Warn("cannot look up gauges", zap.Error(err))
		return list
	}
	connections, waiting := s.o.Traffic()
	var unhealthy, queued, oldest float64
	for i := range now.Apps {
		unhealthy += one(now.Apps[i].Health != "healthy")
	}
	for _, q := range now.Queues {
		queued += float64(q.Waiting)
	}
	if !now.OldestHeld.IsZero() {
		oldest = s.o.Now().Sub(now.OldestHeld).Seconds()
	}
	list = append(list, []metrics.Gauge{
		{Name: "ocipd_apps", Help: "Registered apps.", Value: float64(len(now.Apps))},
		{Name: "ocipd_apps_unhealthy", Help: "Registered apps that were not heard of for too long.", Value: unhealthy},
		{Name: "ocipd_agents", Help: "Configured agents.", Value: float64(len(now.Agents))},
		{Name: "ocipd_connections", Help: "Connections that are open, on both sockets.", Value: float64(connections)},
		{Name: "ocipd_reader_queue_bytes", Help: "Bytes that wait for connections to read them.", Value: float64(waiting)},
		{Name: "ocipd_held_messages", Help: "Messages that wait for a person.", Value: float64(now.Held)},
		{Name: "ocipd_held_oldest_age_seconds", Help: "For how long the oldest held message waits, 0 where none does.", Value: oldest},
		{Name: "ocipd_queued_messages", Help: "Messages that wait for their receiver.", Value: queued},
		{Name: "ocipd_queues", Help: "Receivers for whom messages wait.", Value: float64(len(now.Queues))},
		{Name: "ocipd_log_records", Help: "The last record of the audit log.", Value: float64(now.Audit.Seq)},
		{Name: "ocipd_log_signed_records", Help: "Records that the newest checkpoint covers.", Value: float64(now.Audit.Signed)},
		{Name: "ocipd_log_mirrored_records", Help: "The last record in the mirror.", Value: float64(now.Audit.Mirrored)},
		{Name: "ocipd_log_indexed_records", Help: "The last record in the index.", Value: float64(now.Audit.Indexed)},
		{Name: "ocipd_log_damaged", Help: "1 once the check of the whole log has found what is not what was written.", Value: one(now.Audit.Damaged != "")},
		{Name: "ocipd_store_latched", Help: "1 while the store is closed for writing until a restart.", Value: one(now.Audit.Fault != "")},
		{Name: "ocipd_store_free_bytes", Help: "Free space on the disk of the database.", Value: float64(now.Store.FreeBytes)},
		{Name: "ocipd_store_reserve_kept", Help: "1 while the space for the last records is kept.", Value: one(now.Store.Reserve)},
		{Name: "ocipd_policy_refused", Help: "1 while a policy that should be in force was refused.", Value: one(now.Policy.Refusal != "")},
		{Name: "ocipd_start_time_seconds", Help: "When the daemon started, in seconds since 1970.", Value: float64(now.StartedAt.UnixMilli()) / 1000},
	}...)
	for i := range now.Sinks {
		list = append(list, metrics.Gauge{Name: "ocipd_sink_lag_records", Help: "Records that a sink has not taken over yet.", Value: float64(now.Sinks[i].Lag),
			Labels: prometheus.Labels{"sink": now.Sinks[i].Name}})
	}
	for i := range now.Witnesses {
		labels := prometheus.Labels{"witness": now.Witnesses[i].Name}
		list = append(list,
			metrics.Gauge{Name: "ocipd_witness_signed_records", Help: "Records that the checkpoint covers that a witness signed last, 0 where it has signed none since the start.", Value: float64(now.Witnesses[i].Signed), Labels: labels},
			metrics.Gauge{Name: "ocipd_witness_failing", Help: "1 while a witness does not sign.", Value: one(now.Witnesses[i].Error != ""), Labels: labels},
			metrics.Gauge{Name: "ocipd_witness_refused", Help: "1 from when a witness refused the log until a person resumes sending.", Value: one(now.Witnesses[i].Refused), Labels: labels})
	}
	return list
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
