package logreader

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

func TestLastLines(t *testing.T) {
	for _, test := range []struct {
		limit, count int
		want         string
		dropped      bool
	}{
		{0, 3, "", true}, {3, 0, "", false}, {3, 2, "0 1", false}, {3, 3, "0 1 2", false}, {3, 7, "4 5 6", true}, {1, 5, "4", true},
	} {
		l := lastLines{limit: test.limit}
		line := make([]byte, 1)
		for n := range test.count {
			line[0] = byte('0' + n)
			l.add(line)
		}
		if got := string(bytes.Join(l.ordered(), []byte(" "))); got != test.want || l.dropped != test.dropped {
			t.Errorf("the last %d of %d are %q (dropped %t), want %q", test.limit, test.count, got, l.dropped, test.want)
		}
	}
}

// A file of a mirror is read without its database: from any record on, up to an incomplete line
// after a crash, and no further than its chain is correct.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var whole []byte
	var head audit.Head
	for n := range 5 {
		r := &audit.Record{ID: fmt.Sprint("r", n), ActionType: audit.ActionExchange, PolicyResult: []string{audit.ResultAllow, audit.ResultDeny}[n%2]}
		body, err := audit.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		whole, head = head.Seal(whole, time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC), body)
		whole = append(whole, '\n')
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))[:5]
	for _, test := range []struct {
		name string
		text []byte
		// after is the start of the reading, and want the numbers that are visited.
		after uint64
		want  string
		says  string
	}{
		{"whole", whole, 0, "1 2 3 4 5", ""},
		{"behind a record", whole, 3, "4 5", ""},
		{"a copy that begins later", bytes.Join(lines[2:], nil), 0, "3 4 5", ""},
		{"torn", whole[:len(whole)-1], 0, "1 2 3 4", ""},
		{"empty", nil, 0, "", ""},
		{"one missing", slices.Concat(lines[0], lines[2]), 0, "1", "ocipd audit verify says more"},
		{"no log", []byte("nothing\n"), 0, "", "ocipd audit verify says more"},
	} {
		if err := os.WriteFile(path, test.text, 0o600); err != nil {
			t.Fatal(err)
		}
		var seen []string
		left, err := OpenPath(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = left.EachLine(t.Context(), test.after, func(seq uint64, _ []byte) error {
			seen = append(seen, fmt.Sprint(seq))
			return nil
		})
		if got := strings.Join(seen, " "); got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: seen %q, %v", test.name, got, err)
		}
	}

	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	left, from, err := OpenLeft(t.Context(), filepath.Join(t.TempDir(), "none.db"), path)
	if err != nil || from != path {
		t.Fatalf("%s, %v", from, err)
	}
	search := SearchLeft(left, audit.Filter{Like: audit.Record{PolicyResult: audit.ResultAllow}})
	first, next, err := search.Most(t.Context(), 0, 2)
	if err != nil || len(first) != 2 || next != 3 || !bytes.Contains(first[0], []byte(`"seq":5`)) {
		t.Errorf("the last two are %q, then %d, %v", first, next, err)
	}
	if rest, next, err := search.Most(t.Context(), next, 2); err != nil || len(rest) != 1 || next != 0 {
		t.Errorf("before them are %q, then %d, %v", rest, next, err)
	}
	stats, err := Count(t.Context(), left, time.Time{}, time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC), time.Minute)
	if err != nil || stats.Verdicts.Allow != 3 || stats.Verdicts.Deny != 2 {
		t.Errorf("counted: %+v, %v", stats, err)
	}
	if _, _, err := OpenLeft(t.Context(), "", filepath.Join(t.TempDir(), "none.jsonl")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is none: %v", err)
	}
	broken := errors.New("no more")
	if err := left.EachLine(t.Context(), 0, func(uint64, []byte) error { return broken }); !errors.Is(err, broken) || err.Error() != "no more" {
		t.Errorf("a visit's error is %v", err)
	}
}
