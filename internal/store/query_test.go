package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// TestQuery compares the pages of random queries with a plain walk.
func TestQuery(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir())
	clock := steadyClock()
	o.Clock = clock
	s := open(t, o)
	defer s.Close()
	start := clock()
	const records = 2*512 + 17
	all := make([][]byte, 0, records)
	for len(all) < records {
		c := new(Change)
		for range min(50, records-len(all)) {
			i := len(all)
			all = append(all, nil)
			c.Records = append(c.Records, &audit.Record{
				ID: fmt.Sprint("r", i), ActionType: audit.ActionExchange, UserID: fmt.Sprint("user-", i%7), Details: map[string]any{"pad": strings.Repeat("x", i%5)},
			})
		}
		commit(t, s, c)
	}
	err := s.EachLine(t.Context(), 0, func(seq uint64, line []byte) error {
		all[seq-1] = bytes.Clone(line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	moment := func() time.Time {
		if r.IntN(3) == 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(r.IntN(50)-5)*time.Second + time.Duration(r.IntN(2)))
	}
	for range 40 {
		f := audit.Filter{Since: moment(), Until: moment()}
		if r.IntN(2) == 0 {
			f.Like.UserID = fmt.Sprint("user-", r.IntN(9))
		}
		before := uint64(r.IntN(records * 5 / 4))
		limit := 20 + r.IntN(records)
		var want [][]byte
		for i := records - 1; i >= 0; i-- {
			if f.Match(all[i]) && (before == 0 || uint64(i+1) < before) {
				want = append(want, all[i])
			}
		}
		var got [][]byte
		for next, pages := before, 0; ; pages++ {
			lines, more, err := s.Query(t.Context(), f, 0, next, limit)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, lines...); more == 0 {
				break
			}
			if f.Like.UserID == "" && len(got) == len(want) {
				t.Fatalf("%+v: after the last record there is more from %d", f, more)
			}
			if len(lines) != limit || pages > records {
				t.Fatalf("%+v: a page of %d, want %d, and more behind it", f, len(lines), limit)
			}
			next = more
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("%+v before %d by %d: %d records, want %d", f, before, limit, len(got), len(want))
		}
	}
	if lines, next, err := s.Query(t.Context(), audit.Filter{}, 0, 0, 0); err != nil || len(lines) != 0 || next != 0 {
		t.Errorf("a page of nothing: %d lines, next %d, %v", len(lines), next, err)
	}
	if lines, next, err := s.Query(t.Context(), audit.Filter{}, 0, 0, records); err != nil || len(lines) != records || next != 0 {
		t.Errorf("a page of everything: %d lines, next %d, %v", len(lines), next, err)
	}
	var walked [][]byte
	for seq := uint64(0); ; {
		lines, upTo, err := s.LinesAfter(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) == 0 {
			if upTo != seq {
				t.Errorf("nothing after %d, but up to %d", seq, upTo)
			}
			break
		}
		walked, seq = append(walked, lines...), upTo
	}
	if !slices.EqualFunc(walked, all, bytes.Equal) {
		t.Errorf("walked over %d records, want %d", len(walked), len(all))
	}
}

func TestSeqAt(t *testing.T) {
	o := options(t.TempDir())
	clock := steadyClock()
	o.Clock = clock
	s := open(t, o)
	defer s.Close()
	if seq, err := s.SeqAt(t.Context(), clock()); err != nil || seq != 0 {
		t.Errorf("of an empty log: %d, %v", seq, err)
	}
	var times []time.Time
	for i := range 20 {
		// All records of one change have one time.
		c := noted(fmt.Sprint(i))
		c.Records = append(c.Records, noted(fmt.Sprint(i, "b")).Records...)
		r := commit(t, s, c)
		times = append(times, r.Time, r.Time)
	}
	for _, at := range times {
		for _, d := range []time.Duration{-1, 0, 1} {
			want := uint64(0)
			for i, recorded := range times {
				if recorded.Before(at.Add(d)) {
					want = uint64(i + 1)
				}
			}
			if got, err := s.SeqAt(t.Context(), at.Add(d)); err != nil || got != want {
				t.Errorf("before %s: got %d, want %d, %v", at.Add(d), got, want, err)
			}
		}
	}
}

