package taskstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/test/buildtest"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// form1 is a store that a version has left which wrote rows of form 1: without the columns bound and unsettled of
// tasks, and token and holder of grants. Its log ends with a record behind the last checkpoint. It has a task in
// progress, one that has ended and of which an effect can be undone, and a grant that is held.
func form1(t *testing.T, script string) (o store.Options, key string) {
	t.Helper()
	content := buildtest.Gunzip(t, "testdata/form1.db.gz")
	o, _ = signed(t, 9)
	if err := os.WriteFile(o.Path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	edit(t, o.Path, script)
	// Its name is that of the log.
	_, key, err := note.GenerateKey(bytes.NewReader(make([]byte, 64)), "ocipd/018f0000-0000-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return o, key
}

// signed are the options of a store that signs its log with a key that is no secret, as the fixture was, and where the
// public key is to be had once it was opened. Its ids have a number of their own.
func signed(t *testing.T, number int) (o store.Options, public *string) {
	t.Helper()
	ids := 0
	public = new(string)
	return store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop(), Signing: &logstore.Signing{
		NewID: func() string { ids++; return fmt.Sprintf("018f0000-0000-7000-%d000-%012d", number, ids) },
		Open: func(name, _ string) (note.Signer, string, error) {
			secret, key, err := note.GenerateKey(bytes.NewReader(make([]byte, 64)), name)
			if err != nil {
				return nil, "", err
			}
			*public = key
			signer, err := note.NewSigner(secret)
			return signer, key, err
		},
	}}, public
}

func edit(t *testing.T, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// verified is what a verifier says of a store, and the one of the page.
func verified(t *testing.T, path, key string) (differences []fold.Difference, problem string, lines [][]byte) {
	t.Helper()
	r, err := store.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	replay := fold.NewReplay()
	err = r.EachLine(t.Context(), 0, func(seq uint64, line []byte) error {
		lines = append(lines, slices.Clone(line))
		return replay.Add(seq, line)
	})
	if err == nil {
		differences, err = r.UnlikeTheLog(t.Context(), replay)
	}
	if err != nil {
		t.Fatal(err)
	}
	return differences, buildtest.VerifyPy(t, key, lines, path), lines
}

// A log of form 1 verifies, and so do the rows that its daemon left. The next start compares the rows with what that
// daemon has counted, and then has the log state them with all columns, once.
func TestRowsOfFormOneAreTakenUp(t *testing.T) {
	o, key := form1(t, `SELECT 1`)
	want := func(when string) (lines [][]byte) {
		t.Helper()
		differences, problem, lines := verified(t, o.Path, key)
		if len(differences) > 0 || problem != "" {
			t.Errorf("%s: %v, verify.py: %s", when, differences, problem)
		}
		return lines
	}
	want("as it was left")
	for range 2 {
		s, err := store.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, &Task{ID: "two", Tenant: "acme", Phase: "executing", Open: true, Seq: 1, Was: 0, Head: []byte("{}")})
		mustPut(t, s, &Task{ID: "two", Tenant: "acme", Phase: "completed", Seq: 2, Was: 1, Head: []byte("{}")})
		if err := errors.Join(s.Sign(), s.Close()); err != nil {
			t.Fatal(err)
		}
		edit(t, o.Path, `DELETE FROM tasks WHERE id = 'two'`)
	}
	adopted := 0
	for _, line := range want("taken up") {
		if bytes.Contains(line, []byte(`"event":"state_adopted"`)) {
			adopted++
			for _, part := range []string{`"key":["done"]`, `"unsettled":1`, `"bound":`, `"token":"dG9rZW4"`, `"holder":"`} {
				if !bytes.Contains(line, []byte(part)) {
					t.Errorf("it lacks %s: %s", part, line)
				}
			}
		}
	}
	if adopted != 1 {
		t.Errorf("rows were adopted %d times", adopted)
	}
	// From then on, all columns are compared.
	edit(t, o.Path, `DELETE FROM task_deps`)
	if _, err := store.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "task one: the row says bound") {
		t.Errorf("the start says %v", err)
	}
	if _, problem, _ := verified(t, o.Path, key); !strings.Contains(problem, "tasks one: the row says bound") {
		t.Errorf("verify.py says %q", problem)
	}
}

// A row that is not as the daemon of form 1 left it is found by both verifiers and by the start.
func TestEditedRowsOfFormOneAreFound(t *testing.T) {
	for script, want := range map[string]string{
		`UPDATE tasks SET phase = 'ready_to_resume' WHERE id = 'one'`:                "one: the row says phase",
		`UPDATE tasks SET phase = 'ready_to_resume', is_open = 1 WHERE id = 'done'`:  "done: ",
		`UPDATE effects SET body = json_set(body, '$.state', 'done') WHERE id = 'e'`: "one: the row says parts",
		`UPDATE grants SET body = json_set(body, '$.role', 'orchestrator')`:          "g: the row says role",
		`DELETE FROM grants`: "g: ",
	} {
		o, key := form1(t, script)
		differences, problem, _ := verified(t, o.Path, key)
		if len(differences) != 1 || !strings.Contains(differences[0].String(), want) || !strings.Contains(problem, want) {
			t.Errorf("%s: %v, verify.py: %s", script, differences, problem)
		}
		if _, err := store.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "cannot migrate the store: row ") {
			t.Errorf("%s: the start says %v", script, err)
		}
	}
}
