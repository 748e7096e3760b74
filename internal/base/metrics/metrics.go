// Package metrics counts the daemon's work and measures how long it takes, with Prometheus'
// library.
//
// The caller makes one [Set] with the words that labels may have, hands it to the packages that
// count, and shows scrapers its registry. A word that was not named at the start counts as "other":
// no label ever holds an id, a session key or a text from a message, so the number of series is
// bounded.
//
// The counters of allowed messages are looked up at the start; only refusals look their labels up.
// Counting costs about 0.2 µs a message.
//
// A nil *Set counts nothing, and all its methods but Registry may be called.
//
// Source for names and units: https://prometheus.io/docs/practices/naming/.
package metrics

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Words are the allowed values of labels.
type Words struct {
	Sides, Results, Codes []string
	ErrorCodes            []string
}

// Set holds all counters.
type Set struct {
	registry *prometheus.Registry
	words    Words

	decisions *prometheus.CounterVec
	// allowed counts the decisions that most messages get, by side. recorded is the number of
	// decisions of any kind.
	allowed  map[string]prometheus.Counter
	recorded atomic.Uint64

	deliveries, accepted, ended, refused map[string]prometheus.Counter
	requests, errors                     *prometheus.CounterVec
	held                                 prometheus.Counter

	decide, commit, hookWait, batch prometheus.Histogram
}

// Other is the label for all unknown words.
const Other = "other"

// Outcomes of a message, as [Set.Delivery] counts them.
const (
	Handed    = "handed_over"
	Delivered = "delivered"
	Failed    = "failed"
	Expired   = "expired"
)

// Reasons to refuse a line before it becomes a request, as [Set.Refused] counts them.
const (
	TooLong       = "too_long"
	Malformed     = "malformed"
	UnknownMethod = "unknown_method"
	NotAdmitted   = "not_admitted"
)

// Reasons to end a connection, as [Set.Ended] counts them.
const (
	// NotRead: too much output waited for its reader.
	NotRead = "not_read"
	// NotReadOfAll: too much output waited for all readers, and most of it for this one.
	NotReadOfAll = "not_read_of_all"
	// TakenBack: a text that may not be sent any more was half written, or in an answer.
	TakenBack = "taken_back"
	// NotFinished: the unfinished lines of all connections took too much memory, and its own most.
	NotFinished = "not_finished"
	// PushedOut: a new connection came at a limit, and this one gave way.
	PushedOut = "pushed_out"
	// TurnedAway: it came at a limit, and none gave way.
	TurnedAway = "turned_away"
)

// Sockets, as [Set.Accepted] counts connections.
const (
	SocketApps      = "kernel"
	SocketOperators = "operator"
)

// allow is the result of most decisions.
const allow = "allow"

// codeOK is the code of a request that was answered with a result.
const codeOK = "OK"

// New makes a set. It shows the counters for the given words at zero from the start: otherwise a
// scraper could not see the first event as an increase. It shows an unknown word, a combination of
// words that do not go together, and the errors of a method, only after the first event.
func New(w Words) *Set {
	s := &Set{registry: prometheus.NewRegistry(), words: w, allowed: map[string]prometheus.Counter{}}
	s.decisions = s.counters("ocipd_decisions_total", "Decisions about messages on record, by side, verdict and code.", "side", "result", "code")
	for _, side := range w.Sides {
		for _, result := range w.Results {
			if result == allow {
				s.allowed[side] = s.decisions.WithLabelValues(side, allow, "")
				continue
			}
			for _, code := range w.Codes {
				s.decisions.WithLabelValues(side, result, code)
			}
		}
	}
	s.deliveries = s.counted("ocipd_deliveries_total", "What became of messages that were let through.", "result", Handed, Delivered, Failed, Expired)
	s.held = s.counters("ocipd_holds_total", "Messages that began to wait for a person.").WithLabelValues()
	s.accepted = s.counted("ocipd_connections_total", "Connections that were served.", "socket", SocketApps, SocketOperators)
	s.ended = s.counted("ocipd_connections_ended_total", "Connections that the daemon ended at a limit, or to take a message back.", "reason", NotRead, NotReadOfAll, TakenBack, NotFinished, PushedOut, TurnedAway)
	s.refused = s.counted("ocipd_refused_lines_total", "Lines that were refused before a method was called.", "reason", TooLong, Malformed, UnknownMethod, NotAdmitted)
	s.requests = s.counters("ocipd_requests_total", "Requests that were answered, by method and code.", "method", "code")
	s.errors = s.counters("ocipd_request_errors_total", "Requests that were answered with an error, by code.", "code")
	for _, code := range w.ErrorCodes {
		s.errors.WithLabelValues(code)
	}
	s.decide = s.histogram("ocipd_decision_duration_seconds", "Time to weigh one message, policy and detectors included.", durations())
	s.commit = s.histogram("ocipd_commit_duration_seconds", "Time to make one batch of changes durable.", durations())
	s.batch = s.histogram("ocipd_commit_batch_changes", "Changes that share one commit.", prometheus.ExponentialBuckets(1, 2, 10))
	s.hookWait = s.histogram("ocipd_hook_wait_duration_seconds", "Time that one interceptor was waited for.", durations())
	return s
}

