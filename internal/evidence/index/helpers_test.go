package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
)

var start = time.Date(2026, 3, 13, 10, 0, 30, 0, time.UTC)

// sample is called at the beginning of each case. Under the race detector, which is slow with a log
// of thousands of records, it skips most cases.
func sample(some int) func(t *testing.T) {
	n := 0
	return func(t *testing.T) {
		if n++; buildtest.Raced && n > some {
			t.Skip("make test makes it without the race detector")
		}
	}
}

// fewer returns the number of tries: under the race detector a third.
func fewer(all int) int {
	if buildtest.Raced {
		return all / 3
	}
	return all
}

// memLog is a log in memory. Its first records can be removed.
type memLog struct {
	mu    sync.Mutex
	lines [][]byte
	// entries are the parsed lines.
	entries []audit.Entry
	gone    uint64
	head    audit.Head
	news    chan struct{}
	// reads counts the pages that were read, and looks the single lines.
	reads, looks int
}

func newLog() *memLog { return &memLog{news: make(chan struct{})} }

// newLogAt returns a log whose first records were removed.
func newLogAt(gone uint64) *memLog {
	l := newLog()
	l.lines, l.entries = make([][]byte, gone), make([]audit.Entry, gone)
	l.gone, l.head = gone, audit.Head{Seq: gone}
	return l
}

// upTo returns the beginning of the log, which then continues separately.
func (l *memLog) upTo(seq int) *memLog {
	head, err := audit.HeadOf(l.lines[seq-1])
	if err != nil {
		panic(err)
	}
	return &memLog{lines: slices.Clip(l.lines[:seq]), entries: slices.Clip(l.entries[:seq]), gone: l.gone, head: head, news: make(chan struct{})}
}

// catchUp adds the additional records of another log.
func (l *memLog) catchUp(with *memLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.entries, l.head = slices.Clip(with.lines), slices.Clip(with.entries), with.head
	close(l.news)
	l.news = make(chan struct{})
}

