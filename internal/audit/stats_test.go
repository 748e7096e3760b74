package audit

import (
	"fmt"
	"testing"
	"time"
)

func TestTallyBuckets(t *testing.T) {
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	tests := []struct {
		name         string
		since, until string
		bucket       time.Duration
		wantBucket   int
		wantCount    int
		wantFirst    string
	}{
		{"an hour", "2026-03-13T10:00:00Z", "2026-03-13T11:00:00Z", 0, 60, 60, "2026-03-13T10:00:00Z"},
		{"a day, not on the hour", "2026-03-13T10:17:30Z", "2026-03-14T10:17:30Z", 0, 1800, 49, "2026-03-13T10:00:00Z"},
		{"given", "2026-03-13T10:17:30Z", "2026-03-13T12:00:00Z", 45 * time.Minute, 2700, 3, "2026-03-13T09:45:00Z"},
		{"rounded up", "2026-03-13T10:00:00Z", "2026-03-13T10:10:00Z", 61 * time.Second, 120, 5, "2026-03-13T10:00:00Z"},
		{"too many", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", time.Minute, 128 * 60, 665, "2025-12-31T22:56:00Z"},
		{"years", "2000-01-01T00:00:00Z", "2026-03-01T00:00:00Z", 0, 84 * 86400, 115, "1999-11-25T00:00:00Z"},
		{"an instant", "2026-03-13T10:00:01Z", "2026-03-13T10:00:02Z", 0, 60, 1, "2026-03-13T10:00:00Z"},
		{"nothing", "2026-03-13T10:00:00Z", "2026-03-13T10:00:00Z", 0, 60, 0, ""},
		{"backwards", "2026-03-13T10:00:00Z", "2026-03-12T10:00:00Z", 0, 60, 0, ""},
		{"before 1970", "1969-12-31T23:10:00Z", "1970-01-01T00:20:00Z", 30 * time.Minute, 1800, 3, "1969-12-31T23:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tally := NewTally(at(tt.since), at(tt.until), tt.bucket)
			for at := tally.Since(); at.Before(tally.Until()); at = at.Add(17 * time.Minute) {
				tally.Add(&Entry{Time: at, Record: Record{ActionType: ActionExchange, PolicyResult: ResultAllow}})
			}
			tally.Add(&Entry{Time: tally.Until()})
			tally.Add(&Entry{Time: tally.Since().Add(-1)})
			s := tally.Stats()
			if s.Bucket != tt.wantBucket || len(s.Buckets) != tt.wantCount {
				t.Fatalf("%d buckets of %d s, want %d of %d", len(s.Buckets), s.Bucket, tt.wantCount, tt.wantBucket)
			}
			sum := 0
			for i, b := range s.Buckets {
				sum += b.Total()
				if i > 0 && b.Start.Sub(s.Buckets[i-1].Start) != time.Duration(s.Bucket)*time.Second {
					t.Errorf("a gap before %v", b.Start)
				}
			}
			if sum != s.Verdicts.Total() || s.Verdicts.None != 0 || sum == 0 != (tt.wantCount == 0) {
				t.Errorf("%d in the buckets, %+v in all", sum, s.Verdicts)
			}
			if tt.wantCount > 0 && !s.Buckets[0].Start.Equal(at(tt.wantFirst)) {
				t.Errorf("the first begins at %v, want %s", s.Buckets[0].Start, tt.wantFirst)
			}
		})
	}
}

func TestTallyRows(t *testing.T) {
	tally := NewTally(start, start.Add(time.Hour), 0)
	for i := range StatsRows + 20 {
		for range i%7 + 1 {
			tally.Add(&Entry{Time: start, Record: Record{ActionType: ActionExchange, AgentID: fmt.Sprintf("agent-%03d", i), PolicyApplied: "rule", PolicyResult: ResultDeny, Code: "CODE"}})
		}
	}
	tally.Add(&Entry{Time: start})
	s := tally.Stats()
	if s.AgentCount != StatsRows+20 || len(s.Agents) != StatsRows || s.RuleCount != 1 || s.CodeCount != 1 || s.Rules[0].Deny != s.Verdicts.Deny || s.Codes[0].Name != "CODE" {
		t.Errorf("%d of %d agents, rules %v, codes %v", len(s.Agents), s.AgentCount, s.Rules, s.Codes)
	}
	for i, row := range s.Agents[1:] {
		if before := s.Agents[i]; before.Total() < row.Total() || before.Total() == row.Total() && before.Name >= row.Name {
			t.Errorf("%v stands before %v", before, row)
		}
	}
	if s.Verdicts.None != 1 {
		t.Errorf("%d records decide nothing, want 1", s.Verdicts.None)
	}
}

// A caller's time may span any years, and its buckets may have any length.
func TestStatsOfAnyTime(t *testing.T) {
	day := time.Date(2026, 3, 13, 0, 0, 0, 0, time.UTC)
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 1, time.UTC)
	for _, since := range []time.Time{first, day.Add(-time.Hour)} {
		for _, until := range []time.Time{day.Add(time.Hour), time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC), last} {
			for _, bucket := range []time.Duration{0, 1, time.Minute, time.Hour, 1 << 62, 1<<63 - 1} {
				tally := NewTally(since, until, bucket)
				tally.Add(&Entry{Time: day, Record: Record{ActionType: ActionExchange, PolicyResult: ResultAllow}})
				s := tally.Stats()
				n := 0
				for i, b := range s.Buckets {
					n += b.Allow
					if b.Allow > 0 && (day.Before(b.Start) || day.Unix() >= b.Start.Unix()+int64(s.Bucket)) {
						t.Errorf("%s to %s by %s: it is counted in the bucket of %s", since, until, bucket, b.Start)
					}
					if i > 0 && b.Start.Unix()-s.Buckets[i-1].Start.Unix() != int64(s.Bucket) {
						t.Fatalf("%s to %s by %s: a gap before %s", since, until, bucket, b.Start)
					}
				}
				if n != 1 || s.Verdicts.Allow != 1 || len(s.Buckets) > StatsBuckets {
					t.Errorf("%s to %s by %s: %d counted in %d buckets of %d s", since, until, bucket, n, len(s.Buckets), s.Bucket)
				}
			}
		}
	}
}

// TestVerdict counts messages alone: no decision about a frame, a tool or a preview, and a message
// between two agents of the daemon once.
func TestVerdict(t *testing.T) {
	for want, list := range map[string][]Record{
		ResultDeny: {
			{ActionType: ActionExchange, Side: SideSender, SessionKey: "agent:bob:main"},
			{ActionType: ActionExchange, Side: SideReceiver, SessionKey: "telegram:eve"},
			{ActionType: ActionExchange, Side: SideReceiver, SessionKey: "agent:bob:main", AppID: "@ocipd/host:b"},
			{ActionType: ActionExchange, Side: SideReceiver, SessionKey: "agent:bob:main", AppID: "@acme/link", Details: map[string]any{Outside: true}},
		},
		"": {
			{ActionType: ActionExchange, Side: SideReceiver, SessionKey: "agent:bob:main", AppID: "@acme/bob"},
			{ActionType: ActionSecurity, Event: "frame_walled", Code: "CROSS_ENTERPRISE_BLOCKED"},
			{ActionType: ActionSecurity, Event: "tool_executing"}, {ActionType: ActionCheck}, {ActionType: ActionTask},
		},
	} {
		for _, r := range list {
			r.PolicyResult = ResultDeny
			if got := r.Verdict(); got != want {
				t.Errorf("%+v counts as %q, want %q", r, got, want)
			}
		}
	}
}
