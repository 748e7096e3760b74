package metrics

import (
	"slices"
	"time"
)

// Kind is what a metric is.
type Kind string

// The kinds.
const (
	KindCounter   Kind = "counter"
	KindGauge     Kind = "gauge"
	KindHistogram Kind = "histogram"
)

// Words are what labels may say.
type Words struct {
	Sides, Results, Codes []string
	Methods, ErrorCodes   []string
	// Sinks are the names of sinks, which the operator gave.
	Sinks []string
}

// Gauges are the numbers that are looked up when somebody asks.
type Gauges struct {
	Apps, AppsUnhealthy, Agents, Connections, Held, Queued       float64
	ReaderQueues                                                 float64
	LogSeq, LogSigned, LogMirrored, LogIndexed                   float64
	DiskFree, DiskReserve                                        float64
	Latched, PolicyRefused, StartTime, OldestHeldSeconds, Queues float64
	// Sinks is how many records each sink is behind, by name.
	Sinks map[string]float64
	// Version is the daemon's.
	Version string
}

// Family is one metric under one name.
type Family struct {
	Name, Help string
	Kind       Kind
	// Labels name what tells its series apart.
	Labels []string
	Series []Series
}

// Series is one of a family. One of Counter, Histogram and Gauge is set.
type Series struct {
	// Values are those of the labels, in their order.
	Values    []string
	Counter   *Counter
	Histogram *Histogram
	Gauge     func(*Gauges) float64
	// Rare marks a counter that may be left out while it is zero: one of a word
	// that nobody named, or of words that do not come together. All others are to
	// be shown from the start on, or else the first of a kind is no increase that a
	// scraper could see.
	Rare bool
}

// decision tells decisions apart.
type decision struct{ side, result, code string }

// Set is all that is counted.
type Set struct {
	decisions map[decision]*Counter
	// allowed are the decisions that most messages get, by the words' sides.
	allowed    []*Counter
	deliveries map[string]*Counter
	requests   map[string]*Requests
	refused    map[string]*Counter
	accepted   map[string]*Counter
	ended      map[string]*Counter
	held       Counter
	words      Words

	decide, commit, hookWait, batch *Histogram

	families []Family
}

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

// New makes a set with a series for every combination of words.
func New(w Words) *Set {
	s := &Set{
		words: w, decisions: map[decision]*Counter{}, requests: map[string]*Requests{},
		decide: newHistogram(1e-9, durations()), commit: newHistogram(1e-9, durations()), hookWait: newHistogram(1e-9, durations()),
		batch: newHistogram(1, sizes()),
	}
	made := Family{Name: "ocipd_decisions_total", Help: "Decisions about messages on record, by side, verdict and code.",
		Kind: KindCounter, Labels: []string{"side", "result", "code"}}
	for _, side := range with(w.Sides) {
		s.allowed = append(s.allowed, nil)
		for _, result := range with(w.Results) {
			for _, code := range append(with(w.Codes), "") {
				c := new(Counter)
				s.decisions[decision{side, result, code}] = c
				made.Series = append(made.Series, Series{
					Values: []string{side, result, code}, Counter: c,
					Rare: side == Other || result == Other || code == Other || (result == allow) != (code == ""),
				})
				if result == allow && code == "" {
					s.allowed[len(s.allowed)-1] = c
				}
			}
		}
	}
	s.families = append(s.families, made)
	s.deliveries = s.counters("ocipd_deliveries_total", "What became of messages that were let through.", "result", Handed, Delivered, Failed, Expired)
	s.families = append(s.families, Family{Name: "ocipd_holds_total", Help: "Messages that began to wait for a person.", Kind: KindCounter, Series: []Series{{Counter: &s.held}}})
	s.accepted = s.counters("ocipd_connections_total", "Connections that were served.", "socket", SocketApps, SocketOperators)
	s.ended = s.counters("ocipd_connections_ended_total", "Connections that the daemon ended at a limit.", "reason", NotRead, NotReadOfAll, NotFinished, PushedOut, TurnedAway)
	s.refused = s.counters("ocipd_refused_lines_total", "Lines that were refused before a method was called.", "reason", TooLong, Malformed, UnknownMethod, NotAdmitted)
	answered := Family{Name: "ocipd_requests_total", Help: "Requests that were answered, by method and code.", Kind: KindCounter, Labels: []string{"method", "code"}}
	for _, method := range with(w.Methods) {
		r := &Requests{byCode: map[string]*Counter{}}
		for _, code := range append(with(w.ErrorCodes), codeOK) {
			c := new(Counter)
			r.byCode[code] = c
			answered.Series = append(answered.Series, Series{Values: []string{method, code}, Counter: c, Rare: method == Other || code == Other})
		}
		r.ok = r.byCode[codeOK]
		s.requests[method] = r
	}
	s.families = append(s.families, answered)
	for _, h := range []struct {
		name, help string
		h          *Histogram
	}{
		{"ocipd_decision_duration_seconds", "Time to weigh one message, policy and detectors included.", s.decide},
		{"ocipd_commit_duration_seconds", "Time to make one batch of changes durable.", s.commit},
		{"ocipd_commit_batch_changes", "Changes that share one commit.", s.batch},
		{"ocipd_hook_wait_duration_seconds", "Time that one interceptor was waited for.", s.hookWait},
	} {
		s.families = append(s.families, Family{Name: h.name, Help: h.help, Kind: KindHistogram, Series: []Series{{Histogram: h.h}}})
	}
	s.families = append(s.families, gauges(w.Sinks)...)
	return s
}

