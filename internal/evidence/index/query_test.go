package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// TestQueryIsAPlainWalk compares random queries, over a log of several blocks and a tail, with
// reading every line: pages of every size, from every place.
func TestQueryIsAPlainWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := newLogAt(shardRecords - 5000)
	const records = 10_000
	const every = 500 * time.Millisecond
	add := func(n int) {
		for range n {
			i := len(l.lines)
			l.add(t, start.Add(time.Duration(i)*every), randomRecord(r, i))
		}
	}
	add(records)
	x, _ := openIndex(t, l)
	indexed(t, x, l.head.Seq)
	stopped := func() { // nothing further is indexed
		x.loop.Stop()
	}
	check := func(t *testing.T, n int) {
		t.Helper()
		found := 0
		for range n {
			f := randomFilter(r, len(l.lines), time.Duration(len(l.lines))*every)
			before := l.gone + uint64(r.IntN(records+records/8))
			if r.IntN(2) == 0 {
				before = 0
			}
			want := l.want(f, before)
			found += len(want)
			limit := []int{1, 2, 7, 100, 1000}[r.IntN(5)]
			if len(want) > 300 {
				limit = max(limit, 100)
			}
			got, err := collect(x, f, before, limit)
			if err == nil {
				err = same(got, want)
			}
			if err != nil {
				t.Fatalf("%+v before %d by %d: %v", f, before, limit, err)
			}
		}
		if found == 0 {
			t.Error("no question found anything")
		}
	}
	t.Run("indexed", func(t *testing.T) { check(t, fewer(70)) })
	stopped()
	add(1500)
	t.Run("with a tail", func(t *testing.T) { check(t, fewer(35)) })
	t.Run("with no file", func(t *testing.T) {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		check(t, 8)
	})
	if lines, next, err := x.Query(t.Context(), audit.Filter{}, 0, 0); err != nil || len(lines) != 0 || next != 0 {
		t.Errorf("a page of nothing: %d lines, next %d, %v", len(lines), next, err)
	}
}

// TestEveryMemberIsIndexed queries each member alone. The result must be found without reading
// lines that do not match.
func TestEveryMemberIsIndexed(t *testing.T) {
	l := newLog()
	plain := &audit.Record{ID: "r", ActionType: "security", PolicyReason: "plain"}
	full := *plain
	filters := make(map[string]audit.Filter)
	for _, m := range audit.Filters() {
		var f audit.Filter
		*m.Of(&full), *m.Of(&f.Like) = "the "+m.Name, "the "+m.Name
		filters[m.Name] = f
	}
	full.PolicyReason, full.Outcome = "the reason", "an outcome"
	filters["not indexed"] = audit.Filter{Like: audit.Record{Outcome: "an outcome", AgentID: "the agentId"}}
	filters["Text"] = audit.Filter{Text: "the reason"}
	const records = 3000
	for i := range records {
		r := plain
		if i == 5 || i == records-5 {
			r = &full
		}
		l.add(t, start, r)
	}
	x, _ := openIndex(t, l)
	indexed(t, x, records)
	for name, f := range filters {
		l.mu.Lock()
		l.looks = 0
		l.mu.Unlock()
		lines, err := collect(x, f, 0, 10)
		if err != nil || len(lines) != 2 {
			t.Errorf("%s: %d records, %v", name, len(lines), err)
		}
		l.mu.Lock()
		if l.looks != 2 {
			t.Errorf("%s: %d records were read", name, l.looks)
		}
		l.mu.Unlock()
	}
}

// TestPageIsBounded queries for a text that many records seem to have and none has.
func TestPageIsBounded(t *testing.T) {
	l := newLog()
	const records = 3000
	for i := range records {
		l.add(t, start, &audit.Record{ID: "r", ActionType: "security", AgentID: "a", PolicyReason: fmt.Sprint("number ", i)})
	}
	x, _ := openIndex(t, l)
	indexed(t, x, records)
	// The pieces of the text are in every reason, but no reason has the text.
	for _, f := range []audit.Filter{{Text: "er 1n"}, {Like: audit.Record{AgentID: "a"}, Text: "zu"}} {
		p := &page{x: x, filter: f, limit: 10}
		var err error
		for seq := uint64(records); seq > 0 && err == nil; seq-- {
			err = p.consider(t.Context(), seq)
		}
		if !errors.Is(err, errDone) || !p.done || p.looks < pageLooks || p.looks > pageLooks+256 || p.next != records+1-uint64(p.looks) {
			t.Errorf("looked at %d, next %d, done %v", p.looks, p.next, p.done)
		}
		if lines, err := collect(x, f, 0, 10); err != nil || len(lines) != 0 {
			t.Errorf("%d records, %v", len(lines), err)
		}
	}
}

// TestManyReasons has more distinct reasons than one query takes, more than are read, and some that
// are not stored. Each is still found.
func TestManyReasons(t *testing.T) {
	l := newLog()
	long := strings.Repeat("x", longestReason)
	const records = 2*reasonsMost + 500
	for i := range records {
		reason := fmt.Sprintf("Reason %d of many", i)
		switch {
		case i%1000 == 0:
			reason += long
		case i%17 == 0:
			reason += " \x00 QUOTE\" OR"
		}
		l.add(t, start.Add(time.Duration(i)*time.Second), &audit.Record{ID: "r", ActionType: "security", AgentID: fmt.Sprint(i % 3), PolicyReason: reason})
	}
	x, _ := openIndex(t, l)
	indexed(t, x, records)
	for _, f := range []audit.Filter{
		{Text: "reason 4096 of"}, {Text: "REASON 0 of"}, {Text: "reason"}, {Text: "x"}, {Text: "quote\" or"}, {Text: "\x00 q"}, {Text: "n 3000 of manyxxxx"},
		{Text: "reason", Like: audit.Record{AgentID: "2"}}, {Text: "1", Like: audit.Record{AgentID: "1"}}, {Text: "quote", Like: audit.Record{AgentID: "0"}}, {Text: "nothing"},
	} {
		got, err := collect(x, f, 0, 100)
		if err == nil {
			err = same(got, l.want(f, 0))
		}
		if err != nil {
			t.Errorf("%q: %d records, %v", f.Text, len(got), err)
		}
	}
}

// FuzzText compares a text search in reasons with a plain search.
func FuzzText(f *testing.F) {
	f.Add("Der Größe nach: NEIN", "größe")
	f.Add("a \"b\" AND c", "b\" and")
	f.Add("\x00\uFFFD\uFFFE x", "\uFFFE x")
	f.Add("aaaaaaaaaa", "aaaa")
	f.Add("İstanbul ǅ", "istanbul")
	f.Fuzz(func(t *testing.T, reason, text string) {
		reason, text = strings.ToValidUTF8(reason, "?"), strings.ToValidUTF8(text, "?")
		if reason == "" || len(reason) > longestReason {
			t.Skip()
		}
		conn, err := sqlite.OpenConn(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := sqlitex.ExecuteScript(conn, fmt.Sprintf(schema, applicationID, form()), nil); err != nil {
			t.Fatal(err)
		}
		s, err := openShard(conn, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := s.reason(reason)
		if err != nil {
			t.Fatal(err)
		}
		tokens, few, err := findReasons(conn, 0, searched(text))
		if err != nil {
			t.Fatal(err)
		}
		found := !few || slices.Contains(tokens, kept)
		if want := strings.Contains(audit.Fold(reason), audit.Fold(text)); want && !found {
			t.Errorf("%q is not found in %q", text, reason)
		}
	})
}
