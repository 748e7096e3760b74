package db

import (
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
)

// If a transaction cannot be written at its very end, the error says what failed, and nothing is
// left of it.
func TestTogetherSaysWhatFailed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	claim, err := (&Schema{}).Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, statement := range []string{
		"PRAGMA foreign_keys = ON", "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
		"CREATE TABLE children (of INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)",
	} {
		if err := w.Run(statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	err = w.Together(func() error { return w.Run("INSERT INTO children VALUES (1)") })
	if err == nil || !strings.HasPrefix(err.Error(), "cannot write the transaction: ") || sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		t.Errorf("it fails with %v", err)
	}
	if n, err := w.Scalar("the children", "SELECT count(*) FROM children"); n != 0 || err != nil {
		t.Errorf("%d rows are left, %v", n, err)
	}
}
