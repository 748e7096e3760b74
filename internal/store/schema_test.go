package store

import (
	"bytes"
	"flag"
	"os"
	"testing"
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
