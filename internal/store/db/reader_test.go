package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// readThree returns a reader of three connections.
func readThree(t *testing.T) *Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some.db")
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, "CREATE TABLE some (one)", nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(path, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// held keeps a connection in use until release, and returns it.
func held(t *testing.T, r *Reader) (conn *sqlite.Conn, release func()) {
	t.Helper()
	runs, gate, done := make(chan *sqlite.Conn), make(chan struct{}), make(chan error)
	go func() {
		done <- r.Read(context.Background(), func(conn *sqlite.Conn) error {
			runs <- conn
			<-gate
			return nil
		})
	}()
	return <-runs, func() {
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A query that finds a free connection opens none, and one that finds none free opens one, as long as
// there may be more.
func TestConnectionsAreOpenedWhenNeeded(t *testing.T) {
	r := readThree(t)
	want := func(when string, opened int) {
		t.Helper()
		if now := cap(r.unopened) - len(r.unopened); now != opened {
			t.Errorf("%s, %d connections are open, want %d", when, now, opened)
		}
	}
	want("at the start", 1)
	for range 5 {
		if _, err := Rows(t.Context(), r, "some", "SELECT one FROM some", nil, ScanInt); err != nil {
			t.Fatal(err)
		}
	}
	want("after queries one by one", 1)
	_, first := held(t, r)
	_, second := held(t, r)
	want("during two queries", 2)
	first()
	second()
	r.Shrink()
	for range 5 {
		if _, err := Rows(t.Context(), r, "some", "SELECT one FROM some", nil, ScanInt); err != nil {
			t.Fatal(err)
		}
	}
	want("after queries at once", 2)
}

// A database that cannot be read is noticed at the start, before any query.
func TestUnreadableDatabaseIsNoticedAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.db")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	seals := &Seals{order: []*sealedTable{{name: "some", columns: []sealedColumn{{name: "one"}}}}}
	seals.sealers.New = func() any { return &sealer{} }
	if _, err := NewReader(path, 3, seals); err == nil {
		t.Error("no error")
	}
}

// A query that cannot open a further connection, or could only open one of other files, waits for an
// open one.
func TestQueryWaitsWithoutAFurtherConnection(t *testing.T) {
	for name, prevent := range map[string]func(r *Reader, asked chan<- struct{}){
		"no file is left": func(r *Reader, asked chan<- struct{}) {
			r.open = func() (reading, error) {
				close(asked)
				return reading{}, errors.New("too many open files")
			}
		},
		"the files were moved": func(r *Reader, asked chan<- struct{}) {
			r.Unmoved = func() error {
				close(asked)
				return errors.New("moved")
			}
		},
		"the files were moved meanwhile": func(r *Reader, asked chan<- struct{}) {
			times := 0
			r.Unmoved = func() error {
				if times++; times == 1 {
					return nil
				}
				close(asked)
				return errors.New("moved")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := readThree(t)
			only, release := held(t, r)
			asked, got := make(chan struct{}), make(chan *sqlite.Conn, 1)
			prevent(r, asked)
			done := make(chan error)
			go func() {
				done <- r.Read(context.Background(), func(conn *sqlite.Conn) error {
					got <- conn
					return nil
				})
			}()
			<-asked
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if conn := <-got; conn != only {
				t.Error("the query ran on another connection")
			}
			if len(r.unopened) != 2 {
				t.Errorf("%d connections can be opened later, want 2", len(r.unopened))
			}
		})
	}
}
