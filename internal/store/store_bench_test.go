package store

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

func openTest(tb testing.TB) *Store {
	tb.Helper()
	dir := tb.TempDir()
	s, err := Open(context.Background(), Options{Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// dispatchChange returns the change of one message.dispatch.
func dispatchChange(n int, now time.Time) *Change {
	id := uuid.Must(uuid.NewV7()).String()
	return &Change{
		Records: []*audit.Record{{
			ID: id, ActionType: audit.ActionExchange, Side: audit.SideSender, TenantID: "acme-corp", UserID: "alice", AgentID: "agent-alice-1", AppID: "@acme/alice-runtime",
			Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "marketing", TenantID: "acme-corp"},
			ExchangeID:   id, ConversationID: id, Round: 1, MaxRounds: 3, ExchangeType: "information_query", Classification: "internal",
			PolicyApplied: "ocip.agent_exchange+ocip.cross_org", PolicyRevision: "sha256:0123456789ab", PolicyResult: "allow", PolicyReason: "cross-org exchange allowed",
			Outcome: "in_progress", ContentDigest: "hmac-sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ContentBytes: 120, DispatchID: id,
		}},
		Parts: []Part{&Exchange{Exchange: ocip.Exchange{ID: id, ConversationID: id, Type: ocip.InformationQuery, Agent: "agent-alice-1", Counterparty: "agent-carol-1",
			SessionKey: "telegram:carol", Outcome: ocip.InProgress, Round: 1, MaxRounds: 3, OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
			Transcript: []ocip.Turn{{Round: 1, Sender: "agent-alice-1", Summary: "What is the status of ticket ENG-1234?"}}}},
			Current{Agent: "agent-alice-1", SessionKey: fmt.Sprint("telegram:", n%64), ExchangeID: id},
			&Message{MessageID: MessageID{Queue: "channel:telegram"}, DispatchID: id, ExpiresAt: now.Add(24 * time.Hour), Body: make([]byte, 700)}},
	}
}

func BenchmarkCommitAlone(b *testing.B) {
	s := openTest(b)
	i := 0
	for b.Loop() {
		c := dispatchChange(i, time.Now())
		i++
		if _, err := s.Commit(c); err != nil {
			b.Fatal(err)
		}
		s.Taken(messageOf(c).MessageID)
	}
}

func BenchmarkCommitTogether(b *testing.B) {
	s := openTest(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := dispatchChange(int(n.Add(1)), time.Now())
			if _, err := s.Commit(c); err != nil {
				b.Error(err)
				return
			}
			s.Taken(messageOf(c).MessageID)
		}
	})
}

// BenchmarkOpen opens stores of different lengths: it takes the same time for each. least-ms is the
// shortest opening, the best measure on a shared machine. The stores are made once, of short
// records, the largest in about a minute.
func BenchmarkOpen(b *testing.B) {
	for _, records := range []int{50_000, 400_000, 5_000_000} {
		b.Run(fmt.Sprint("records=", records), func(b *testing.B) {
			o, _ := signed(b, b.TempDir())
			s := open(b, o)
			for at := 0; at < records; {
				c := &Change{}
				for range min(10_000, records-at) {
					c.Records = append(c.Records, &audit.Record{ID: fmt.Sprint("note-", at), ActionType: audit.ActionSecurity, Event: "noted"})
					at++
				}
				if _, err := s.Commit(c); err != nil {
					b.Fatal(err)
				}
			}
			shut(b, s)
			least := time.Hour
			defer func() { b.ReportMetric(float64(least.Microseconds())/1000, "least-ms") }()
			for b.Loop() {
				began := time.Now()
				s := open(b, o)
				least = min(least, time.Since(began))
				b.StopTimer()
				shut(b, s)
				b.StartTimer()
			}
		})
	}
}
