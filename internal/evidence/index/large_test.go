package index_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// manyRecords is the size of the log of BenchmarkLargeLog, unless INDEX_RECORDS sets another.
const manyRecords = 5_000_000

// largeRecord is one record of a large log: a thousand agents in pairs, three
// rounds an exchange with both sides on record, and 200,000 distinct reasons
// beside the usual ones.
func largeRecord(r *rand.Rand, i int) *audit.Record {
	const agents = 1000
	exchange := i / 6
	pair := exchange * 7919 % agents
	side, agent, other := audit.SideSender, pair, (pair+1)%agents
	if i%2 == 1 {
		side, agent, other = audit.SideReceiver, other, agent
	}
	id := func(kind, n int) string {
		return fmt.Sprintf("01a1f%03x-%04x-7%03x-8%03x-%012x", n>>28&0xfff, n>>12&0xffff, n&0xfff, kind, n*2654435761&0xffffffffffff)
	}
	name := func(n int) string {
		if n == agent && i%100_000 == 0 {
			return "agent-rare"
		}
		return fmt.Sprintf("agent-%04d", n)
	}
	rec := &audit.Record{
		ID: id(1, i), ActionType: audit.ActionExchange, Side: side, TenantID: fmt.Sprint("tenant-", pair%3), UserID: fmt.Sprintf("user-%03d", agent%200),
		AgentID: name(agent), AppID: fmt.Sprintf("@acme/app-%d", agent%20), SessionKey: fmt.Sprintf("telegram:%04d", other),
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: name(other), UserID: fmt.Sprintf("user-%03d", other%200), OrgUnit: "engineering", TenantID: fmt.Sprint("tenant-", pair%3)},
		ExchangeID:   id(2, exchange), ConversationID: id(2, exchange), ChainID: id(3, i/24), Round: i/2%3 + 1, MaxRounds: 3, ExchangeType: "information_query",
		Classification: "internal", PolicyApplied: "ocip.agent_exchange", PolicyRevision: "sha256:36059fca3323", PolicyResult: audit.ResultAllow,
		PolicyReason: fmt.Sprintf("information_query at internal is within policy %d", i%40), Outcome: "in_progress",
		ContentDigest: "hmac-sha256:c9663d79e2443a2972cab2f712b04513e9d4ca443dc666888e0d38e98a92a234", ContentBytes: 73, DispatchID: id(4, i/2),
		Details: map[string]any{"changedBy": []any{"kernel: metadata.ocip replaced"}},
	}
	switch n := r.IntN(100); {
	case n < 3:
		rec.PolicyResult, rec.Code, rec.Outcome = audit.ResultDeny, "POLICY_DENIED", "denied"
	case n < 4:
		rec.PolicyResult, rec.Code = audit.ResultApproval, "COMMITMENT_REQUIRES_HUMAN"
		rec.ApprovalID = id(5, i)
	case n < 14:
		rec.PolicyReason = fmt.Sprintf("exchange %s is known by now", id(6, r.IntN(200_000)))
	}
	return rec
}

// BenchmarkLargeLog makes a large log in a real store, indexes it and asks. It
// takes some minutes and 10 GB.
func BenchmarkLargeLog(b *testing.B) {
	records := manyRecords
	if n, err := strconv.Atoi(os.Getenv("INDEX_RECORDS")); err == nil {
		records = n
	}
	dir := b.TempDir()
	at := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	s, err := store.Open(b.Context(), store.Options{Path: filepath.Join(dir, "ocipd.db"), Clock: func() time.Time { at = at.Add(200 * time.Second); return at }, Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < records; {
		c := new(store.Change)
		for ; len(c.Records) < 1000 && i < records; i++ {
			c.Records = append(c.Records, largeRecord(r, i))
		}
		if _, err := s.Commit(c); err != nil {
			b.Fatal(err)
		}
	}
	path := filepath.Join(dir, "ocipd.index.db")
	open := func() *index.Index {
		return index.Open(b.Context(), index.Options{Path: path, Log: s, Now: time.Now, Logger: zap.NewNop()})
	}
	x := open()
	began, before := time.Now(), processorTime(b)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for x.Indexed() < s.Head().Seq {
		<-tick.C
	}
	took := time.Since(began)
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	each := time.Duration(s.Head().Seq)
	b.Logf("%d records indexed in %v: %v a record, %v of a processor, %d bytes a record, %d MB", s.Head().Seq, took.Round(time.Millisecond),
		took/each, (processorTime(b)-before)/each, file.Size()/int64(s.Head().Seq), file.Size()>>20)
	x = open()
	defer x.Close()
	for x.Indexed() < s.Head().Seq {
		<-tick.C
	}
	middle := largeRecord(r, records/2)
	for _, q := range []struct {
		name string
		f    audit.Filter
	}{
		{"everything", audit.Filter{}},
		{"rare agent", audit.Filter{Like: audit.Record{AgentID: "agent-rare"}}},
		{"nobody", audit.Filter{Like: audit.Record{AgentID: "agent-none"}}},
		{"usual agent", audit.Filter{Like: audit.Record{AgentID: "agent-0007"}}},
		{"usual verdict", audit.Filter{Like: audit.Record{PolicyResult: "allow"}}},
		{"refusals", audit.Filter{Like: audit.Record{PolicyResult: "deny"}}},
		{"one exchange", audit.Filter{Like: audit.Record{ExchangeID: middle.ExchangeID}}},
		{"one message", audit.Filter{Like: audit.Record{DispatchID: middle.DispatchID}}},
		{"rare agent and usual verdict", audit.Filter{Like: audit.Record{AgentID: "agent-rare", PolicyResult: "allow"}}},
		{"two that never meet", audit.Filter{Like: audit.Record{TenantID: "tenant-0", Code: "POLICY_DENIED", AgentID: "agent-rare"}}},
		{"usual and never together", audit.Filter{Like: audit.Record{AgentID: "agent-0007", Counterparty: audit.Counterparty{InstanceID: "agent-0700"}}}},
		{"usual text", audit.Filter{Text: "Within policy 7"}},
		{"rare text", audit.Filter{Text: largeReason(4711)}},
		{"no text", audit.Filter{Text: "nowhere to be found"}},
		{"refusals of a day", audit.Filter{Like: audit.Record{PolicyResult: "deny"}, Since: at.Add(-48 * time.Hour), Until: at.Add(-24 * time.Hour)}},
	} {
		b.Run(q.name, func(b *testing.B) {
			var times []time.Duration
			found, pages := 0, 0
			for b.Loop() {
				began := time.Now()
				lines, next, err := x.Query(context.Background(), q.f, 0, 100)
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
				found = len(lines)
				if next > 0 {
					pages = 1
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/p50")
			b.ReportMetric(float64(times[len(times)-1].Microseconds())/1000, "ms/max")
			b.ReportMetric(float64(found), "found")
			b.ReportMetric(float64(pages), "more")
		})
	}
	for _, span := range []time.Duration{0, 24 * time.Hour} {
		b.Run(fmt.Sprint("stats ", span), func(b *testing.B) {
			for b.Loop() {
				var since time.Time
				if span > 0 {
					since = at.Add(-span)
				}
				s, err := x.Stats(context.Background(), since, at, 0)
				if err != nil || s.Verdicts.Total() == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// largeReason returns one of the 200,000 reasons.
func largeReason(n int) string {
	return fmt.Sprintf("-7%03x-8%03x-%012X", n&0xfff, 6, n*2654435761&0xffffffffffff)
}
