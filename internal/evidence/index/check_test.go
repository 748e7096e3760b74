package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// compared compares an index with a log.
func compared(t *testing.T, path string, l *memLog) error {
	t.Helper()
	c, err := OpenCheck(path)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return errNone
	}
	for i := l.gone; i < uint64(len(l.lines)); i++ {
		if err := c.Add(i+1, l.lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	return c.Finish()
}

var errNone = errors.New("there is no index to compare")

// Every missing or changed entry of an index is found, even if its counts were corrected.
func TestCheckFindsEveryChange(t *testing.T) {
	l := newLogAt(shardRecords - 1000)
	fill(t, l, 1, rangeRecords+1500)
	x, made := openIndex(t, l)
	indexed(t, x, l.head.Seq)
	if err := compared(t, made, l); err != nil {
		t.Errorf("while it is open: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	denied := audit.Entry{}
	for _, e := range l.entries {
		if e.PolicyResult == audit.ResultDeny && e.Seq > shardRecords {
			denied = e
		}
	}
	var all, others string
	for _, m := range audit.Filters() {
		if value := *m.Of(&denied.Record); value != "" {
			all += " " + token(&m, value)
			if m.Name != "policyResult" {
				others += " " + token(&m, value)
			}
		}
	}
	all, others = rangeToken(rangeOf(denied.Seq))+all, rangeToken(rangeOf(denied.Seq))+others
	dropped := fmt.Sprintf("INSERT INTO terms_1 (terms_1, rowid, terms) VALUES ('delete', %d, '%s');", denied.Seq, all)
	longer := l.upTo(len(l.lines) - 1)
	few := sample(3)
	for name, tc := range map[string]struct {
		script string
		log    *memLog
		bad    bool
		none   bool
	}{
		"nothing":           {log: l},
		"a record":          {script: dropped, log: l, bad: true},
		"one of its terms":  {script: dropped + fmt.Sprintf("INSERT INTO terms_1 (rowid, terms) VALUES (%d, '%s')", denied.Seq, others), log: l, bad: true},
		"a reason":          {script: "UPDATE reasons_1_content SET c0 = 'nothing' WHERE id = (SELECT max(id) FROM reasons_1_content)", log: l, bad: true},
		"a range":           {script: "DELETE FROM ranges WHERE range = 16", log: l, bad: true},
		"its numbers":       {script: "UPDATE ranges SET counts = (SELECT counts FROM ranges WHERE range = 16), records = (SELECT records FROM ranges WHERE range = 16) WHERE range = 17", log: l, bad: true},
		"a subject":         {script: "UPDATE subjects SET agent = agent || 'x'", log: l, bad: true},
		"the file":          {script: "DROP TABLE terms_1", log: l, bad: true},
		"of a longer log":   {log: longer},
		"of another form":   {script: "PRAGMA user_version = 1", log: l, none: true},
		"another program's": {script: "PRAGMA application_id = 1", log: l, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			few(t)
			path := filepath.Join(t.TempDir(), "ocipd.index.db")
			if err := os.WriteFile(path, index, 0o600); err != nil {
				t.Fatal(err)
			}
			change(t, path, tc.script)
			err := compared(t, path, tc.log)
			var fault *audit.Fault
			if errors.As(err, &fault) != tc.bad || errors.Is(err, errNone) != tc.none || err != nil && !tc.bad && !tc.none {
				t.Errorf("%v", err)
			}
		})
	}
	if c, err := OpenCheck(filepath.Join(t.TempDir(), "none.db")); c != nil || err != nil {
		t.Errorf("of no index: %v, %v", c, err)
	}
}