// with adds the word for what has none.
func with(words []string) []string { return append(slices.Clone(words), Other) }

// counters makes a family with one label.
func (s *Set) counters(name, help, label string, values ...string) map[string]*Counter {
	f := Family{Name: name, Help: help, Kind: KindCounter, Labels: []string{label}}
	byValue := make(map[string]*Counter, len(values))
	for _, v := range values {
		c := new(Counter)
		byValue[v] = c
		f.Series = append(f.Series, Series{Values: []string{v}, Counter: c})
	}
	s.families = append(s.families, f)
	return byValue
}

func gauges(sinks []string) []Family {
	one := func(name, help string, look func(*Gauges) float64) Family {
		return Family{Name: name, Help: help, Kind: KindGauge, Series: []Series{{Gauge: look}}}
	}
	list := []Family{
		one("ocipd_apps", "Registered apps.", func(g *Gauges) float64 { return g.Apps }),
		one("ocipd_apps_unhealthy", "Registered apps that were not heard of for too long.", func(g *Gauges) float64 { return g.AppsUnhealthy }),
		one("ocipd_agents", "Configured agents.", func(g *Gauges) float64 { return g.Agents }),
		one("ocipd_connections", "Connections that are open, on both sockets.", func(g *Gauges) float64 { return g.Connections }),
		one("ocipd_reader_queue_bytes", "Bytes that wait for connections to read them.", func(g *Gauges) float64 { return g.ReaderQueues }),
		one("ocipd_held_messages", "Messages that wait for a person.", func(g *Gauges) float64 { return g.Held }),
		one("ocipd_held_oldest_age_seconds", "For how long the oldest held message waits, 0 where none does.", func(g *Gauges) float64 { return g.OldestHeldSeconds }),
		one("ocipd_queued_messages", "Messages that wait for their receiver.", func(g *Gauges) float64 { return g.Queued }),
		one("ocipd_queues", "Receivers for whom messages wait.", func(g *Gauges) float64 { return g.Queues }),
		one("ocipd_log_records", "The last record of the audit log.", func(g *Gauges) float64 { return g.LogSeq }),
		one("ocipd_log_signed_records", "Records that the newest checkpoint covers.", func(g *Gauges) float64 { return g.LogSigned }),
		one("ocipd_log_mirrored_records", "The last record in the mirror.", func(g *Gauges) float64 { return g.LogMirrored }),
		one("ocipd_log_indexed_records", "The last record in the index.", func(g *Gauges) float64 { return g.LogIndexed }),
		one("ocipd_store_latched", "1 while the store is closed for writing until a restart.", func(g *Gauges) float64 { return g.Latched }),
		one("ocipd_store_free_bytes", "Free space on the disk of the database.", func(g *Gauges) float64 { return g.DiskFree }),
		one("ocipd_store_reserve_kept", "1 while the space for the last records is kept.", func(g *Gauges) float64 { return g.DiskReserve }),
		one("ocipd_policy_refused", "1 while a policy that should be in force was refused.", func(g *Gauges) float64 { return g.PolicyRefused }),
		one("ocipd_start_time_seconds", "When the daemon started, in seconds since 1970.", func(g *Gauges) float64 { return g.StartTime }),
	}
	lag := Family{Name: "ocipd_sink_lag_records", Help: "Records that a sink has not taken over yet.", Kind: KindGauge, Labels: []string{"sink"}}
	for _, name := range sinks {
		lag.Series = append(lag.Series, Series{Values: []string{name}, Gauge: func(g *Gauges) float64 { return g.Sinks[name] }})
	}
	return append(list, lag)
}

