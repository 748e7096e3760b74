package metrics

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

func words() Words {
	return Words{
		Sides: []string{"sender", "receiver"}, Results: []string{"allow", "deny", "require_approval"}, Codes: []string{"POLICY_DENIED", "EXCHANGE_EXPIRED"},
		ErrorCodes: []string{"FORBIDDEN"},
	}
}

// exposition returns the page for scrapers.
func exposition(t *testing.T, s *Set) string {
	t.Helper()
	families, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			t.Fatal(err)
		}
	}
	return page.String()
}

// TestExposition counts one event of every kind, with known and unknown words, and compares the
// page byte for byte with an earlier one: a changed name, label or bound breaks dashboards.
func TestExposition(t *testing.T) {
	want, err := os.ReadFile("testdata/exposition.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := New(words())
	s.Decision("sender", "allow", "")
	s.Decision("sender", "deny", "POLICY_DENIED")
	s.Decision("receiver", "require_approval", "EXCHANGE_EXPIRED")
	s.Decision("receiver", "deny", "NEW_CODE")
	s.Decision("receiver", "allow", "POLICY_DENIED")
	s.Decision("sender", "deny", "")
	s.Decision("agent-alice-1", "telegram:123", "the text of a message")
	s.Held()
	for _, result := range []string{Handed, Delivered, Failed, Expired, Handed} {
		s.Delivery(result)
	}
	s.Accepted(SocketApps)
	s.Accepted(SocketOperators)
	for _, reason := range []string{NotRead, NotReadOfAll, TakenBack, NotFinished, PushedOut, TurnedAway} {
		s.Ended(reason)
	}
	for _, reason := range []string{TooLong, Malformed, UnknownMethod, NotAdmitted} {
		s.Refused(reason)
	}
	s.Method("message.dispatch").Answered("")
	s.Method("message.dispatch").Answered("FORBIDDEN")
	s.Method("message.dispatch").Answered("SOMETHING")
	s.Method(Other).Answered("")
	s.Method(Other).Answered("FORBIDDEN")
	for _, took := range []time.Duration{0, 1, time.Microsecond, 1600, 1601, 400 * time.Microsecond, 10 * time.Second, time.Hour} {
		s.Decided(took)
		s.HookWaited(took)
		s.Committed(int(took%1000), took)
	}
	if got := exposition(t, s); got != string(want) {
		t.Errorf("scrapers read\n%s", got)
	}
	if got := s.Latencies().Decisions; got != 7 {
		t.Errorf("%d decisions are summed up", got)
	}
}

// TestSeriesAreFixed counts with unknown words, and expects no new series.
func TestSeriesAreFixed(t *testing.T) {
	s := New(words())
	method := s.Method("message.dispatch")
	before := strings.Count(exposition(t, s), "\n")
	for i := range 10_000 {
		text := fmt.Sprintf("telegram:%d agent-%d", i, i)
		s.Decision(text, text, text)
		s.Decision("sender", text, text)
		method.Answered(text)
	}
	after := exposition(t, s)
	if made := strings.Count(after, "\n") - before; made != 4 || strings.Contains(after, "telegram") {
		t.Errorf("counting made %d series", made)
	}
}

// TestNames checks the names against the conventions: base units, and _total for counters and
// nothing else.
func TestNames(t *testing.T) {
	for line := range strings.Lines(exposition(t, New(words()))) {
		about, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		name, kind, _ := strings.Cut(strings.TrimSpace(about), " ")
		if !regexp.MustCompile(`^ocipd_[a-z]+(_[a-z]+)*$`).MatchString(name) {
			t.Errorf("%s is no name", name)
		}
		if strings.HasSuffix(name, "_total") != (kind == "counter") {
			t.Errorf("%s is a %s", name, kind)
		}
		for _, unit := range []string{"_ms", "_milliseconds", "_micros", "_kb", "_mib"} {
			if strings.Contains(name, unit) {
				t.Errorf("%s is in no base unit", name)
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	h := New(words()).decide
	at := func(q float64) time.Duration {
		var seen dto.Metric
		if err := h.Write(&seen); err != nil {
			t.Fatal(err)
		}
		return quantile(seen.GetHistogram(), q)
	}
	if q := at(0.5); q != 0 {
		t.Errorf("nothing gives %v", q)
	}
	for i := range 1000 {
		h.Observe(seconds(time.Duration(i+1) * time.Microsecond))
	}
	for q, want := range map[float64]time.Duration{0: time.Microsecond, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		if got := at(q); math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%v is %v, want about %v", q, got, want)
		}
	}
	h.Observe(seconds(time.Hour))
	if got := at(1); got != 10*time.Second {
		t.Errorf("what is beyond the last bound is %v", got)
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
	page := exposition(t, s)
	for _, want := range []string{`ocipd_decisions_total{code="",result="allow",side="sender"} 8000`, "ocipd_decision_duration_seconds_count 8000", "ocipd_commit_batch_changes_sum 24000"} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if n := s.Latencies().Decisions; n != 8000 {
		t.Errorf("%d decisions are summed up", n)
	}
}

// TestNilCountsNothing is for packages that run without metrics.
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

// BenchmarkMessage is the cost of one message from one agent of this daemon to another: both sides'
// decisions, the time of one without reading the clock, its commit, its delivery and its answer.
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

// BenchmarkRefused is the cost of counters that are looked up by their labels.
func BenchmarkRefused(b *testing.B) {
	s := New(words())
	method := s.Method("message.dispatch")
	b.ReportAllocs()
	for b.Loop() {
		s.Decision("sender", "deny", "POLICY_DENIED")
		method.Answered("FORBIDDEN")
	}
}

// BenchmarkMessageWithClock is the same including reading the clock.
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
