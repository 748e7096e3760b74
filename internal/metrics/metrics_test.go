package metrics

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func words() Words {
	return Words{
		Sides: []string{"sender", "receiver"}, Results: []string{"allow", "deny", "require_approval"}, Codes: []string{"POLICY_DENIED", "EXCHANGE_EXPIRED"},
		Methods: []string{"message.dispatch"}, ErrorCodes: []string{"FORBIDDEN"}, Sinks: []string{"siem"},
	}
}

// count sums up a family's counters whose labels are these, "*" for any.
func count(t *testing.T, s *Set, name string, values ...string) (n uint64) {
	t.Helper()
	i := slices.IndexFunc(s.Families(), func(f Family) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	for _, series := range s.Families()[i].Series {
		match := true
		for j, v := range values {
			match = match && (v == "*" || v == series.Values[j])
		}
		if match {
			n += series.Counter.Value()
		}
	}
	return n
}

func TestCounts(t *testing.T) {
	s := New(words())
	s.Decision("sender", "allow", "")
	s.Decision("sender", "deny", "POLICY_DENIED")
	s.Decision("receiver", "deny", "NEW_CODE")
	s.Decision("agent-alice-1", "telegram:123", "the text of a message")
	s.Held()
	s.Delivery(Handed)
	s.Accepted(SocketApps)
	s.Refused(TooLong)
	s.Method("message.dispatch").Answered("")
	s.Method("message.dispatch").Answered("FORBIDDEN")
	s.Method("message.dispatch").Answered("SOMETHING")
	s.Method("no.such").Answered("")
	for _, test := range []struct {
		name   string
		values []string
		want   uint64
	}{
		{"ocipd_decisions_total", []string{"sender", "allow", ""}, 1},
		{"ocipd_decisions_total", []string{"sender", "deny", "POLICY_DENIED"}, 1},
		{"ocipd_decisions_total", []string{"receiver", "deny", Other}, 1},
		{"ocipd_decisions_total", []string{Other, Other, Other}, 1},
		{"ocipd_decisions_total", []string{"*", "*", "*"}, 4},
		{"ocipd_holds_total", nil, 1},
		{"ocipd_deliveries_total", []string{Handed}, 1},
		{"ocipd_connections_total", []string{SocketApps}, 1},
		{"ocipd_refused_lines_total", []string{TooLong}, 1},
		{"ocipd_requests_total", []string{"message.dispatch", "OK"}, 1},
		{"ocipd_requests_total", []string{"message.dispatch", "FORBIDDEN"}, 1},
		{"ocipd_requests_total", []string{"message.dispatch", Other}, 1},
		{"ocipd_requests_total", []string{Other, "OK"}, 1},
	} {
		if got := count(t, s, test.name, test.values...); got != test.want {
			t.Errorf("%s%v is %d, want %d", test.name, test.values, got, test.want)
		}
	}
}

// TestSeriesAreFixed counts with words that nobody named, and wants no series
// more and none of the words in a label.
func TestSeriesAreFixed(t *testing.T) {
	s := New(words())
	before := fmt.Sprint(labels(s))
	for i := range 10_000 {
		text := fmt.Sprintf("telegram:%d agent-%d", i, i)
		s.Decision(text, text, text)
		s.Method(text).Answered(text)
	}
	if after := fmt.Sprint(labels(s)); after != before || strings.Contains(after, "telegram") {
		t.Error("counting made series")
	}
}

func labels(s *Set) (all [][]string) {
	for _, f := range s.Families() {
		for _, series := range f.Series {
			all = append(all, series.Values)
		}
	}
	return all
}

// TestNames holds the names against the conventions: base units, _total for
// counters and nothing else, a help text, labels for every series.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range New(words()).Families() {
		if !regexp.MustCompile(`^ocipd_[a-z]+(_[a-z]+)*$`).MatchString(f.Name) || seen[f.Name] || f.Help == "" {
			t.Errorf("%s: %q", f.Name, f.Help)
		}
		seen[f.Name] = true
		if strings.HasSuffix(f.Name, "_total") != (f.Kind == KindCounter) {
			t.Errorf("%s is a %s", f.Name, f.Kind)
		}
		for _, unit := range []string{"_ms", "_milliseconds", "_micros", "_kb", "_mib"} {
			if strings.Contains(f.Name, unit) {
				t.Errorf("%s is in no base unit", f.Name)
			}
		}
		known := map[string]bool{}
		for _, series := range f.Series {
			set := 0
			for _, there := range []bool{series.Counter != nil, series.Histogram != nil, series.Gauge != nil} {
				if there {
					set++
				}
			}
			key := strings.Join(series.Values, "\x00")
			if set != 1 || len(series.Values) != len(f.Labels) || known[key] {
				t.Errorf("%s has the series %q", f.Name, series.Values)
			}
			known[key] = true
		}
	}
}

