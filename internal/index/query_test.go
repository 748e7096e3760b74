package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// TestQueryIsAPlainWalk holds random questions, over a log of several blocks and
// a tail, against reading every line: pages of every size, from every place.
func TestQueryIsAPlainWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := newLog()
	records := 2*blockRecords + 3000
	const every = 500 * time.Millisecond
	add := func(n int) {
		for range n {
			i := len(l.lines)
			l.add(t, start.Add(time.Duration(i)*every), randomRecord(r, i))
		}
	}
	add(records)
	x, _ := openIndex(t, l)
	indexed(t, x, uint64(records))
	stopped := func() { // nothing further is indexed
		x.stop()
		<-x.done
	}
	check := func(t *testing.T, n int) {
		t.Helper()
		found := 0
		for range n {
			f := randomFilter(r, len(l.lines), time.Duration(len(l.lines))*every)
			before := uint64(r.IntN(len(l.lines) + len(l.lines)/8))
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
	t.Run("indexed", func(t *testing.T) { check(t, 70) })
	stopped()
	add(2500)
	t.Run("with a tail", func(t *testing.T) { check(t, 35) })
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

// TestEveryMemberIsIndexed asks by each member alone, which must then be found
// without reading lines that do not match.
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
	full.PolicyReason = "the reason"
	filters["Text"] = audit.Filter{Text: "the reason"}
	for i := range blockRecords + 10 {
		r := plain
		if i == 5 || i == blockRecords+5 {
			r = &full
		}
		l.add(t, start, r)
	}
	x, _ := openIndex(t, l)
	indexed(t, x, blockRecords+10)
	for name, f := range filters {
		if terms := filterTerms(&f); name != "Text" && len(terms) != 1 {
			t.Errorf("%s: %d terms", name, len(terms))
		}
		lines, err := collect(x, f, 0, 10)
		if err != nil || len(lines) != 2 {
			t.Errorf("%s: %d records, %v", name, len(lines), err)
		}
	}
}

// TestPageIsBounded asks for what many records look like and none is.
func TestPageIsBounded(t *testing.T) {
	l := newLog()
	for i := range blockRecords + 100 {
		// Each agrees with the two halves of the question, in different parts.
		r := &audit.Record{ID: "r", ActionType: "security", AgentID: "a", PolicyReason: fmt.Sprint("number ", i)}
		l.add(t, start, r)
	}
	x, _ := openIndex(t, l)
	indexed(t, x, blockRecords+100)
	x.files.RLock()
	defer x.files.RUnlock()
	p := &page{x: x, filter: audit.Filter{Like: audit.Record{AgentID: "b"}}, limit: 10}
	at := make([]uint16, blockRecords)
	for i := range at {
		at[i] = uint16(i)
	}
	if err := p.take(t.Context(), 0, at, blockRecords+1); err != nil {
		t.Fatal(err)
	}
	if !p.done || p.looks < pageLooks || p.looks > pageLooks+256 || p.next != blockRecords+1-uint64(p.looks) {
		t.Errorf("looked at %d, next %d, done %v", p.looks, p.next, p.done)
	}
}

// TestManyReasons has more distinct reasons in a block than it keeps, and still
// finds each.
func TestManyReasons(t *testing.T) {
	l := newLog()
	long := fmt.Sprintf("%0700d", 0)
	const records = blockRecords + 50
	for i := range records {
		l.add(t, start, &audit.Record{ID: "r", ActionType: "security", PolicyReason: fmt.Sprint("Reason ", i, " ", long)})
	}
	x, _ := openIndex(t, l)
	indexed(t, x, records)
	for _, i := range []int{0, 3000, 7000, blockRecords - 1, blockRecords, records - 1} {
		f := audit.Filter{Text: fmt.Sprint("reason ", i, " 0")}
		got, err := collect(x, f, 0, 10)
		if err == nil {
			err = same(got, l.want(f, 0))
		}
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d records, %v", f.Text, len(got), err)
		}
	}
}
