// Package metrics counts what the daemon does and how long that takes, with
// Prometheus' library.
//
// The caller makes one [Set] with the words that labels may have, hands it to
// the packages that count, and shows scrapers its registry. A word that was not
// named at the start counts as "other": no label ever holds an id, a session
// key or a text from a message, so the number of series is bounded.
//
// What a message counts is a counter that was looked up at the start; only what
// is refused looks its labels up. A message costs about 0.2 µs of counting.
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

// Words are what labels may say.
type Words struct {
	Sides, Results, Codes []string
	ErrorCodes            []string
}

// Set is all that is counted.
type Set struct {
	registry *prometheus.Registry
	words    Words

	decisions *prometheus.CounterVec
	// allowed are the decisions that most messages get, by side, and recorded is
	// how many decisions there were of any kind.
	allowed  map[string]prometheus.Counter
	recorded atomic.Uint64

	deliveries, accepted, ended, refused map[string]prometheus.Counter
	requests                             *prometheus.CounterVec
	held                                 prometheus.Counter

	decide, commit, hookWait, batch prometheus.Histogram
}

// Other is the label of what has no word of its own.
const Other = "other"

// What became of a message, as [Set.Delivery] counts it.
const (
	Handed    = "handed_over"
	Delivered = "delivered"
	Failed    = "failed"
	Expired   = "expired"
)

// Why a line was refused before it became a request, as [Set.Refused] counts it.
const (
	TooLong       = "too_long"
	Malformed     = "malformed"
	UnknownMethod = "unknown_method"
	NotAdmitted   = "not_admitted"
)

// Why the daemon ended a connection, as [Set.Ended] counts it.
const (
	// NotRead: more waited for its reader than may.
	NotRead = "not_read"
	// NotReadOfAll: more waited for all readers than may, and most for it.
	NotReadOfAll = "not_read_of_all"
	// NotFinished: all lines that are begun take more than they may, and its own
	// most.
	NotFinished = "not_finished"
	// PushedOut: another one came at a limit, and it gave way.
	PushedOut = "pushed_out"
	// TurnedAway: it came at a limit, and none gave way.
	TurnedAway = "turned_away"
)

// Sockets, as [Set.Accepted] counts connections.
const (
	SocketApps      = "kernel"
	SocketOperators = "operator"
)

// allow is the result that most decisions have.
const allow = "allow"

// codeOK is the code of a request that was answered with a result.
const codeOK = "OK"

// New makes a set. What can be counted with the given words is shown from the
// start on, at zero, or else the first of a kind is no increase that a scraper
// could see. A word that nobody named, and words that do not come together, are
// shown once they were counted.
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
	s.ended = s.counted("ocipd_connections_ended_total", "Connections that the daemon ended at a limit.", "reason", NotRead, NotReadOfAll, NotFinished, PushedOut, TurnedAway)
	s.refused = s.counted("ocipd_refused_lines_total", "Lines that were refused before a method was called.", "reason", TooLong, Malformed, UnknownMethod, NotAdmitted)
	s.requests = s.counters("ocipd_requests_total", "Requests that were answered, by method and code.", "method", "code")
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

// counted makes counters with one label, which has these values alone.
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

// seconds is for bounds and observations alike, so that one which took exactly
// as long as a bound says is within it. Bounds are labels: computed another way
// (as by [time.Duration.Seconds]) some would have another name.
func seconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// Registry holds everything that is counted, and takes what else is to be shown.
func (s *Set) Registry() *prometheus.Registry { return s.registry }

// Gauge is a number that is looked up when somebody asks.
type Gauge struct {
	Name, Help string
	Value      float64
	Labels     prometheus.Labels
}

// Look is a collector of what it returns, which it is asked for once a scrape.
type Look func() []Gauge

// Describe names nothing, so that the gauges are named in one place.
func (Look) Describe(chan<- *prometheus.Desc) {}

// Collect looks.
func (look Look) Collect(ch chan<- prometheus.Metric) {
	for _, g := range look() {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.Name, g.Help, nil, g.Labels), prometheus.GaugeValue, g.Value)
	}
}

// Decided counts how long a message was weighed, which is not always a decision:
// one that a person let go is weighed again, and one that an interceptor stopped
// never is. See [Set.Decision].
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

// known is the word where it has a label of its own.
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

// Delivery counts what became of a message: one of the words above.
func (s *Set) Delivery(result string) {
	if s != nil {
		s.deliveries[result].Inc()
	}
}

// Committed counts a batch of changes that was made durable. One that had nothing
// to write took no fsync and is none.
func (s *Set) Committed(changes int, took time.Duration) {
	if s != nil {
		s.commit.Observe(seconds(took))
		s.batch.Observe(float64(changes))
	}
}

// HookWaited counts how long an interceptor was waited for.
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
	codes    []string
	counters *prometheus.CounterVec
	ok       prometheus.Counter
}

// Method returns the counters of a method, to be kept by whoever serves it. The name
// is one of the daemon's own, never what somebody called.
func (s *Set) Method(name string) *Requests {
	if s == nil {
		return nil
	}
	for _, code := range s.words.ErrorCodes {
		s.requests.WithLabelValues(name, code)
	}
	return &Requests{codes: s.words.ErrorCodes, counters: s.requests.MustCurryWith(prometheus.Labels{"method": name}), ok: s.requests.WithLabelValues(name, codeOK)}
}

// Answered counts an answer, by the code of its error, "" for a result.
func (r *Requests) Answered(code string) {
	switch {
	case r == nil:
	case code != "":
		r.counters.WithLabelValues(known(code, r.codes)).Inc()
	default:
		r.ok.Inc()
	}
}

// Latencies are what half and what 99 of 100 took at most, since the start.
type Latencies struct {
	DecisionP50, DecisionP99, CommitP50, CommitP99 time.Duration
	// Decisions is how many are on record, of both sides.
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

// quantiles returns what half and what 99 of 100 observations took at most.
func quantiles(h prometheus.Histogram) (half, most time.Duration) {
	var seen dto.Metric
	if err := h.Write(&seen); err != nil {
		return 0, 0 // a histogram without exemplars has nothing to fail on
	}
	return quantile(seen.GetHistogram(), 0.5), quantile(seen.GetHistogram(), 0.99)
}

// quantile returns what the given part of all observations, 0 to 1, took at
// most, between the bounds of a bucket by its part of it; zero where nothing was
// observed. What is beyond the last bound counts as that.
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
