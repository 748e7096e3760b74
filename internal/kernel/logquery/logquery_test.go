package logquery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// fakeLines is a log of which a page has two records.
type fakeLines struct {
	head atomic.Uint64
	// grew wakes who waits.
	grew chan struct{}
}

func (f *fakeLines) Head() audit.Head { return audit.Head{Seq: f.head.Load()} }

func (f *fakeLines) LinesAfter(_ context.Context, seq uint64) (lines [][]byte, upTo uint64, err error) {
	for upTo = seq; upTo < min(f.head.Load(), seq+2); upTo++ {
		lines = append(lines, fmt.Append(nil, upTo+1))
	}
	return lines, upTo, nil
}

func (f *fakeLines) WaitAfter(ctx context.Context, seq uint64) error {
	for f.head.Load() <= seq {
		select {
		case <-f.grew:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sent notes when which chunks were sent.
type sent struct {
	begun  time.Time
	groups []string
}

func (s *sent) Send(_ context.Context, chunks ...any) error {
	if len(chunks) > 0 {
		s.groups = append(s.groups, fmt.Sprintf("%s %s", time.Since(s.begun), chunks))
	}
	return nil
}

// TestTailGathers follows a log to which a record is added each 15 ms, 100 ms after the stream began: the
// first comes at once, and each group 40 ms after the one before. What was there comes without a pause.
func TestTailGathers(t *testing.T) {
	for gather, want := range map[int][]string{
		0:  {"0s [1 2]", "0s [3 4]", "100ms [5]", "115ms [6]", "130ms [7]", "145ms [8]"},
		40: {"0s [1 2]", "0s [3 4]", "100ms [5]", "140ms [6 7]", "180ms [8]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			lines, after := &fakeLines{grew: make(chan struct{})}, uint64(0)
			lines.head.Store(4)
			feed, err := (&Log{Lines: lines, Instance: instances(nil)}).Tail(t.Context(), &api.AuditTailParams{After: &after, Follow: true, Gather: gather})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			got := &sent{begun: time.Now()}
			ended := make(chan error)
			go func() { ended <- feed(ctx, got) }()
			<-time.After(100 * time.Millisecond)
			for range 4 {
				lines.head.Add(1)
				select {
				case lines.grew <- struct{}{}:
				default: // the stream gathers
				}
				<-time.After(15 * time.Millisecond)
			}
			<-time.After(time.Second)
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			if !slices.Equal(got.groups, want) {
				t.Errorf("with %d ms: %q, want %q", gather, got.groups, want)
			}
		})
	}
}

// instances finds the instance ids of agents.
func instances(of map[string]string) func(string) string {
	return func(name string) string { return of[name] }
}

// searched keeps the filter of a search.
type searched struct{ filter audit.Filter }

func (s *searched) Query(_ context.Context, f audit.Filter, _ uint64, _ int) ([][]byte, uint64, error) {
	s.filter = f
	return nil, 0, nil
}

// TestAgentsByName has a filter name an agent and a counterparty by the names of the configuration, or by
// their instance ids, in a search and in a stream.
func TestAgentsByName(t *testing.T) {
	lines, search := &fakeLines{}, &searched{}
	log := &Log{Lines: lines, Search: search, Instance: instances(map[string]string{"alice": "agent-alice-1", "bob": "agent-bob-1"})}
	for name, want := range map[string]string{"alice": "agent-alice-1", "agent-alice-1": "agent-alice-1", "nobody": "nobody", "": ""} {
		filter := audit.Filter{Like: audit.Record{AgentID: name, Counterparty: audit.Counterparty{InstanceID: "bob"}}}
		for way, ask := range map[string]func() error{
			"search": func() error { _, err := log.Query(t.Context(), &api.AuditQueryParams{Filter: filter}); return err },
			"stream": func() error {
				_, err := log.Tail(t.Context(), &api.AuditTailParams{Filter: filter, Last: 1})
				return err
			},
		} {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			if got := search.filter.Like; got.AgentID != want || got.Counterparty.InstanceID != "agent-bob-1" {
				t.Errorf("the %s by agent %q is by %q and counterparty %q", way, name, got.AgentID, got.Counterparty.InstanceID)
			}
		}
	}
}
