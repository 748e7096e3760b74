package index

import (
	"reflect"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/test/buildtest"
)

// checkStats compares the counts of a period with a plain count.
func checkStats(t *testing.T, x *Index, l *memLog, since, until time.Time, bucket time.Duration) {
	t.Helper()
	got, err := x.Stats(t.Context(), since, until, bucket)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	entries := l.entries[min(l.gone, uint64(len(l.entries))):]
	l.mu.Unlock()
	var all audit.Verdicts
	agents, rules, codes := map[string]audit.Verdicts{}, map[string]audit.Verdicts{}, map[string]audit.Verdicts{}
	buckets := make([]audit.Verdicts, len(got.Buckets))
	for i := range entries {
		e := &entries[i]
		if e.Time.Before(got.Since) || !e.Time.Before(got.Until) {
			continue
		}
		one := audit.Verdicts{}
		one.Add(e.Verdict(), 1)
		sum := func(v *audit.Verdicts) {
			v.Allow, v.Deny, v.RequireApproval, v.None = v.Allow+one.Allow, v.Deny+one.Deny, v.RequireApproval+one.RequireApproval, v.None+one.None
		}
		sum(&all)
		for i := range got.Buckets {
			if b := got.Buckets[i].Start; !e.Time.Before(b) && e.Time.Before(b.Add(time.Duration(got.Bucket)*time.Second)) {
				sum(&buckets[i])
			}
		}
		for _, of := range []struct {
			rows map[string]audit.Verdicts
			name string
		}{{agents, e.AgentID}, {rules, audit.SubjectOf(&e.Record).Rule}, {codes, e.Code}} {
			if of.name != "" {
				v := of.rows[of.name]
				sum(&v)
				of.rows[of.name] = v
			}
		}
	}
	plain := audit.NewTally(got.Since, got.Until, time.Minute)
	for i := range entries {
		plain.Add(&entries[i])
	}
	if want := plain.Stats(); !reflect.DeepEqual(got.Pairs, want.Pairs) || got.PairCount != want.PairCount || !reflect.DeepEqual(got.KindTimes, want.KindTimes) || !reflect.DeepEqual(got.RuleTimes, want.RuleTimes) {
		t.Errorf("pairs %v, times %v, %v, want %v, %v, %v", got.Pairs, got.KindTimes, got.RuleTimes, want.Pairs, want.KindTimes, want.RuleTimes)
	}
	if got.Verdicts != all {
		t.Errorf("%+v in all, want %+v", got.Verdicts, all)
	}
	for i := range buckets {
		if got.Buckets[i].Verdicts != buckets[i] {
			t.Errorf("bucket %v: %+v, want %+v", got.Buckets[i].Start, got.Buckets[i].Verdicts, buckets[i])
		}
	}
	for _, of := range []struct {
		rows  []audit.StatsRow
		count int
		want  map[string]audit.Verdicts
	}{{got.Agents, got.AgentCount, agents}, {got.Rules, got.RuleCount, rules}, {got.Codes, got.CodeCount, codes}} {
		have := map[string]audit.Verdicts{}
		for _, row := range of.rows {
			have[row.Name] = row.Verdicts
		}
		if !reflect.DeepEqual(have, of.want) || of.count != len(of.want) {
			t.Errorf("%d rows %v, want %v", of.count, have, of.want)
		}
	}
}

// TestStats compares with a plain count: over everything, over periods that begin and end anywhere,
// with a tail, and without an index.
func TestStats(t *testing.T) {
	l := newLogAt(shardRecords - 5000)
	const records = 12_000
	fill(t, l, 5, records)
	x, _ := openIndex(t, l)
	indexed(t, x, l.head.Seq)
	start := l.entries[l.gone].Time
	end := start.Add(records * time.Second)
	ask := func(t *testing.T) {
		t.Helper()
		for i, tt := range []struct {
			since, until time.Time
			bucket       time.Duration
		}{
			{time.Time{}, end, 0},
			{time.Time{}, time.Time{}, 24 * time.Hour},
			{start.Add(17 * time.Minute), end.Add(-time.Hour), time.Minute},
			{start.Add(3 * time.Hour), start.Add(3*time.Hour + 5*time.Minute), 0},
			{start.Add(-time.Hour), start.Add(-time.Minute), 0},
			{end.Add(time.Hour), end.Add(2 * time.Hour), 0},
			{end.Add(-20 * time.Minute), end.Add(time.Hour), 7 * time.Minute},
		} {
			if buildtest.Raced && i%3 != 0 {
				continue
			}
			checkStats(t, x, l, tt.since, tt.until, tt.bucket)
		}
	}
	t.Run("indexed", ask)
	x.loop.Stop()
	fill(t, l, 6, 400)
	t.Run("with a tail", ask)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("with no file", ask)
	empty := openAt(t, newLog(), t.TempDir()+"/e.db")
	checkStats(t, empty, newLog(), time.Time{}, time.Time{}, 0)
}