func TestLineAndEachLine(t *testing.T) {
	s := openTest(t)
	fill(t, s, 3)
	for _, seq := range []uint64{0, 4, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		if line, err := s.Line(t.Context(), seq); !errors.Is(err, ErrNotFound) {
			t.Errorf("record %d: %s, %v", seq, line, err)
		}
	}
	// A number beyond the database's own must not wrap around to the first.
	for _, after := range []uint64{3, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		visit := func(seq uint64, _ []byte) error { return fmt.Errorf("visited %d", seq) }
		if err := s.EachLine(t.Context(), after, visit); err != nil {
			t.Errorf("after %d: %v", after, err)
		}
		if lines, upTo, err := s.LinesAfter(t.Context(), after); err != nil || len(lines) != 0 || upTo != after {
			t.Errorf("after %d: %d lines up to %d, %v", after, len(lines), upTo, err)
		}
	}
	stop := errors.New("stop")
	n := 0
	err := s.EachLine(t.Context(), 1, func(seq uint64, _ []byte) error {
		if n++; seq == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 2 {
		t.Errorf("got %v after %d visits", err, n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.EachLine(ctx, 0, func(uint64, []byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestSlowAuditorsAreInNobodysWay keeps more visits open than there are connections.
func TestSlowAuditorsAreInNobodysWay(t *testing.T) {
	s := openTest(t)
	fill(t, s, 2)
	gate, visiting, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for range readerCount + 1 {
		go func() {
			done <- s.EachLine(context.Background(), 0, func(seq uint64, _ []byte) error {
				if seq == 1 {
					visiting <- struct{}{}
					<-gate
				}
				return nil
			})
		}()
		<-visiting
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Line(ctx, 1); err != nil {
		t.Errorf("another reader: %v", err)
	}
	close(gate)
	for range readerCount + 1 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestLargeRecords walks over records that fill a page each.
func TestLargeRecords(t *testing.T) {
	s := openTest(t)
	for i := range 5 {
		c := noted(fmt.Sprint(i))
		c.Records[0].Content = strings.Repeat("x", 1<<20-500+100*i)
		commit(t, s, c)
	}
	wantSound(t, s)
	lines, next, err := s.Query(t.Context(), audit.Filter{}, 0, 0, 3)
	if err != nil || len(lines) != 3 || next != 3 {
		t.Errorf("%d lines, next %d, %v", len(lines), next, err)
	}
}

func TestExchangesComeBackAsTheyWere(t *testing.T) {
	s := openTest(t)
	e := exchange("agent-1", "exch-1", "conv-1")
	bare := ocip.Exchange{ID: "exch-2", ConversationID: "exch-2", Agent: "agent-1", Outcome: ocip.Denied}
	commit(t, s, with(sides(e, bare)...))
	for _, want := range []ocip.Exchange{e, bare} {
		got, err := s.Exchange(t.Context(), "agent-1", want.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v, %v", got, want, err)
		}
	}
	e.Outcome, e.Round, e.ExpiresAt = ocip.Escalated, 3, time.Time{}
	commit(t, s, with(sides(e)...))
	if got, err := s.Exchange(t.Context(), "agent-1", e.ID); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("written over: got %+v, want %+v, %v", got, e, err)
	}
	counts, err := s.ExchangeCounts(t.Context())
	if err != nil || counts[ocip.Escalated] != 1 || counts[ocip.Denied] != 1 || len(counts) != 2 {
		t.Errorf("counted %v, %v", counts, err)
	}
}

// TestCountingExchanges has both sides of exchanges in one database, also under
// different ids, and others that only look like it.
func TestCountingExchanges(t *testing.T) {
	s := openTest(t)
	side := func(agent, with, id, conversation string) ocip.Exchange {
		e := exchange(agent, id, conversation)
		e.Counterparty = with
		return e
	}
	for i, test := range []struct {
		name  string
		sides []ocip.Exchange
		want  int
	}{
		{"one of another installation", []ocip.Exchange{side("alice", "eve", "e1", "e1")}, 1},
		{"both sides", []ocip.Exchange{side("alice", "bob", "e2", "e2"), side("bob", "alice", "e2", "e2")}, 1},
		{"a conversation of another name", []ocip.Exchange{side("alice", "bob", "e3", "c3"), side("bob", "alice", "e3", "c3")}, 1},
		{"the receiver has the conversation's id", []ocip.Exchange{side("alice", "bob", "e4", "c4"), side("bob", "alice", "c4", "c4")}, 1},
		{"the sender has it", []ocip.Exchange{side("alice", "bob", "c5", "c5"), side("bob", "alice", "e5", "c5")}, 1},
		{"both have ids of their own", []ocip.Exchange{side("alice", "bob", "e6", "c6"), side("bob", "alice", "f6", "c6")}, 1},
		{"one id, two pairs", []ocip.Exchange{side("alice", "bob", "e7", "e7"), side("carol", "eve", "e7", "e7")}, 2},
		{"one id, two counterparties", []ocip.Exchange{side("alice", "eve", "e8", "e8"), side("eve", "mallory", "e8", "e8")}, 2},
		{"one id, two conversations", []ocip.Exchange{side("alice", "bob", "e9", "c9"), side("bob", "alice", "e9", "d9")}, 2},
	} {
		before := countAll(t, s)
		commit(t, s, with(sides(test.sides...)...))
		if got := countAll(t, s) - before; got != test.want {
			t.Errorf("%d, %s: counted %d, want %d", i, test.name, got, test.want)
		}
	}
}

func countAll(t *testing.T, s *Store) (n int) {
	t.Helper()
	counts, err := s.ExchangeCounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range counts {
		n += count
	}
	return n
}

func TestFindingExchanges(t *testing.T) {
	s := openTest(t)
	own := exchange("alice", "conv-own", "conv-own")
	named := exchange("alice", "exch-1", "conv-named")
	other := exchange("bob", "exch-1", "conv-named")
	// Its id is the conversation of another.
	trap := exchange("alice", "conv-named", "conv-else")
	commit(t, s, with(append(sides(own, named, other, trap),
		Current{Agent: "alice", SessionKey: "telegram:bob", ExchangeID: own.ID},
		Current{Agent: "bob", SessionKey: "telegram:bob", ExchangeID: other.ID},
		Current{Agent: "carol", SessionKey: "telegram:bob", ExchangeID: "gone"},
	)...))
	tests := []struct {
		name string
		find func(context.Context) (ocip.Exchange, error)
		want *ocip.Exchange
	}{
		{"by an id", func(ctx context.Context) (ocip.Exchange, error) { return s.Exchange(ctx, "alice", "exch-1") }, &named},
		{"by an id, other agent", func(ctx context.Context) (ocip.Exchange, error) { return s.Exchange(ctx, "bob", "exch-1") }, &other},
		{"by an id, nobody's", func(ctx context.Context) (ocip.Exchange, error) { return s.Exchange(ctx, "carol", "exch-1") }, nil},
		{"by conversation, its own id", func(ctx context.Context) (ocip.Exchange, error) {
			return s.ExchangeByConversation(ctx, "alice", "conv-own")
		}, &own},
		{"by conversation, another id", func(ctx context.Context) (ocip.Exchange, error) {
			return s.ExchangeByConversation(ctx, "alice", "conv-named")
		}, &named},
		{"by conversation, other agent", func(ctx context.Context) (ocip.Exchange, error) {
			return s.ExchangeByConversation(ctx, "bob", "conv-named")
		}, &other},
		{"by conversation, nobody's", func(ctx context.Context) (ocip.Exchange, error) {
			return s.ExchangeByConversation(ctx, "bob", "conv-own")
		}, nil},
		{"current", func(ctx context.Context) (ocip.Exchange, error) {
			return s.CurrentExchange(ctx, "alice", "telegram:bob")
		}, &own},
		{"current, other agent", func(ctx context.Context) (ocip.Exchange, error) {
			return s.CurrentExchange(ctx, "bob", "telegram:bob")
		}, &other},
		{"current, none", func(ctx context.Context) (ocip.Exchange, error) { return s.CurrentExchange(ctx, "alice", "irc:bob") }, nil},
		{"current, gone", func(ctx context.Context) (ocip.Exchange, error) {
			return s.CurrentExchange(ctx, "carol", "telegram:bob")
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.find(t.Context())
			if tt.want == nil {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, *tt.want) {
				t.Errorf("got %+v, want %+v, %v", got, *tt.want, err)
			}
		})
	}
	commit(t, s, with(Current{Agent: "alice", SessionKey: "telegram:bob", ExchangeID: named.ID}))
	if got, err := s.CurrentExchange(t.Context(), "alice", "telegram:bob"); err != nil || got.ID != named.ID {
		t.Errorf("moved on: got %s, %v", got.ID, err)
	}
}

func TestSessions(t *testing.T) {
	s := openTest(t)
	at := func(n int) time.Time { return time.Date(2026, 3, 13, 10, n, 0, 0, time.UTC) }
	c := with()
	for i := range 6 {
		c.Add(Session{
			Key: fmt.Sprint("s", i), SessionOwner: SessionOwner{AgentID: fmt.Sprint("agent-", i%2)}, ChannelID: fmt.Sprint("channel-", i%3), AccountID: "a", CreatedAt: at(0), LastActiveAt: at(i / 2),
		})
	}
	commit(t, s, c)
	tests := []struct {
		name          string
		filter        SessionFilter
		limit, offset int
		want          string
		total         int
	}{
		{"all, last used first", SessionFilter{}, 10, 0, "s4 s5 s2 s3 s0 s1", 6},
		{"first page", SessionFilter{}, 2, 0, "s4 s5", 6},
		{"second page", SessionFilter{}, 2, 2, "s2 s3", 6},
		{"beyond", SessionFilter{}, 2, 6, "", 6},
		{"agent", SessionFilter{AgentID: "agent-1"}, 10, 0, "s5 s3 s1", 3},
		{"agent and channel", SessionFilter{AgentID: "agent-1", ChannelID: "channel-0"}, 10, 0, "s3", 1},
		{"account", SessionFilter{AccountID: "b"}, 10, 0, "", 0},
		{"active since", SessionFilter{ActiveSince: at(1)}, 10, 0, "s4 s5 s2 s3", 4},
		{"idle since", SessionFilter{IdleSince: at(1)}, 10, 0, "s0 s1", 2},
		{"between", SessionFilter{ActiveSince: at(1), IdleSince: at(2)}, 1, 1, "s3", 2},
		{"quotes", SessionFilter{AgentID: "' OR 1=1 --"}, 10, 0, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, total, err := s.Sessions(t.Context(), tt.filter, tt.limit, tt.offset, nil)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, session := range page {
				keys = append(keys, session.Key)
			}
			if got := strings.Join(keys, " "); got != tt.want || total != tt.total {
				t.Errorf("got %q of %d, want %q of %d", got, total, tt.want, tt.total)
			}
		})
	}
	got, err := s.Session(t.Context(), "s5")
	if err != nil || got != c.Parts[5] {
		t.Errorf("got %+v, want %+v, %v", got, c.Parts[5], err)
	}
	// A touch appears in a list at once.
	s.TouchSession("s0", at(9))
	page, _, err := s.Sessions(t.Context(), SessionFilter{}, 1, 0, nil)
	if err != nil || page[0].Key != "s0" || page[0].MessageCount != 1 {
		t.Errorf("got %+v, %v", page, err)
	}
}

// TestOutboxKeepsItsOrder commits to two queues from many goroutines, and continues after a restart
// with increasing ids.
func TestOutboxKeepsItsOrder(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	ctx := t.Context()
	// The order of decision is the order of the Durable calls.
	decided := map[string][]string{}
	send := func(queue, id string) *Change {
		c := noted(id)
		c.Add(&Message{MessageID: MessageID{Queue: queue}, DispatchID: id, ExpiresAt: time.UnixMilli(1e12).UTC(), Body: []byte("\x00 " + id)})
		c.Durable = func(Receipt) { decided[queue] = append(decided[queue], id) }
		return c
	}
	var last int64
	for round := range 3 {
		done := make(chan error)
		for i := range 30 {
			c := send(fmt.Sprint("q", i%2), fmt.Sprintf("%d-%02d", round, i))
			go func() {
				_, err := s.Commit(c)
				done <- err
			}()
		}
		for range 30 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for _, queue := range []string{"q0", "q1"} {
			page, err := s.Messages(ctx, queue, 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, m := range page {
				got = append(got, m.DispatchID)
				if i > 0 && m.ID <= page[i-1].ID {
					t.Errorf("ids %d and %d", page[i-1].ID, m.ID)
				}
				if string(m.Body) != "\x00 "+m.DispatchID || m.Queue != queue || !m.ExpiresAt.Equal(time.UnixMilli(1e12)) {
					t.Errorf("message %+v", m)
				}
				line, err := s.Line(ctx, m.RecordSeq)
				if err != nil || !bytes.Contains(line, []byte(m.DispatchID)) {
					t.Errorf("message %s names record %d: %s, %v", m.DispatchID, m.RecordSeq, line, err)
				}
			}
			if !slices.Equal(got, decided[queue]) {
				t.Errorf("%s has %v, decided %v", queue, got, decided[queue])
			}
			half, err := s.Messages(ctx, queue, page[4].ID, 3)
			if err != nil || len(half) != 3 || half[0].ID != page[5].ID {
				t.Errorf("a page of %d: %v", len(half), err)
			}
		}
		queues, err := s.Queues(ctx)
		if err != nil || len(queues) != 2 || queues[0].Count != 15*(round+1) {
			t.Fatalf("queues %v, %v", queues, err)
		}
		newest := max(queues[0].Last, queues[1].Last)
		if newest <= last {
			t.Errorf("ids fell from %d to %d", last, newest)
		}
		last = newest
		shut(t, s)
		s = open(t, o)
	}
	var names []string
	for name, err := s.NextQueue(ctx, ""); name != ""; name, err = s.NextQueue(ctx, name) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"q0", "q1"}) {
		t.Errorf("queues %v", names)
	}
	// A receiver that has one message has all before it, and none of another queue.
	page, err := s.Messages(ctx, "q0", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	s.Taken(page[9].MessageID, page[4].MessageID)
	s.Flush()
	left, err := s.Messages(ctx, "q0", 0, 1000)
	if err != nil || len(left) != len(page)-10 || left[0].ID != page[10].ID {
		t.Errorf("%d of %d messages left, %v", len(left), len(page), err)
	}
	if other, err := s.Messages(ctx, "q1", 0, 1000); err != nil || len(other) != 45 {
		t.Errorf("%d messages of the other queue left, %v", len(other), err)
	}
	// A message taken in a change is only that one.
	commit(t, s, &Change{Parts: []Part{Taken{left[1].MessageID}}})
	if now, err := s.Messages(ctx, "q0", 0, 2); err != nil || now[0].ID != left[0].ID || now[1].ID != left[2].ID {
		t.Errorf("left %v, %v", now, err)
	}
	shut(t, s)
}

func TestRunsAndMeta(t *testing.T) {
	s := openTest(t)
	ctx := t.Context()
	run := Run{ID: "run-1", AgentID: "alice", SessionKey: "telegram:bob", QueuedAt: time.UnixMilli(1e12).UTC()}
	commit(t, s, with(run, Meta{"key", []byte{0, 1, 255}}, Meta{"empty", nil}))
	if got, err := s.Run(ctx, "run-1"); err != nil || got != run {
		t.Errorf("got %+v, %v", got, err)
	}
	if value, err := s.Meta(ctx, "key"); err != nil || !bytes.Equal(value, []byte{0, 1, 255}) {
		t.Errorf("got %v, %v", value, err)
	}
	if value, err := s.Meta(ctx, "empty"); err != nil || len(value) != 0 {
		t.Errorf("got %v, %v", value, err)
	}
	commit(t, s, with(EndedRun("run-1"), EndedRun("never"), Meta{"key", []byte("new")}))
	if _, err := s.Run(ctx, "run-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an ended run: %v", err)
	}
	if value, err := s.Meta(ctx, "key"); err != nil || string(value) != "new" {
		t.Errorf("got %q, %v", value, err)
	}
	if _, err := s.Meta(ctx, "never"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// An exchange is encoded by hand and decoded by the JSON library without a loss, whatever its texts
// contain.
func TestExchangeStateIsKept(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	for _, text := range []string{"a", "", "\"\\\n\x00", "ä\u2028ß"} {
		for _, e := range []ocip.Exchange{
			{Type: ocip.InformationQuery, SessionKey: text, Level: ocip.Restricted, OpenedAt: at, UpdatedAt: at},
			{
				Type: ocip.MeetingScheduling, SessionKey: text, Round: 2, MaxRounds: 3, Awaiting: ocip.HumanOnly, AwaitsCommitment: true, ForPerson: true, Approved: true,
				Chain: ocip.Chain{ID: "c" + text, Hops: 2, Path: []string{text, "b"}, StartedAt: ocip.Time{Time: at}}, Level: ocip.Public,
				OpenedAt: at, UpdatedAt: at, Transcript: []ocip.Turn{{Round: 1, Sender: text, Summary: text}, {Round: 2, Sender: "b", Summary: "x"}},
			},
		} {
			text := encodeState(&e)
			var state exchangeState
			if err := json.Unmarshal(text, &state); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got := state.exchange(); !reflect.DeepEqual(got, e) {
				t.Errorf("got %+v, want %+v", got, e)
			}
		}
	}
}