// Families lists everything, in a fixed order. The list is not to be changed.
func (s *Set) Families() []Family { return s.families }

// Decided counts how long a message was weighed, which is not always a decision:
// one that a person let go is weighed again, and one that an interceptor stopped
// never is. See [Set.Decision].
func (s *Set) Decided(took time.Duration) {
	if s != nil {
		s.decide.Observe(int64(took))
	}
}

// Decision counts a decision that was recorded.
func (s *Set) Decision(side, result, code string) {
	if s == nil {
		return
	}
	if code == "" && result == allow {
		for i, known := range s.words.Sides {
			if known == side && s.allowed[i] != nil {
				s.allowed[i].Add(1)
				return
			}
		}
	}
	c := s.decisions[decision{side, result, code}]
	if c == nil {
		known := func(word string, words []string) string {
			if slices.Contains(words, word) {
				return word
			}
			return Other
		}
		if code != "" {
			code = known(code, s.words.Codes)
		}
		c = s.decisions[decision{known(side, s.words.Sides), known(result, s.words.Results), code}]
	}
	c.Add(1)
}

// Held counts a message that begins to wait for a person.
func (s *Set) Held() {
	if s != nil {
		s.held.Add(1)
	}
}

// Delivery counts what became of a message: one of the words above.
func (s *Set) Delivery(result string) {
	if s != nil {
		s.deliveries[result].Add(1)
	}
}

// Committed counts a batch of changes that was made durable. One that had nothing
// to write took no fsync and is none.
func (s *Set) Committed(changes int, took time.Duration) {
	if s != nil {
		s.commit.Observe(int64(took))
		s.batch.Observe(int64(changes))
	}
}

// HookWaited counts how long an interceptor was waited for.
func (s *Set) HookWaited(took time.Duration) {
	if s != nil {
		s.hookWait.Observe(int64(took))
	}
}

// Accepted counts a connection that is served: SocketApps or SocketOperators.
func (s *Set) Accepted(socket string) {
	if s != nil {
		s.accepted[socket].Add(1)
	}
}

// Ended counts a connection that a limit ended: one of the reasons above.
func (s *Set) Ended(reason string) {
	if s != nil {
		s.ended[reason].Add(1)
	}
}

// Refused counts a line that became no request: one of the reasons above.
func (s *Set) Refused(reason string) {
	if s != nil {
		s.refused[reason].Add(1)
	}
}

// Requests counts the requests of one method.
type Requests struct {
	ok     *Counter
	byCode map[string]*Counter
}

// Method returns the counters of a method, to be kept by whoever serves it.
func (s *Set) Method(name string) *Requests {
	if s == nil {
		return nil
	}
	if r := s.requests[name]; r != nil {
		return r
	}
	return s.requests[Other]
}

// Answered counts an answer, by the code of its error, "" for a result.
func (r *Requests) Answered(code string) {
	switch {
	case r == nil:
	case code == "":
		r.ok.Add(1)
	default:
		c := r.byCode[code]
		if c == nil {
			c = r.byCode[Other]
		}
		c.Add(1)
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
	var decisions uint64
	for _, c := range s.decisions {
		decisions += c.Value()
	}
	return Latencies{
		DecisionP50: time.Duration(s.decide.Quantile(0.5)), DecisionP99: time.Duration(s.decide.Quantile(0.99)),
		CommitP50: time.Duration(s.commit.Quantile(0.5)), CommitP99: time.Duration(s.commit.Quantile(0.99)),
		Decisions: decisions,
	}
}
