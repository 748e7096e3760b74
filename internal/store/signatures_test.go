package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"github.com/openclawos/ocipd/test/buildtest"
	"golang.org/x/mod/sumdb/note"
	"zombiezen.com/go/sqlite"
)

// A signature counts once, also in two changes that wait for one transaction, and after somebody has
// deleted its row while the daemon runs.
func TestSignatureCountsOnce(t *testing.T) {
	o := foldOptions(t)
	s := open(t, o)
	defer shut(t, s)
	u := UsedSignature{SignedGrant("g"), someTime.Add(time.Hour)}
	results := make(chan error, 2)
	release := hold(t, s)
	for range cap(results) {
		go func() {
			_, err := s.Commit(with(u))
			results <- err
		}()
	}
	eventually(t, "both wait", func() bool { return s.waitingChanges() == cap(results) })
	release()
	if one, other := <-results, <-results; (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), ErrSignatureUsed) {
		t.Errorf("they end with %v and %v", one, other)
	}
	change(t, o.Path, `DELETE FROM used_signatures`)
	if _, err := s.Commit(with(u)); !errors.Is(err, ErrSignatureUsed) {
		t.Errorf("used once more: %v", err)
	}
	commit(t, s, with(UsedSignature{Act: SignedGrant("other")}))
}

// form2 is a store of a version that counted no used signatures. Its log has four pre-approvals: in-force;
// revoked; gone, which was revoked and whose row somebody has deleted; and over, which ended after a
// minute. It also has a settlement with a signature, one without, and a record after the last checkpoint.
func form2(t *testing.T) (o Options, public *string) {
	t.Helper()
	content := buildtest.Gunzip(t, "testdata/form2.db.gz")
	o, _ = signed(t, t.TempDir())
	o.Clock = func() time.Time { return someTime.Add(2 * time.Minute) }
	ids := 0
	o.Signing.NewID = func() string { ids++; return fmt.Sprintf("018f0000-0000-7000-9000-%012d", ids) }
	public = new(string)
	o.Signing.Open = func(name, _ string) (note.Signer, string, error) {
		secret, key, err := note.GenerateKey(bytes.NewReader(make([]byte, 64)), name)
		if err != nil {
			return nil, "", err
		}
		*public = key
		signer, err := note.NewSigner(secret)
		return signer, key, err
	}
	if err := os.WriteFile(o.Path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return o, public
}

// The first start on a log of form 2 finds in the log which signatures were used, also that of a
// pre-approval without a row, has them on record, and reads the log for that only once. It succeeds too
// if it was interrupted before.
func TestSignaturesOfFormTwoCountOnce(t *testing.T) {
	o, public := form2(t)
	verified := func() (lines [][]byte) {
		t.Helper()
		r, err := OpenReader(t.Context(), o.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		replay := fold.NewReplay()
		err = r.EachLine(t.Context(), 0, func(seq uint64, line []byte) error {
			lines = append(lines, slices.Clone(line))
			return replay.Add(seq, line)
		})
		if err != nil {
			t.Fatal(err)
		}
		differences, err := r.UnlikeTheLog(t.Context(), replay)
		if problem := buildtest.VerifyPy(t, *public, lines, o.Path); err != nil || len(differences) > 0 || len(replay.Problems()) > 0 || problem != "" {
			t.Errorf("%v, %v, %v, verify.py: %s", differences, replay.Problems(), err, problem)
		}
		return lines
	}
	// A start that makes the rows, and ends before it has the log count them.
	unsigned := o
	unsigned.Signing = nil
	shut(t, open(t, unsigned))
	for range 2 {
		s := open(t, o)
		want := []string{"pre-approval gone", "pre-approval in-force", "pre-approval revoked", "settlement sha256:77"}
		var got []string
		for _, key := range OpenRows(s, fold.UsedSignatures) {
			got = append(got, key[0])
		}
		if !slices.Equal(got, want) {
			t.Errorf("used are %q, want %q", got, want)
		}
		for _, act := range append(want, "pre-approval over") {
			if _, err := s.Commit(with(UsedSignature{Act: act, Until: someTime.Add(time.Hour)})); !errors.Is(err, ErrSignatureUsed) {
				t.Errorf("%s: %v", act, err)
			}
		}
		wantFold(t, s)
		shut(t, s)
	}
	adopted := 0
	for _, line := range verified() {
		if bytes.Contains(line, []byte(`"event":"state_adopted"`)) {
			adopted++
			for _, part := range []string{`"key":["pre-approval gone"]`, `"key":["settlement sha256:77"]`} {
				if !bytes.Contains(line, []byte(part)) {
					t.Errorf("it lacks %s: %s", part, line)
				}
			}
		}
	}
	if adopted != 1 {
		t.Errorf("rows were adopted %d times", adopted)
	}
	change(t, o.Path, `DELETE FROM used_signatures WHERE id = 'pre-approval gone'`)
	if got := faultOf(t, o); !strings.Contains(got, "used signature pre-approval gone: there is no such row") && !strings.Contains(got, "used_signatures") {
		t.Errorf("the start says %q", got)
	}
	r, err := OpenReader(t.Context(), o.Path)
	if err != nil {
		t.Fatal(err)
	}
	path := o.Path + ".new"
	made, err := r.Rebuild(t.Context(), path, make([]byte, 32))
	if err := errors.Join(err, r.Close()); err != nil || len(made.Left) > 0 || len(made.Differed) != 1 {
		t.Errorf("%s differed, left are %s, %v", foldrows.Words(made.Differed), foldrows.Words(made.Left), err)
	}
	o.Path = path
	s := open(t, o)
	defer shut(t, s)
	if n, err := db.Row(t.Context(), s.db, "the rows", `SELECT count(*) FROM used_signatures WHERE id = 'pre-approval gone'`, nil, db.ScanText); err != nil || n != "1" {
		t.Errorf("%s rows, %v", n, err)
	}
}

// The work for a signature does not grow with the log or with the number of signatures: the guard finds the
// row by its key, and no record is read. The rows that matter at a start are found by their end.
func TestSignatureIsFoundByItsKey(t *testing.T) {
	s := open(t, foldOptions(t))
	defer shut(t, s)
	for query, want := range map[string]string{
		usedQuery: "USING PRIMARY KEY (id=?)",
		`SELECT id FROM main.used_signatures WHERE until = 0 OR until > ?`: "used_signatures_until (until=?)",
	} {
		plans(t, s, query, []any{1}, want)
	}
}

// plans checks how SQLite runs a query: it uses an index, and reads no table whole.
func plans(t *testing.T, s *Store, query string, args []any, want string) {
	t.Helper()
	plan, err := db.Rows(t.Context(), s.db, "the plan", "EXPLAIN QUERY PLAN "+query, args, func(stmt *sqlite.Stmt) (string, error) {
		return stmt.ColumnText(3), nil
	})
	if got := strings.Join(plan, "\n"); err != nil || !strings.Contains(got, want) || strings.Contains(strings.ReplaceAll(got, "SCAN CONSTANT ROW", ""), "SCAN") {
		t.Errorf("%s: the plan is %q, %v", query, got, err)
	}
}

// The list of one agent's requests reads no requests of others.
func TestRequestsOfAnAgentAreFoundByIt(t *testing.T) {
	s := open(t, foldOptions(t))
	defer shut(t, s)
	count, list, args := summariesOf(ApprovalFilter{State: "pending", Agent: "alice"})
	plans(t, s, count, args, "approvals_agent (agent=? AND state=?")
	plans(t, s, list, append(args, "", 10), "approvals_agent (agent=? AND state=? AND id>?")
}