func (s *Set) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.registry.MustRegister(c)
	return c
}

// counted makes counters with one label, which has only these values.
func (s *Set) counted(name, help, label string, values ...string) map[string]prometheus.Counter {
	family, byValue := s.counters(name, help, label), make(map[string]prometheus.Counter, len(values))
	for _, v := range values {
		byValue[v] = family.WithLabelValues(v)
	}
	return byValue
}

func (s *Set) histogram(name, help string, bounds []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds})
	s.registry.MustRegister(h)
	return h
}

// durations are bounds from a microsecond to ten seconds, five to each power of
// ten.
func durations() (bounds []float64) {
	for decade := int64(time.Microsecond); decade < int64(10*time.Second); decade *= 10 {
		for _, tenths := range []int64{10, 16, 25, 40, 63} {
			bounds = append(bounds, seconds(time.Duration(decade*tenths/10)))
		}
	}
	return append(bounds, seconds(10*time.Second))
}

// seconds converts both bounds and observations, so that a duration equal to a bound falls within
// it. Bounds are labels: another conversion (such as [time.Duration.Seconds]) would give some of
// them another name.
func seconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// Registry holds all counters, and accepts further collectors.
func (s *Set) Registry() *prometheus.Registry { return s.registry }

// Gauge is a number that is looked up at each scrape.
type Gauge struct {
	Name, Help string
	Value      float64
	Labels     prometheus.Labels
}

// Look is a collector that calls the function at each scrape and collects its gauges.
type Look func() []Gauge

// Describe names nothing, so that the gauges are named in one place.
func (Look) Describe(chan<- *prometheus.Desc) {}

// Collect looks.
func (look Look) Collect(ch chan<- prometheus.Metric) {
	for _, g := range look() {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.Name, g.Help, nil, g.Labels), prometheus.GaugeValue, g.Value)
	}
}

// Decided counts how long the daemon took to decide about a message. That is not the same as a
// decision on record: the daemon weighs a message again after a person released it, and never
// weighs one that an interceptor stopped. See [Set.Decision].
func (s *Set) Decided(took time.Duration) {
	if s != nil {
		s.decide.Observe(seconds(took))
	}
}

// Decision counts a decision that was recorded.
func (s *Set) Decision(side, result, code string) {
	if s == nil {
		return
	}
	s.recorded.Add(1)
	if c := s.allowed[side]; c != nil && result == allow && code == "" {
		c.Inc()
		return
	}
	if code != "" {
		code = known(code, s.words.Codes)
	}
	s.decisions.WithLabelValues(known(side, s.words.Sides), known(result, s.words.Results), code).Inc()
}

// known returns the word if it has a label of its own.
func known(word string, words []string) string {
	if slices.Contains(words, word) {
		return word
	}
	return Other
}

