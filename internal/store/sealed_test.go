package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// tampered returns the database of a log of ten records after somebody changed it.
func tampered(t *testing.T, script string) *Reader {
	t.Helper()
	o := options(t.TempDir())
	s := open(t, o)
	fill(t, s, 10)
	shut(t, s)
	change(t, o.Path, "DROP TRIGGER records_no_update;"+script)
	r, err := OpenReader(t.Context(), o.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// Every way to read the log returns sealed lines: nobody gets a line that was changed since.
func TestChangedLinesAreGivenToNobody(t *testing.T) {
	for name, script := range map[string]string{
		"changed":              `UPDATE records SET line = replace(line, 'note-4', 'note-7') WHERE seq = 5`,
		"another one's number": `UPDATE records SET line = (SELECT line FROM records WHERE seq = 4) WHERE seq = 5`,
		"no record":            `UPDATE records SET line = 'x' WHERE seq = 5`,
	} {
		t.Run(name, func(t *testing.T) {
			r := tampered(t, script)
			var fault *audit.Fault
			if _, err := r.Line(t.Context(), 5); !errors.As(err, &fault) || fault.Seq != 5 {
				t.Errorf("by its number: %v", err)
			}
			if _, err := r.Lines(t.Context(), []uint64{3, 5}); !errors.As(err, &fault) {
				t.Errorf("with others: %v", err)
			}
			lines, upTo, err := r.LinesAfter(t.Context(), 0)
			if err != nil || upTo != 4 || len(lines) != 4 {
				t.Errorf("the lines before it are %d up to %d, %v", len(lines), upTo, err)
			}
			if _, _, err := r.LinesAfter(t.Context(), 4); !errors.As(err, &fault) {
				t.Errorf("the lines from it on: %v", err)
			}
			for _, id := range []string{"", "note-4", "note-7"} {
				if _, _, err := r.Query(t.Context(), audit.Filter{Like: audit.Record{DispatchID: id}}, 0, 0, 100); !errors.As(err, &fault) {
					t.Errorf("records of %q: %v", id, err)
				}
			}
			seen := 0
			err = r.EachLine(t.Context(), 0, func(uint64, []byte) error { seen++; return nil })
			if !errors.As(err, &fault) || seen != 4 {
				t.Errorf("one after another: %d, %v", seen, err)
			}
		})
	}
}

// The next line does not follow a line whose hash was computed again.
func TestResealedLinesAreGivenToNobody(t *testing.T) {
	line, err := tampered(t, "").Line(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	before, err := audit.HeadOf(line)
	if err != nil {
		t.Fatal(err)
	}
	// The database of another log: its later lines follow another one too.
	forged, _ := before.Seal(nil, before.Time, []byte(`{"id":"x","actionType":"security"}`))
	r := tampered(t, fmt.Sprintf(`UPDATE records SET line = '%s' WHERE seq = 5`, forged))
	var fault *audit.Fault
	if err := r.EachLine(t.Context(), 4, func(uint64, []byte) error { return nil }); !errors.As(err, &fault) || fault.Seq != 6 {
		t.Errorf("oldest first: %v", err)
	}
	if _, _, err := r.Query(t.Context(), audit.Filter{}, 4, 0, 100); !errors.As(err, &fault) || fault.Seq != 5 {
		t.Errorf("newest first: %v", err)
	}
}

// The database refuses to change, remove or replace a record, and to add one where nobody looks.
func TestTriggersGuardRecords(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	fill(t, s, 3)
	shut(t, s)
	conn, err := sqlite.OpenConn(o.Path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, script := range []string{
		`UPDATE records SET line = 'x' WHERE seq = 2`, `DELETE FROM records WHERE seq = 2`, `INSERT OR REPLACE INTO records (seq, line) VALUES (2, 'x')`,
		`REPLACE INTO records (seq, line) VALUES (3, 'x')`, `INSERT INTO records (seq, line) VALUES (0, 'x')`, `INSERT INTO records (seq, line) VALUES (-1, 'x')`,
	} {
		if err := sqlitex.ExecuteTransient(conn, script, nil); err == nil || !strings.Contains(err.Error(), "audit records cannot be") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// Damaged tiles are made again from the records at the next start, and receipts are right then; the
// verifier names them before.
func TestDamagedTilesAreMadeAgain(t *testing.T) {
	t.Parallel()
	o, key := signed(t, t.TempDir())
	s := open(t, o)
	c := &Change{}
	for i := range 1600 {
		c.Records = append(c.Records, noted(fmt.Sprint("note-", i)).Records...)
	}
	commit(t, s, c)
	whole, sizes, roots := make(map[uint64][]byte), make(map[uint64]uint64), make(map[uint64]audit.Hash)
	for _, retired := range []uint64{0, 700} {
		if retired > 0 {
			if _, err := s.Retire(t.Context(), retired); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sign(); err != nil {
			t.Fatal(err)
		}
		root, err := s.RootAt(t.Context(), s.Head().Seq)
		if err != nil {
			t.Fatal(err)
		}
		sizes[retired], roots[retired] = s.Head().Seq, root
		shut(t, s)
		text, err := os.ReadFile(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		whole[retired] = text
		s = open(t, o)
	}
	shut(t, s)
	for name, script := range map[string]string{
		"hashes":            `UPDATE tiles SET hashes = randomblob(8192) WHERE id = 4`,
		"hashes, fewer":     `UPDATE tiles SET hashes = x'00' WHERE id = 4`,
		"a root":            `UPDATE tiles SET root = randomblob(32) WHERE id = 4`,
		"a root, no hash":   `UPDATE tiles SET root = x'00' WHERE id = 4`,
		"one for another":   `UPDATE tiles SET (root, hashes) = (SELECT root, hashes FROM tiles WHERE id = 3) WHERE id = 4`,
		"one missing":       `DELETE FROM tiles WHERE id = 4`,
		"the last missing":  `DELETE FROM tiles WHERE id = 5`,
		"all missing":       `DELETE FROM tiles`,
		"one too many":      `INSERT INTO tiles SELECT 6, root, hashes FROM tiles WHERE id = 4`,
		"one level further": fmt.Sprintf(`INSERT INTO tiles SELECT %d, root, hashes FROM tiles WHERE id = 4`, 1<<56),
	} {
		for retired, from := range whole {
			t.Run(fmt.Sprintf("%s, retired %d", name, retired), func(t *testing.T) {
				o := o
				o.Path = filepath.Join(t.TempDir(), "ocipd.db")
				if err := os.WriteFile(o.Path, from, 0o600); err != nil {
					t.Fatal(err)
				}
				change(t, o.Path, script)
				r, err := OpenReader(t.Context(), o.Path)
				if err != nil {
					t.Fatal(err)
				}
				var fault *audit.Fault
				if err := r.CheckTree(t.Context(), sizes[retired], roots[retired]); !errors.As(err, &fault) {
					t.Errorf("the verifier says %v", err)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				s, err = Open(t.Context(), o)
				if retired > 0 && name == "all missing" {
					if err == nil || !strings.Contains(err.Error(), "restore the database from a backup") {
						t.Errorf("what cannot be made again: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() { shut(t, s) }()
				// A start checks only the tiles that lead to the newest checkpoint and those since.
				err = s.CheckLog(t.Context(), func(context.Context) error { return nil })
				if old := strings.HasPrefix(name, "hashes"); old != errors.As(err, &fault) || !old && err != nil {
					t.Errorf("after the start, the check of everything says %v", err)
				}
				if err != nil {
					shut(t, s)
					s = open(t, o)
				}
				if err := s.CheckTree(t.Context(), sizes[retired], roots[retired]); err != nil {
					t.Errorf("after the start: %v", err)
				}
				if err := s.CheckLog(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Errorf("after the start, the check of everything says %v", err)
				}
				for _, seq := range []uint64{retired + 1, 1025, 1100, 1280, 1281, 1590} {
					receipt, err := s.ProveRecord(t.Context(), seq)
					if err != nil {
						t.Fatal(err)
					}
					line, err := s.Line(t.Context(), seq)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := receipt.Check(line, key.verifier(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// If an old record is edited while the daemon is stopped, the check after a start finds it, and the
// next start is refused.
func TestOldRecordEdited(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit string
		seq  uint64
	}{
		"a record":                 {`UPDATE records SET line = replace(line, 'note-100"', 'note-1OO"') WHERE seq = 101`, 101},
		"a record that is no more": {`DELETE FROM records WHERE seq = 101`, 101},
		"nothing":                  {`UPDATE tiles SET root = root`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := signed(t, t.TempDir())
			s := open(t, o)
			c := &Change{}
			for i := range 900 {
				c.Records = append(c.Records, noted(fmt.Sprint("note-", i)).Records...)
			}
			commit(t, s, c)
			if err := s.Sign(); err != nil {
				t.Fatal(err)
			}
			shut(t, s)
			change(t, o.Path, `DROP TRIGGER records_no_update; DROP TRIGGER records_no_delete; DROP TRIGGER records_no_replace;`+tc.edit)
			s = open(t, o)
			tiles := 0
			err := s.CheckLog(t.Context(), func(context.Context) error { tiles++; return nil })
			shut(t, s)
			var fault *audit.Fault
			if tc.seq == 0 {
				if err != nil || tiles != 6 {
					t.Errorf("of a good log: %v, after %d tiles", err, tiles)
				}
				return
			}
			if !errors.As(err, &fault) || fault.Seq != tc.seq && fault.Seq != tc.seq+1 {
				t.Errorf("it says %v", err)
			}
			if _, err := Open(t.Context(), o); !errors.As(err, &fault) || !strings.Contains(err.Error(), "cannot start on a damaged audit log") {
				t.Errorf("the next start: %v", err)
			}
		})
	}
}

// Records that retention removes during the check of the whole log are not missing.
func TestCheckLogBesideRetention(t *testing.T) {
	t.Parallel()
	o, _ := signed(t, t.TempDir())
	s := open(t, o)
	defer shut(t, s)
	fill(t, s, 1500)
	if err := s.Sign(); err != nil {
		t.Fatal(err)
	}
	tiles := 0
	err := s.CheckLog(t.Context(), func(ctx context.Context) error {
		// Five tiles are compared with each other first, then records with the first of them.
		if tiles++; tiles == 6 {
			_, err := s.Retire(ctx, 1100)
			return err
		}
		return nil
	})
	if err != nil || s.Retired() != 1100 || tiles < 7 {
		t.Errorf("after %d tiles, %d records retired: %v", tiles, s.Retired(), err)
	}
}