// TestGauges wants every gauge to show a number of its own.
func TestGauges(t *testing.T) {
	g := &Gauges{
		Apps: 1, AppsUnhealthy: 2, Agents: 3, Connections: 4, ReaderQueues: 5, Held: 6, OldestHeldSeconds: 7, Queued: 8, Queues: 9, LogSeq: 10, LogSigned: 11,
		LogMirrored: 12, LogIndexed: 13, Latched: 14, DiskFree: 15, DiskReserve: 16, PolicyRefused: 17, StartTime: 18, Sinks: map[string]float64{"siem": 19},
	}
	want := 1.0
	for _, f := range New(words()).Families() {
		for _, series := range f.Series {
			if f.Kind == KindGauge {
				if got := series.Gauge(g); got != want {
					t.Errorf("%s is %v, want %v", f.Name, got, want)
				}
				want++
			}
		}
	}
	if want != 20 {
		t.Errorf("saw %v gauges", want-1)
	}
}

func TestQuantile(t *testing.T) {
	h := newHistogram(1e-9, durations())
	if q := h.Quantile(0.5); q != 0 {
		t.Errorf("nothing gives %d", q)
	}
	for i := range 1000 {
		h.Observe(int64(time.Duration(i+1) * time.Microsecond))
	}
	for q, want := range map[float64]time.Duration{0: time.Microsecond, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		got := time.Duration(h.Quantile(q))
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%v is %v, want about %v", q, got, want)
		}
	}
	h.Observe(int64(time.Hour))
	if got := time.Duration(h.Quantile(1)); got != 10*time.Second {
		t.Errorf("what is beyond the last bound is %v", got)
	}
	s := h.Snapshot()
	if s.Count != 1001 || s.Buckets[1e-3] != 1000 || s.Buckets[10] != 1000 || math.Abs(s.Sum-3600.5005) > 1e-6 {
		t.Errorf("snapshot %+v", s)
	}
}

func TestCountsSideBySide(t *testing.T) {
	s := New(words())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				s.Decision("sender", "allow", "")
				s.Decided(time.Microsecond)
				s.Committed(3, time.Millisecond)
			}
		})
	}
	all.Wait()
	if n := count(t, s, "ocipd_decisions_total", "sender", "allow", ""); n != 8000 || s.Latencies().Decisions != 8000 {
		t.Errorf("counted %d and %d", n, s.Latencies().Decisions)
	}
}

// TestNilCountsNothing is for rooms that are built without metrics.
func TestNilCountsNothing(t *testing.T) {
	var s *Set
	s.Decision("sender", "allow", "")
	s.Decided(1)
	s.Held()
	s.Delivery(Handed)
	s.Committed(1, 1)
	s.HookWaited(1)
	s.Accepted(SocketApps)
	s.Refused(TooLong)
	s.Method("x").Answered("")
	if s.Latencies() != (Latencies{}) {
		t.Error("nothing was counted")
	}
}

// BenchmarkMessage is what one message costs that goes from one agent of this
// daemon to another: both sides' decisions, the time of one but for reading the
// clock, its commit, its delivery and its answer.
func BenchmarkMessage(b *testing.B) {
	s := New(words())
	method := s.Method("message.dispatch")
	b.ReportAllocs()
	for b.Loop() {
		s.Decided(5600)
		s.Decision("sender", "allow", "")
		s.Decision("receiver", "allow", "")
		s.Committed(1, 400_000)
		s.Delivery(Handed)
		method.Answered("")
	}
}

// BenchmarkMessageWithClock is the same with what reading the clock costs.
func BenchmarkMessageWithClock(b *testing.B) {
	s := New(words())
	method := s.Method("message.dispatch")
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		s.Decided(time.Since(began))
		s.Decision("sender", "allow", "")
		s.Decision("receiver", "allow", "")
		// A commit reads the clock for its records anyway.
		s.Committed(1, time.Since(began))
		s.Delivery(Handed)
		method.Answered("")
	}
}

func BenchmarkClock(b *testing.B) {
	began := time.Now()
	for b.Loop() {
		_ = time.Since(began)
	}
}
