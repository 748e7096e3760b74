package store

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"github.com/openclawos/ocipd/test/buildtest"
)

// The documentation's program checks the rows of records against the log, and with the key of the
// rows every seal. It knows the form of the seals from its page alone.
func TestIndependentVerifierOfADatabase(t *testing.T) {
	key := filepath.Join(t.TempDir(), "rows.json")
	other := filepath.Join(t.TempDir(), "rows.json")
	for path, secret := range map[string][]byte{key: make([]byte, 32), other: []byte(strings.Repeat("k", 32))} {
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"key":%q}`, base64.StdEncoding.EncodeToString(secret)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var everything []string
	for _, sealed := range rowseal.Tables() {
		everything = append(everything, fmt.Sprintf(`UPDATE %s SET seal = x'00'`, sealed.Name))
	}
	// Of the store's own values, one more stays: the id of the key.
	everything = append(everything, `DELETE FROM meta WHERE key NOT IN ('row-key', 'text 1 0')`)
	const guards = "DROP TRIGGER records_no_update; DROP TRIGGER records_no_delete; DROP TRIGGER records_no_replace;"
	for name, test := range map[string]struct {
		edit, key string
		want      []string
	}{
		"nothing":                    {"", key, nil},
		"nothing, without the key":   {"", "", nil},
		"counters":                   {`UPDATE sessions SET message_count = 7; UPDATE spent SET count = 7; UPDATE tasks SET blocked = 7`, key, nil},
		"another key":                {"", other, []string{"not sealed with that key"}},
		"a row of every table":       {strings.Join(everything, ";"), key, []string{"app_processes 1001: it has no seal", fmt.Sprintf("; and %d more", len(everything)+5-10)}},
		"not seen without the key":   {`UPDATE owed SET value = 'x'`, "", nil},
		"a text":                     {`UPDATE owed SET value = 'x'`, key, []string{"owed text 1 0 text 1 1: it has no seal"}},
		"a number":                   {`UPDATE owed SET until = until + 1`, key, []string{"owed "}},
		"bytes":                      {`UPDATE meta SET value = x'00' WHERE key = 'text 1 0'`, key, []string{"meta text 1 0: "}},
		"the name of a column":       {`ALTER TABLE owed RENAME COLUMN value TO wert`, key, []string{"owed "}},
		"a seal taken away":          {`UPDATE owed SET seal = x''`, key, []string{"owed "}},
		"a record":                   {guards + `UPDATE records SET line = replace(line, 'note-4', 'note-7') WHERE seq = 5`, "", []string{"two records of this number"}},
		"the line of another record": {guards + `UPDATE records SET line = (SELECT line FROM records WHERE seq = 4) WHERE seq = 5`, "", []string{"two records of this number"}},
		"a record's seal":            {guards + `UPDATE records SET seal = (SELECT seal FROM records WHERE seq = 4) WHERE seq = 5`, key, []string{"record 5 of the database: it has no seal"}},
		"a record gone":              {guards + `DELETE FROM records WHERE seq = 5`, "", []string{"the database does not hold it"}},
		"the end gone":               {guards + `DELETE FROM records WHERE seq > 5`, "", []string{"the database ends before it"}},
		"the first one gone":         {guards + `DELETE FROM records WHERE seq = 1`, "", []string{"the database does not hold it"}},
		"a record more":              {guards + `INSERT INTO records (seq, line) SELECT max(seq) + 1, line FROM records`, "", []string{"another record under this number"}},
		"a record of number zero":    {guards + `INSERT INTO records (seq, line) VALUES (0, 'x')`, "", []string{"a row of records with the number 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, keys := signed(t, t.TempDir())
			s := open(t, o)
			fill(t, s, 10)
			for table, columns := range columnsOf(t, o.Path) {
				if slices.ContainsFunc(rowseal.Tables(), func(sealed db.SealedTable) bool { return sealed.Name == table }) {
					commit(t, s, with(aRow(table, columns, 1)))
				}
			}
			if err := s.Sign(); err != nil {
				t.Fatal(err)
			}
			lines := linesOf(t, s)
			shut(t, s)
			change(t, o.Path, test.edit)
			var options []string
			if test.key != "" {
				options = []string{"--row-key", test.key}
			}
			got := buildtest.VerifyPy(t, keys.public, lines, o.Path, options...)
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("verify.py says %q, want %q", got, want)
				}
			}
			// No record states the rows, so the open ones of them differ from the log.
			const open = "escalations text 1 2: it is open, and no record says so; paused text 1 0: it is open, and no record says so; tasks text 1 0: it is open, and no record says so; lanes text 1 0: it is open, and no record says so; app_processes text 1 1 text 1 2: it is open, and no record says so"
			if test.want == nil && got != open {
				t.Errorf("verify.py says %q", got)
			}
		})
	}
}

// A log that lacks the last records of its database is completed from there, and they are checked.
func TestIndependentVerifierOfAMirrorBehind(t *testing.T) {
	o, keys := signed(t, t.TempDir())
	s := open(t, o)
	fill(t, s, 10)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	lines := linesOf(t, s)
	shut(t, s)
	if got := buildtest.VerifyPy(t, keys.public, lines[:4], o.Path); got != "" {
		t.Errorf("verify.py says %q", got)
	}
	rechained(t, o.Path, 7, "note-", "text-")
	if got := buildtest.VerifyPy(t, keys.public, lines[:4], o.Path); got == "" {
		t.Error("verify.py finds nothing")
	}
}