// Held counts a message that begins to wait for a person.
func (s *Set) Held() {
	if s != nil {
		s.held.Inc()
	}
}

// Delivery counts the outcome of a message: one of the words above.
func (s *Set) Delivery(result string) {
	if s != nil {
		s.deliveries[result].Inc()
	}
}

// Committed counts a batch of changes that was made durable. A batch without any write took no
// fsync and does not count.
func (s *Set) Committed(changes int, took time.Duration) {
	if s != nil {
		s.commit.Observe(seconds(took))
		s.batch.Observe(float64(changes))
	}
}

// HookWaited counts how long the daemon waited for an interceptor.
func (s *Set) HookWaited(took time.Duration) {
	if s != nil {
		s.hookWait.Observe(seconds(took))
	}
}

// Accepted counts a connection that is served: SocketApps or SocketOperators.
func (s *Set) Accepted(socket string) {
	if s != nil {
		s.accepted[socket].Inc()
	}
}

// Ended counts a connection that a limit ended: one of the reasons above.
func (s *Set) Ended(reason string) {
	if s != nil {
		s.ended[reason].Inc()
	}
}

// Refused counts a line that became no request: one of the reasons above.
func (s *Set) Refused(reason string) {
	if s != nil {
		s.refused[reason].Inc()
	}
}

// Requests counts the requests of one method.
type Requests struct {
	codes            []string
	counters, errors *prometheus.CounterVec
	ok               prometheus.Counter
}

// Method returns the counters of a method, for its server to keep. The name must be one of the
// daemon's own, never one from a request. At first it has a row for results alone: a row at zero
// for each error too would be most of the page. The counter of errors has a row for each code.
func (s *Set) Method(name string) *Requests {
	if s == nil {
		return nil
	}
	return &Requests{
		codes: s.words.ErrorCodes, counters: s.requests.MustCurryWith(prometheus.Labels{"method": name}), errors: s.errors,
		ok: s.requests.WithLabelValues(name, codeOK),
	}
}

// Answered counts an answer, by the code of its error, "" for a result.
func (r *Requests) Answered(code string) {
	switch {
	case r == nil:
	case code != "":
		code = known(code, r.codes)
		r.counters.WithLabelValues(code).Inc()
		r.errors.WithLabelValues(code).Inc()
	default:
		r.ok.Inc()
	}
}

// Latencies are the median and the 99th percentile since the start.
type Latencies struct {
	DecisionP50, DecisionP99, CommitP50, CommitP99 time.Duration
	// Decisions is the number of decisions on record, of both sides.
	Decisions uint64
}

// Latencies sums up the two histograms that people ask for.
func (s *Set) Latencies() Latencies {
	if s == nil {
		return Latencies{}
	}
	l := Latencies{Decisions: s.recorded.Load()}
	l.DecisionP50, l.DecisionP99 = quantiles(s.decide)
	l.CommitP50, l.CommitP99 = quantiles(s.commit)
	return l
}

// quantiles returns the median and the 99th percentile.
func quantiles(h prometheus.Histogram) (half, most time.Duration) {
	var seen dto.Metric
	if err := h.Write(&seen); err != nil {
		return 0, 0 // a histogram without exemplars has nothing to fail on
	}
	return quantile(seen.GetHistogram(), 0.5), quantile(seen.GetHistogram(), 0.99)
}

// quantile returns a quantile q, 0 to 1, of all observations. It interpolates between the bounds of
// a bucket. Without observations it is zero; observations beyond the last bound count as that
// bound.
func quantile(h *dto.Histogram, q float64) time.Duration {
	if h.GetSampleCount() == 0 {
		return 0
	}
	rank := max(math.Ceil(q*float64(h.GetSampleCount())), 1)
	var low, below float64
	for _, b := range h.GetBucket() {
		high, seen := b.GetUpperBound(), float64(b.GetCumulativeCount())
		if seen >= rank {
			low += (high - low) * (rank - below) / (seen - below)
			return time.Duration(math.Round(low * 1e9))
		}
		low, below = high, seen
	}
	return time.Duration(math.Round(low * 1e9))
}
