package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/metrics"
)

// whole returns a change with parts of every kind.
func whole(id, run string) *Change {
	e := exchange("agent-"+id, id, "conv-"+id)
	return &Change{
		Records: []*audit.Record{{ID: id, ActionType: audit.ActionExchange, DispatchID: id}, {ID: id + "-2", ActionType: audit.ActionDelivery, DispatchID: id}},
		Parts: []Part{
			&Exchange{Exchange: e},
			Current{Agent: e.Agent, SessionKey: e.SessionKey, ExchangeID: e.ID},
			Session{Key: "s:" + id, SessionOwner: SessionOwner{AgentID: e.Agent}, CreatedAt: e.OpenedAt, LastActiveAt: e.OpenedAt},
			&Message{MessageID: MessageID{Queue: "q:" + id}, DispatchID: id, Body: []byte(id)},
			Run{ID: run, AgentID: e.Agent, SessionKey: e.SessionKey, QueuedAt: e.OpenedAt},
			Meta{Key: "m:" + id, Value: []byte(id)},
		},
	}
}

// present reports which parts of such a change are there.
func present(t *testing.T, s *Store, id string) (parts []string) {
	t.Helper()
	ctx := t.Context()
	add := func(part string, err error) {
		switch {
		case err == nil:
			parts = append(parts, part)
		case !errors.Is(err, ErrNotFound):
			t.Fatalf("%s: %v", part, err)
		}
	}
	lines, _, err := s.Query(ctx, audit.Filter{Like: audit.Record{DispatchID: id}}, 0, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for range lines {
		parts = append(parts, "record")
	}
	_, err = s.Exchange(ctx, "agent-"+id, id)
	add("exchange", err)
	_, err = s.CurrentExchange(ctx, "agent-"+id, "telegram:bob")
	add("current", err)
	_, err = s.Session(ctx, "s:"+id)
	add("session", err)
	if page, err := s.Messages(ctx, "q:"+id, 0, 10); err != nil {
		t.Fatal(err)
	} else if len(page) > 0 {
		parts = append(parts, "message")
	}
	_, err = s.Meta(ctx, "m:"+id)
	add("meta", err)
	return parts
}

var everything = []string{"record", "record", "exchange", "current", "session", "message", "meta"}

// TestCommitIsAllOrNothing puts one change that cannot be written among others
// into one batch: it fails alone, and leaves nothing.
func TestCommitIsAllOrNothing(t *testing.T) {
	s := openTest(t)
	commit(t, s, whole("first", "run-1"))
	const bad = "bad-4"
	for _, at := range []int{0, 3, 7} {
		t.Run(fmt.Sprint("at place ", at), func(t *testing.T) {
			release := hold(t, s)
			var mu sync.Mutex
			var durable []string
			outcome := make(map[string]error)
			var group sync.WaitGroup
			var ids []string
			for i := range 8 {
				id, run := fmt.Sprintf("good-%d-%d", at, i), fmt.Sprintf("run-%d-%d", at, i)
				if i == at {
					id, run = bad, "run-1"
				}
				c := whole(id, run)
				c.Durable = func(Receipt) {
					mu.Lock()
					defer mu.Unlock()
					durable = append(durable, id)
				}
				group.Go(func() {
					r, err := s.Commit(c)
					if err != nil && r.Seq != 0 {
						t.Errorf("%s failed with receipt %+v", id, r)
					}
					mu.Lock()
					defer mu.Unlock()
					outcome[id] = err
				})
				ids = append(ids, id)
				eventually(t, "it waits", func() bool { return s.waitingChanges() == i+1 })
			}
			before := s.Head().Seq
			release()
			group.Wait()
			for _, id := range ids {
				want := everything
				if id == bad {
					want = nil
				}
				if (outcome[id] == nil) != (id != bad) {
					t.Errorf("%s: %v", id, outcome[id])
				}
				if got := present(t, s, id); !slices.Equal(got, want) {
					t.Errorf("%s left %v, want %v", id, got, want)
				}
			}
			// Changes of one batch stay in their order.
			if want := slices.Delete(slices.Clone(ids), at, at+1); !slices.Equal(durable, want) {
				t.Errorf("durable in the order %v, want %v", durable, want)
			}
			if got := s.Head().Seq; got != before+2*7 {
				t.Errorf("%d records more, want 14", got-before)
			}
			wantSound(t, s)
		})
	}
	if run, err := s.Run(t.Context(), "run-1"); err != nil || run.AgentID != "agent-first" {
		t.Errorf("the run that was there first: %+v, %v", run, err)
	}
	if s.Latched() != nil {
		t.Errorf("a caller's fault closed the store: %v", s.Latched())
	}
}

func TestCommitRefusesWhatCannotBeEncoded(t *testing.T) {
	s := openTest(t)
	_, err := s.Commit(&Change{
		Records: []*audit.Record{{ID: "1"}, {ID: "2", Content: "a\xffb"}},
		Durable: func(Receipt) { t.Error("released") },
	})
	if err == nil {
		t.Error("committed")
	}
	if s.Head().Seq != 0 {
		t.Errorf("%d records", s.Head().Seq)
	}
}

// TestCommitsSideBySide commits from many goroutines. Every receipt belongs to its caller, whatever
// other changes were in the batch.
func TestCommitsSideBySide(t *testing.T) {
	s := openTest(t)
	const callers, each = 16, 40
	var mu sync.Mutex
	owner := make(map[uint64]string)
	var order []uint64
	var group sync.WaitGroup
	for g := range callers {
		group.Go(func() {
			var last uint64
			for i := range each {
				id := fmt.Sprintf("%d-%d", g, i)
				c := noted(id)
				c.Records = append(c.Records, noted(id+"-more").Records...)
				var told Receipt
				c.Durable = func(r Receipt) {
					told = r
					// No lock: callbacks run one after another.
					order = append(order, r.Seq)
				}
				r, err := s.Commit(c)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Seq != told.Seq || !r.Time.Equal(told.Time) || r.Seq <= last || s.Head().Seq < r.Seq+1 {
					t.Errorf("%s: receipt %+v, told %+v, after %d", id, r, told, last)
				}
				last = r.Seq
				mu.Lock()
				if before := owner[r.Seq]; before != "" {
					t.Errorf("record %d is of %s and of %s", r.Seq, before, id)
				}
				owner[r.Seq] = id
				mu.Unlock()
				// Committed data can be read at once.
				line, err := s.Line(context.Background(), r.Seq)
				if err != nil {
					t.Error(err)
					return
				}
				if e, err := audit.Parse(line); err != nil || e.ID != id || !e.Time.Equal(r.Time) {
					t.Errorf("record %d is %s of %s, want %s of %s: %v", r.Seq, e.ID, e.Time, id, r.Time, err)
				}
			}
		})
	}
	group.Wait()
	if s.Head().Seq != callers*each*2 || len(owner) != callers*each {
		t.Errorf("%d records of %d changes", s.Head().Seq, len(owner))
	}
	if !slices.IsSorted(order) || len(order) != callers*each {
		t.Errorf("%d callbacks, in commit order: %v", len(order), slices.IsSorted(order))
	}
	wantSound(t, s)
}

func TestCommitWaitsNoLongerThanItsLimit(t *testing.T) {
	o := options(t.TempDir())
	o.Wait = 20 * time.Millisecond
	s := open(t, o)
	defer s.Close()
	release := hold(t, s)
	late := noted("late")
	late.Durable = func(Receipt) { t.Error("released") }
	if _, err := s.Commit(late); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	release()
	fill(t, s, 1)
	if s.Head().Seq != 2 {
		t.Errorf("%d records: the change that was given up was written", s.Head().Seq)
	}
}

// TestCloseWaitsForEverything closes while the writer is busy and other changes wait.
func TestCloseWaitsForEverything(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	s := open(t, o)
	release := hold(t, s)
	const company = 20
	done := make(chan error, company)
	for i := range company {
		go func() {
			_, err := s.Commit(noted(fmt.Sprint("waiting-", i)))
			done <- err
		}()
	}
	eventually(t, "all wait", func() bool { return s.waitingChanges() == company })
	s.TouchSession("nobody", time.Now())
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	eventually(t, "it closes", func() bool { return s.waitingChanges() == company+1 })
	if _, err := s.Commit(noted("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("a late change: got %v, want %v", err, ErrClosed)
	}
	release()
	for range company {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := s.Line(context.Background(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("read afterwards: got %v, want %v", err, ErrClosed)
	}
	if err := s.WaitAfter(context.Background(), 99); !errors.Is(err, ErrClosed) {
		t.Errorf("waited afterwards: got %v, want %v", err, ErrClosed)
	}
	s = open(t, o)
	defer s.Close()
	if s.Head().Seq != company+1 {
		t.Errorf("%d records, want %d", s.Head().Seq, company+1)
	}
	wantSound(t, s)
}

// TestCloseOutlastsASlowCommit keeps the writer busy for longer than a change
// may wait: the connection must not be closed under it.
func TestCloseOutlastsASlowCommit(t *testing.T) {
	o := options(t.TempDir())
	o.Wait = time.Millisecond
	s := open(t, o)
	release := hold(t, s)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed under a commit: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCloseWhileOthersRead closes under readers that never stop asking.
func TestCloseWhileOthersRead(t *testing.T) {
	s := open(t, options(t.TempDir()))
	fill(t, s, 5)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				_, _, err := s.Query(context.Background(), audit.Filter{}, 0, 0, 3)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	shut(t, s)
	group.Wait()
}

func TestWaitAfter(t *testing.T) {
	s := openTest(t)
	got := make(chan error, 1)
	go func() { got <- s.WaitAfter(context.Background(), 1) }()
	fill(t, s, 1)
	select {
	case err := <-got:
		t.Fatalf("returned before there was a second record: %v", err)
	default:
	}
	fill(t, s, 1)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := s.WaitAfter(context.Background(), 1); err != nil {
		t.Errorf("with a record there already: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitAfter(ctx, 99); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestTouchesRideAlong expects touches to become durable with the next commit, or by themselves
// soon after.
func TestTouchesRideAlong(t *testing.T) {
	s := openTest(t)
	at := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	c := whole("a", "run-a")
	c.Add(Session{Key: "telegram:bob", SessionOwner: SessionOwner{AgentID: "agent-a"}})
	commit(t, s, c)
	s.Taken(messageOf(c).MessageID)
	commit(t, s, noted("ride"))
	if page, err := s.Messages(t.Context(), "q:a", 0, 10); err != nil || len(page) != 0 {
		t.Errorf("%d messages after the next commit: %v", len(page), err)
	}
	// Out of order, as goroutines may be.
	s.TouchSession("telegram:bob", at.Add(2*time.Second))
	s.TouchSession("telegram:bob", at.Add(time.Second))
	s.TouchSession("never seen", at)
	got, err := s.FreshSession(t.Context(), "telegram:bob")
	if err != nil || got.MessageCount != 2 || !got.LastActiveAt.Equal(at.Add(2*time.Second)) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := s.Session(t.Context(), "never seen"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a session nobody opened: %v", err)
	}
	// Without any other commit, it is written all the same.
	s.TouchSession("telegram:bob", at.Add(time.Minute))
	d := whole("b", "run-b")
	commit(t, s, d)
	s.Taken(messageOf(d).MessageID)
	eventually(t, "flushed", func() bool {
		session, err := s.Session(t.Context(), "telegram:bob")
		page, pageErr := s.Messages(t.Context(), "q:b", 0, 10)
		return err == nil && pageErr == nil && session.MessageCount == 3 && len(page) == 0
	})
	if s.Head().Seq != 5 {
		t.Errorf("touches made records: %d", s.Head().Seq)
	}
}

// TestTouchesSurviveAFailedCommit rides on a batch that cannot be written. A caller that asks for
// fresh numbers gets them all the same.
func TestTouchesSurviveAFailedCommit(t *testing.T) {
	s := openTest(t)
	c := whole("a", "run-1")
	commit(t, s, c)
	release := hold(t, s)
	s.TouchSession("s:a", time.Now())
	s.Taken(messageOf(c).MessageID)
	bad := make(chan error, 1)
	go func() {
		_, err := s.Commit(whole("b", "run-1"))
		bad <- err
	}()
	eventually(t, "the bad one waits", func() bool { return s.waitingChanges() == 1 })
	fresh := make(chan Session, 1)
	go func() {
		session, err := s.FreshSession(context.Background(), "s:a")
		if err != nil {
			t.Error(err)
		}
		fresh <- session
	}()
	eventually(t, "both wait", func() bool { return s.waitingChanges() == 2 })
	release()
	if err := <-bad; err == nil {
		t.Error("the bad change was written")
	}
	if got := <-fresh; got.MessageCount != 1 {
		t.Errorf("%d messages counted, want 1", got.MessageCount)
	}
	if page, err := s.Messages(t.Context(), "q:a", 0, 10); err != nil || len(page) != 0 {
		t.Errorf("%d messages left: %v", len(page), err)
	}
}

// TestTouchesOfAFailedTransaction drives the touches by hand: a commit that fails at its very end
// gives back its touches, merged with newer ones.
func TestTouchesOfAFailedTransaction(t *testing.T) {
	s := openTest(t)
	at := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	touches := &s.touches
	s.TouchSession("a", at)
	s.TouchSession("b", at)
	s.Taken(MessageID{Queue: "q", ID: 7})
	touches.rush()
	if taken, sessions := touches.due(at); len(taken) != 1 || len(sessions) != 2 {
		t.Fatalf("due: %v and %v", taken, sessions)
	}
	s.TouchSession("a", at.Add(-time.Second))
	s.TouchSession("c", at)
	s.Taken(MessageID{Queue: "q", ID: 5}, MessageID{Queue: "r", ID: 9})
	touches.restore()
	taken, sessions := touches.due(at)
	if len(taken) != 2 || taken["q"] != 7 || taken["r"] != 9 {
		t.Errorf("due again: %v", taken)
	}
	if len(sessions) != 3 || sessions["a"] != (touch{at, 2}) || sessions["b"] != (touch{at, 1}) {
		t.Errorf("due again: %v", sessions)
	}
	touches.forget()
	touches.rush()
	if taken, sessions := touches.due(at); len(taken) != 0 || len(sessions) != 0 {
		t.Errorf("due after it was written: %v and %v", taken, sessions)
	}
	touches.restore()
}

// A commit that makes nothing durable makes no fsync, and its duration says nothing of the disk: a
// probe, a query that finds nothing to flush, the removal of a message that is gone already.
func TestOnlyDurableCommitsAreTimed(t *testing.T) {
	o := options(t.TempDir())
	o.Metrics = metrics.New(metrics.Words{})
	s := open(t, o)
	defer s.Close()
	timed := func(what string, want uint64, do func()) {
		t.Helper()
		before := commitsTimed(t, o.Metrics)
		do()
		if got := commitsTimed(t, o.Metrics) - before; got != want {
			t.Errorf("%s: %d commits are timed, want %d", what, got, want)
		}
	}
	m := &Message{MessageID: MessageID{Queue: "agent:a"}, DispatchID: "d", Body: []byte(`{}`)}
	timed("a record", 1, func() { commit(t, s, noted("first")) })
	timed("no record, a value", 1, func() { commit(t, s, &Change{Parts: []Part{Meta{Key: "k", Value: []byte("v")}}}) })
	timed("a message", 1, func() { commit(t, s, with(m)) })
	timed("it is taken", 1, func() { commit(t, s, &Change{Parts: []Part{Taken{m.MessageID}}}) })
	timed("it was taken", 0, func() { commit(t, s, &Change{Parts: []Part{Taken{m.MessageID}}}) })
	timed("nothing", 0, func() {
		for range 20 {
			commit(t, s, &Change{})
		}
	})
	timed("queries", 0, func() {
		for range 20 {
			if _, _, err := s.Sessions(t.Context(), SessionFilter{}, 1, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	commit(t, s, with(Session{Key: "telegram:dave"}))
	timed("a query with something to be written first", 1, func() {
		s.TouchSession("telegram:dave", time.UnixMilli(1))
		if found, _, err := s.Sessions(t.Context(), SessionFilter{}, 1, 0, nil); err != nil || len(found) != 1 || found[0].MessageCount != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
	})
}

func commitsTimed(t *testing.T, s *metrics.Set) uint64 {
	t.Helper()
	families, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "ocipd_commit_duration_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("commits are not timed")
	return 0
}

// The id of an exchange that redaction takes out of its record gets into no row of the record
// either: nothing is committed.
func TestNoCredentialIsAnID(t *testing.T) {
	o := options(t.TempDir())
	o.Redact = func(r *audit.Record) { r.ConversationID = strings.ReplaceAll(r.ConversationID, "AKIA", "[redacted]") }
	s := open(t, o)
	defer shut(t, s)
	e := exchange("agent-alice-1", "e1", "AKIA")
	before := s.Head().Seq
	record := &audit.Record{ID: "x", ActionType: audit.ActionExchange, ExchangeID: "e1", ConversationID: "AKIA"}
	if _, err := s.Commit(&Change{Records: []*audit.Record{record}, Parts: []Part{&Exchange{Exchange: e}}}); !errors.Is(err, ErrCredential) || s.Head().Seq != before {
		t.Errorf("committing: %v, records from %d to %d", err, before, s.Head().Seq)
	}
}
