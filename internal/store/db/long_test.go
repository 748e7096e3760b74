package db

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// However many long queries are asked for, one runs, and short ones wait for none.
func TestLongQueriesLeaveConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.db")
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, "CREATE TABLE some (one)", nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(path, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	runs, gate, done := make(chan struct{}, 8), make(chan struct{}), make(chan error)
	for range 8 {
		go func() {
			done <- r.Long(context.Background(), func(*sqlite.Conn) error {
				runs <- struct{}{}
				<-gate
				return nil
			})
		}()
	}
	<-runs
	if _, err := Rows(t.Context(), r, "some", "SELECT one FROM some", nil, ScanInt); err != nil {
		t.Errorf("a short query: %v", err)
	}
	if len(runs) > 0 {
		t.Error("two long queries run at once")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := r.Long(gone, func(*sqlite.Conn) error { return errors.New("it runs") }); !errors.Is(err, context.Canceled) {
		t.Errorf("who has left is answered %v", err)
	}
	close(gate)
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Long(t.Context(), func(*sqlite.Conn) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("once closed: %v", err)
	}
}
