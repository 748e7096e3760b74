package store

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var update = flag.Bool("update", false, "write migrations/tables.json anew")

// The file with the tables, which a start compares a database with, is what the migrations make.
func TestTablesAreThoseOfTheMigrations(t *testing.T) {
	made, err := schema().Make()
	if err != nil {
		t.Fatal(err)
	}
	made = append(made, '\n')
	if *update {
		if err := os.WriteFile("migrations/tables.json", made, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(made, tables) {
		t.Fatalf("migrations/tables.json is not what the migrations make: go test ./internal/store -run %s -update writes it anew", t.Name())
	}
}

// A new database, which is made at once, is like one that took every migration: its tables, its
// rows and its version.
func TestNewDatabaseIsLikeAMigratedOne(t *testing.T) {
	content := func(s *db.Schema) map[string]int {
		path := filepath.Join(t.TempDir(), "db")
		claim, err := s.Claim(path)
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Close()
		w, err := db.OpenWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := s.Migrate(w); err != nil {
			t.Fatal(err)
		}
		content := make(map[string]int)
		var queries []string
		read := func(query string, row func(*sqlite.Stmt)) {
			if err := sqlitex.ExecuteTransient(w.Conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
				row(stmt)
				return nil
			}}); err != nil {
				t.Fatal(query, err)
			}
		}
		keep := func(query string) func(*sqlite.Stmt) {
			return func(stmt *sqlite.Stmt) {
				row := query
				for column := range stmt.ColumnCount() {
					row += "|" + stmt.ColumnType(column).String() + " " + stmt.ColumnText(column)
				}
				content[row]++
			}
		}
		read(`SELECT name FROM sqlite_schema WHERE type = 'table'`, func(stmt *sqlite.Stmt) { queries = append(queries, "SELECT * FROM "+stmt.ColumnText(0)) })
		queries = append(queries, "PRAGMA user_version", "PRAGMA application_id", "SELECT type, name, tbl_name, sql FROM sqlite_schema")
		for _, query := range queries {
			read(query, keep(query))
		}
		return content
	}
	made, migrated := content(schema()), content(&db.Schema{Application: applicationID, Steps: migrations})
	for row := range maps.Keys(migrated) {
		if made[row] != migrated[row] {
			t.Errorf("migrations make %d times, and a new database has %d times: %s", migrated[row], made[row], row)
		}
		delete(made, row)
	}
	for row := range maps.Keys(made) {
		t.Errorf("a new database alone has %s", row)
	}
	if len(migrated) < 60 {
		t.Errorf("%d rows were compared", len(migrated))
	}
}