func (l *memLog) add(tb testing.TB, at time.Time, r *audit.Record) {
	tb.Helper()
	body, err := audit.Encode(r)
	if err != nil {
		tb.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line, head := l.head.Seal(nil, at, body)
	l.lines, l.head = append(l.lines, line), head
	l.entries = append(l.entries, audit.Entry{Seq: head.Seq, Time: head.Time, Record: *r})
	close(l.news)
	l.news = make(chan struct{})
}

func (l *memLog) retire(upTo uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = upTo
}

func (l *memLog) Head() audit.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

func (l *memLog) WaitAfter(ctx context.Context, seq uint64) error {
	for {
		l.mu.Lock()
		news, last := l.news, l.head.Seq
		l.mu.Unlock()
		if last > seq {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *memLog) LinesAfter(_ context.Context, seq uint64) ([][]byte, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	seq = max(seq, l.gone)
	page := l.lines[min(seq, uint64(len(l.lines))):min(seq+512, uint64(len(l.lines)))]
	return page, seq + uint64(len(page)), nil
}

func (l *memLog) Lines(_ context.Context, seqs []uint64) ([][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks += len(seqs)
	lines := make([][]byte, len(seqs))
	for i, seq := range seqs {
		if seq > l.gone && seq <= uint64(len(l.lines)) {
			lines[i] = l.lines[seq-1]
		}
	}
	return lines, nil
}

func (l *memLog) SeqAt(_ context.Context, at time.Time) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.gone
	for seq < uint64(len(l.lines)) && l.entries[seq].Time.Before(at) {
		seq++
	}
	return seq, nil
}

// scanned is the number of records that a plain walk reads for one page.
const scanned = 1000

func (l *memLog) Query(_ context.Context, f audit.Filter, after, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after = max(after, l.gone)
	if before == 0 {
		before = uint64(len(l.lines)) + 1
	}
	selected := selects(&f)
	for looked := 0; before > after+1; looked++ {
		if looked == scanned {
			return lines, before, nil
		}
		before--
		if selected(&l.entries[before-1]) {
			if lines = append(lines, l.lines[before-1]); len(lines) == limit {
				if before <= after+1 {
					before = 0
				}
				return lines, before, nil
			}
		}
	}
	return lines, 0, nil
}

// want returns the records that a filter selects, newest first, by a plain walk.
func (l *memLog) want(f audit.Filter, before uint64) (lines [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	selected := selects(&f)
	for seq := uint64(len(l.lines)); seq > l.gone; seq-- {
		if (before == 0 || seq < before) && selected(&l.entries[seq-1]) {
			lines = append(lines, l.lines[seq-1])
		}
	}
	return lines
}

// selects reports whether a filter's members select a record.
func selects(f *audit.Filter) func(*audit.Entry) bool {
	type wanted struct {
		member audit.Member
		value  string
	}
	var like []wanted
	for _, m := range audit.Filters() {
		if value := *m.Of(&f.Like); value != "" {
			like = append(like, wanted{m, value})
		}
	}
	text := strings.ToLower(f.Text)
	return func(e *audit.Entry) bool {
		for i := range like {
			if *like[i].member.Of(&e.Record) != like[i].value {
				return false
			}
		}
		return (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || e.Time.Before(f.Until)) &&
			(text == "" || strings.Contains(strings.ToLower(e.PolicyReason), text))
	}
}

func openIndex(t *testing.T, l Log) (*Index, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ocipd.index.db")
	return openAt(t, l, path), path
}

func openAt(t *testing.T, l Log, path string) *Index {
	t.Helper()
	x := Open(t.Context(), Options{Path: path, Log: l, Now: time.Now, Logger: zap.NewNop()})
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// until waits for a result in the background.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	// A check may search the whole log, so a busy machine checks rarely.
	for wait := time.Millisecond; !is(); wait = min(2*wait, 100*time.Millisecond) {
		select {
		case <-time.After(wait):
		case <-deadline.C:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func indexed(t *testing.T, x *Index, seq uint64) {
	t.Helper()
	until(t, fmt.Sprintf("record %d is indexed, but %d is", seq, x.Indexed()), func() bool { return x.Indexed() >= seq })
}

// collect reads all pages of a query.
func collect(x *Index, f audit.Filter, before uint64, limit int) (lines [][]byte, err error) {
	for {
		page, next, err := x.Query(context.Background(), f, before, limit)
		if err != nil {
			return nil, err
		}
		if len(page) > limit {
			return nil, fmt.Errorf("a page of %d, limit %d", len(page), limit)
		}
		lines = append(lines, page...)
		if next == 0 {
			return lines, nil
		}
		if before != 0 && next >= before {
			return nil, fmt.Errorf("after %d comes %d", before, next)
		}
		before = next
	}
}

func same(got, want [][]byte) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return errors.New("other records, or in another order")
		}
	}
	return nil
}

// randomRecord has values of every member from small sets, so that filters overlap.
func randomRecord(r *rand.Rand, i int) *audit.Record {
	pick := func(name string, n int) string {
		if r.IntN(8) == 0 {
			return ""
		}
		return fmt.Sprint(name, "-", r.IntN(n))
	}
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	reasons := []string{"", "information_query at internal is within policy.data", "Der Größe nach: NEIN", "says \"no\"\nand more", "held for a PERSON"}
	reason := reasons[r.IntN(len(reasons))]
	if r.IntN(3) == 0 {
		reason = fmt.Sprintf("exchange %x-%d is over", r.IntN(1<<20), i)
	}
	return &audit.Record{
		ID: fmt.Sprint("r", i), ActionType: one("agent_exchange", "approval", "delivery", "security"), Side: one("", "sender", "receiver"),
		TenantID: pick("tenant", 2), UserID: pick("user", 5), AgentID: pick("agent", 9), AppID: pick("app", 5),
		Counterparty: audit.Counterparty{InstanceID: pick("agent", 9)}, SessionKey: pick("session", 40),
		ExchangeID: pick("exchange", 1+i/7+1), ConversationID: pick("exchange", 1+i/9+1), ChainID: pick("chain", 300),
		DispatchID: pick("dispatch", 1+i/2), ApprovalID: pick("approval", 60), PolicyApplied: pick("rule", 4),
		PolicyResult: one("", "allow", "deny", "require_approval"), PolicyReason: reason, Code: one("", "", "POLICY_DENIED", "EXCHANGE_CLOSED"),
	}
}

func randomFilter(r *rand.Rand, records int, span time.Duration) audit.Filter {
	var f audit.Filter
	some := func(into *string, value string) {
		if r.IntN(6) == 0 {
			*into = value
		}
	}
	of := func(name string, n int) string { return fmt.Sprint(name, "-", r.IntN(n)) }
	some(&f.Like.ActionType, []string{"agent_exchange", "approval", "delivery", "nothing"}[r.IntN(4)])
	some(&f.Like.Side, []string{"sender", "receiver"}[r.IntN(2)])
	some(&f.Like.AgentID, of("agent", 10))
	some(&f.Like.UserID, of("user", 5))
	some(&f.Like.TenantID, of("tenant", 3))
	some(&f.Like.AppID, of("app", 5))
	some(&f.Like.Counterparty.InstanceID, of("agent", 9))
	some(&f.Like.ConversationID, of("exchange", records/9))
	some(&f.Like.ExchangeID, of("exchange", records/7))
	some(&f.Like.ChainID, of("chain", 300))
	some(&f.Like.DispatchID, of("dispatch", records/2))
	some(&f.Like.ApprovalID, of("approval", 60))
	some(&f.Like.SessionKey, of("session", 40))
	some(&f.Like.PolicyResult, []string{"allow", "deny", "require_approval"}[r.IntN(3)])
	some(&f.Like.Code, []string{"POLICY_DENIED", "EXCHANGE_CLOSED"}[r.IntN(2)])
	some(&f.Text, []string{"größe", "IS OVER", "within policy", fmt.Sprintf("%x-", r.IntN(256)), "\"No\"\nAND", "e", "\xff", "person\xff", "nowhere"}[r.IntN(9)])
	if r.IntN(4) == 0 {
		f.Since = start.Add(time.Duration(r.Int64N(int64(span))))
	}
	if r.IntN(4) == 0 {
		f.Until = start.Add(time.Duration(r.Int64N(int64(span))))
	}
	return f
}
