package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// book is a log in memory. Books of one name have the same records.
type book struct {
	name string
	mu   sync.Mutex
	// lines are the records from first on.
	lines [][]byte
	first uint64
	head  audit.Head
	news  chan struct{}
	err   error
	// page is the number of lines that are returned at once.
	page int
}

func newBook(name string, records int) *book {
	b := &book{name: name, first: 1, news: make(chan struct{}), page: 512}
	b.add(records)
	return b
}

// bookStart is the time of the first record. They are a second apart.
var bookStart = time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)

func (b *book) add(records int) {
	for range records {
		b.addAt(time.Time{}, "")
	}
}

// addAt adds a record with a time, or one second after the one before it.
func (b *book) addAt(at time.Time, content string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at.IsZero() {
		at = bookStart.Add(time.Duration(b.head.Seq) * time.Second)
	}
	body, err := audit.Encode(&audit.Record{
		ID: fmt.Sprint(b.name, "-", b.head.Seq+1), ActionType: audit.ActionSecurity, DispatchID: strings.Repeat("d", int(b.head.Seq*7%60)), Content: content,
	})
	if err != nil {
		panic(err)
	}
	var line []byte
	line, b.head = b.head.Seal(nil, at, body)
	b.lines = append(b.lines, line)
	close(b.news)
	b.news = make(chan struct{})
}

// retire removes records like retention.
func (b *book) retire(upTo uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines, b.first = b.lines[upTo+1-b.first:], upTo+1
}

func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *book) Head() audit.Head {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head
}

func (b *book) WaitAfter(ctx context.Context, seq uint64) error {
	for {
		b.mu.Lock()
		news, last := b.news, b.head.Seq
		b.mu.Unlock()
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

func (b *book) LinesAfter(ctx context.Context, seq uint64) ([][]byte, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := cmpErr(ctx.Err(), b.err); err != nil {
		return nil, seq, err
	}
	if seq >= b.head.Seq {
		return nil, seq, nil
	}
	from := max(seq+1, b.first) - b.first
	to := min(from+uint64(b.page), uint64(len(b.lines)))
	return b.lines[from:to], b.first + to - 1, nil
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// text returns records in the form of a file.
func (b *book) text(first, last uint64) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text []byte
	for seq := first; seq <= last; seq++ {
		text = append(append(text, b.lines[seq-b.first]...), '\n')
	}
	return text
}

func (b *book) all() []byte { return b.text(b.first, b.Head().Seq) }

// options returns those of a mirror in dir that rotates about every ten records.
func options(dir string, b *book) Options {
	return Options{
		Path: filepath.Join(dir, "audit.jsonl"), Source: b, Clock: time.Now, Log: zap.NewNop(), RotateBytes: 4000, eager: true,
	}
}

func openTest(tb testing.TB, o Options) *Mirror {
	tb.Helper()
	m, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// shut closes a mirror for a later open.
func shut(tb testing.TB, m *Mirror) {
	tb.Helper()
	if err := m.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// eventually waits for the result of another goroutine.
func eventually(tb testing.TB, what string, ready func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-limit.C:
			tb.Fatalf("it did not happen in time: %s", what)
		}
	}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// rest waits until a mirror has written and compressed everything.
func rest(tb testing.TB, m *Mirror) {
	tb.Helper()
	eventually(tb, "the mirror rests", func() bool {
		s := m.Status()
		return s.Mirrored == m.o.Source.Head().Seq && s.Pending == 0
	})
}

// walked returns the lines that Walk visits.
func walked(path string, from uint64) ([]byte, error) {
	var text []byte
	err := Walk(path, from, func(line []byte) error {
		text = append(append(text, line...), '\n')
		return nil
	})
	return text, err
}

// wantWhole checks that the files contain the records from first to the last one, and that the
// segments match the manifest.
func wantWhole(tb testing.TB, o Options, first uint64) {
	tb.Helper()
	b := o.Source.(*book)
	got, err := walked(o.Path, 0)
	if want := b.text(first, b.Head().Seq); err != nil || !bytes.Equal(got, want) {
		tb.Errorf("the files hold %d bytes, the log %d from record %d on: %v", len(got), len(want), first, err)
	}
	l := newLayout(o.Path)
	listed, err := l.readManifest()
	if err != nil {
		tb.Error(err)
	}
	for _, s := range listed {
		if s.Retired {
			continue
		}
		got, err := examine(tb.Context(), l.path(s.File), true)
		if err != nil || !got.same(s) {
			tb.Errorf("segment %s: %+v, listed as %+v: %v", s.File, got, s, err)
		}
	}
}

// wantFaults checks that a mirror reports exactly the faults that contain the texts.
func wantFaults(tb testing.TB, m *Mirror, parts ...string) {
	tb.Helper()
	problems := m.Status().Problems
	for _, part := range parts {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, part) }) {
			tb.Errorf("nothing about %q in %q", part, problems)
		}
	}
	if len(parts) == 0 && len(problems) > 0 {
		tb.Errorf("unexpected: %q", problems)
	}
}

// names lists a directory.
func names(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list
}

// matching counts the names of a directory that contain a text.
func matching(tb testing.TB, dir, part string) int {
	tb.Helper()
	return len(slices.DeleteFunc(names(tb, dir), func(n string) bool { return !strings.Contains(n, part) }))
}

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func write(tb testing.TB, path string, text []byte) {
	tb.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// nth returns the end of the nth line.
func nth(text []byte, n int) int {
	end := 0
	for range n {
		end += bytes.IndexByte(text[end:], '\n') + 1
	}
	return end
}

// faultOf returns the audit fault in an error.
func faultOf(err error) *audit.Fault {
	var fault *audit.Fault
	errors.As(err, &fault)
	return fault
}
