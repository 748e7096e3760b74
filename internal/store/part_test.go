package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// with returns a change of parts and one record.
func with(parts ...Part) *Change {
	return &Change{Records: []*audit.Record{{ID: "p", ActionType: audit.ActionSecurity}}, Parts: parts}
}

var someTime = time.Date(2026, 3, 13, 10, 0, 30, 0, time.UTC)

// count returns how many rows a table has.
func count(tb testing.TB, s *Store, table string) (n int) {
	tb.Helper()
	err := s.db.Read(tb.Context(), func(conn *sqlite.Conn) error {
		return sqlitex.ExecuteTransient(conn, `SELECT count(*) FROM `+table, &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error { n = stmt.ColumnInt(0); return nil },
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// read calls a reading function that must not fail.
func read[A, T any](tb testing.TB, of func(context.Context, A) (T, error), arg A) T {
	tb.Helper()
	one, err := of(tb.Context(), arg)
	if err != nil {
		tb.Fatal(err)
	}
	return one
}

// State changes only together with a record, so that nothing depends on a row that the log does not
// know.
func TestPartNeedsARecord(t *testing.T) {
	s := openTest(t)
	part := Owed{Agent: "a", Counterparty: "b", Value: "{}"}
	for name, c := range map[string]*Change{
		"alone": {Parts: []Part{part}}, "with a meta": {Parts: []Part{part, Meta{"k", nil}}},
		"as an alarm": {Parts: []Part{part}, Alarm: true}, "with an alarm's record": {Parts: []Part{part}, Records: with().Records, Alarm: true},
		"as what drains": {Parts: []Part{part}, Drains: true}, "as a person's": {Parts: []Part{part}, Last: true},
		"behind what needs none": {Parts: []Part{Dropped("k"), Taken{{Queue: "q", ID: 1}}, part}, Drains: true},
	} {
		if _, err := s.Commit(c); !errors.Is(err, ErrUnrecorded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Owed(t.Context(), "a", "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after refusals: %v", err)
	}
	commit(t, s, with(part))
	if got, err := s.Owed(t.Context(), "a", "b"); err != nil || got != part {
		t.Errorf("kept %+v, %v", got, err)
	}
}

// A change with a part that cannot be written is not written at all, and other changes are not lost
// by it.
func TestPartIsAllOrNothing(t *testing.T) {
	s := openTest(t)
	release := hold(t, s)
	good, bad := with(Paused{Scope: "all", At: someTime, By: "o"}), with(Owed{Agent: "a", Counterparty: "b", Value: "{}"}, badPart{})
	results := make(chan error, 2)
	for _, c := range []*Change{good, bad} {
		go func() { _, err := s.Commit(c); results <- err }()
	}
	eventually(t, "both wait", func() bool { return s.waitingChanges() == 2 })
	release()
	first, second := <-results, <-results
	if (first == nil) == (second == nil) {
		t.Fatalf("%v, %v", first, second)
	}
	if _, err := s.Owed(t.Context(), "a", "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("half a change: %v", err)
	}
	if got, err := s.Paused(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("paused: %v, %v", got, err)
	}
	wantSound(t, s)
}

// badPart cannot be written.
type badPart struct{}

func (badPart) prepare() (int, error) { return 0, nil }
func (badPart) put(tx *transaction) error {
	return tx.Exec("nothing", `INSERT INTO nowhere VALUES (1)`)
}

func TestPartIsBounded(t *testing.T) {
	s := openTest(t)
	long := strings.Repeat("x", 1<<20)
	for _, p := range []Part{
		AppProcess{Name: long}, AppProcess{App: long}, Brought{SessionKey: long}, Brought{Account: long}, Brought{Members: map[string]string{"target": long}},
		Owed{Value: long}, Owed{Agent: long}, Spent{Scope: long}, Paused{Scope: long}, Paused{By: long},
		Speaker{Place: long}, Speaker{Account: long}, Speaker{By: long}, Speaker{Identity: ocip.Identity{InstanceID: long}},
	} {
		if _, err := s.Commit(with(p)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%T: %v", p, err)
		}
	}
	if s.Head().Seq != 0 {
		t.Errorf("%d records of refusals", s.Head().Seq)
	}
}

func TestAppProcesses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, options(dir))
	at := func(name, app string) AppProcess {
		return AppProcess{Boot: "boot-1", Name: name, App: app, At: someTime}
	}
	stored := func() []AppProcess {
		t.Helper()
		all, err := s.AppProcesses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	commit(t, s, with(at("7@70", "a"), at("8@80", "b"), at("7@70", "c"), at("9@90", "d")))
	commit(t, s, with(EndedProcesses{{"boot-1", "8@80"}, {"boot-1", "never"}, {"boot-2", "7@70"}}))
	shut(t, s)
	s = open(t, options(dir))
	t.Cleanup(func() { shut(t, s) })
	if got := stored(); !reflect.DeepEqual(got, []AppProcess{at("7@70", "c"), at("9@90", "d")}) {
		t.Errorf("after a start: %+v", got)
	}
	other := AppProcess{Boot: "boot-2", Name: "7@70", App: "x", At: someTime}
	commit(t, s, with(EndedProcesses{{"boot-1", "7@70"}, {"boot-1", "9@90"}}, other))
	if got := stored(); !reflect.DeepEqual(got, []AppProcess{other}) {
		t.Errorf("after a boot: %+v", got)
	}
}

// A row that several changes write at the same time is as the log says it, also if one of them writes it
// as it was and so does not state it.
func TestRowsOfOneMomentAreAsStated(t *testing.T) {
	s := open(t, options(t.TempDir()))
	t.Cleanup(func() { shut(t, s) })
	key := []string{"boot-1", "7@70"}
	for range 100 {
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				process := AppProcess{Boot: key[0], Name: key[1], App: "a", At: someTime.Add(time.Duration(i%2) * time.Millisecond)}
				if _, err := s.Commit(with(process)); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		var row fold.Row
		err := s.db.Scan(t.Context(), func(conn *sqlite.Conn) (err error) {
			row, err = foldrows.Find(conn, fold.AppProcesses, key)
			return err
		})
		if says, _ := s.state.Get(fold.AppProcesses, key); err != nil || !slices.Equal(row, says) {
			t.Fatalf("the row is %q, and the log says %q, %v", row, says, err)
		}
	}
}

func TestBrought(t *testing.T) {
	s := openTest(t)
	if _, err := s.Brought(t.Context(), "irc:#x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	one := Brought{SessionKey: "irc:#x", Account: "work", Members: map[string]string{"target": "#x", "threadId": "‹"}, At: someTime.Truncate(time.Millisecond)}
	commit(t, s, with(Brought{SessionKey: "irc:#x", Members: map[string]string{"old": "1"}, At: someTime}, one, Brought{SessionKey: "irc:y", At: someTime}))
	if got := read(t, s.Brought, "irc:#x"); !reflect.DeepEqual(got, one) {
		t.Errorf("got %+v", got)
	}
	if got := read(t, s.Brought, "irc:y"); len(got.Members) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestSpeakers(t *testing.T) {
	s := openTest(t)
	eve := Speaker{Place: "irc:#x", Account: "work", By: "acme", Agent: true, Identity: ocip.Identity{InstanceID: "e", UserID: "u", OrgUnit: "o", TenantID: "globex"}}
	person, other := eve, eve
	person.Agent, other.By = false, "globex"
	commit(t, s, with(eve, person, eve, other, Speaker{Place: "irc:#y", By: "acme"}))
	if got, err := s.Speakers(t.Context(), "acme", "irc:#x"); err != nil || !reflect.DeepEqual(got, []Speaker{eve, person}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := s.SpeakersToAll(t.Context(), "irc:#x"); err != nil || len(got) != 3 {
		t.Errorf("of all: %+v, %v", got, err)
	}
	commit(t, s, with(Unheard("irc:#x")))
	if got := count(t, s, "speakers"); got != 1 {
		t.Errorf("%d are left", got)
	}
}

func TestOwed(t *testing.T) {
	s := openTest(t)
	one := Owed{Agent: "a", Counterparty: "b", Value: `{"replyPolicy":"human-only"}`, Until: someTime}
	commit(t, s, with(Owed{Agent: "a", Counterparty: "b", Value: "{}"}, one, Owed{Agent: "b", Counterparty: "a", Value: "1"}))
	if got, err := s.Owed(t.Context(), "a", "b"); err != nil || got != one {
		t.Errorf("got %+v, %v", got, err)
	}
	one.Value = ""
	commit(t, s, with(one))
	if _, err := s.Owed(t.Context(), "a", "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("answered: %v", err)
	}
	if got, err := s.Owed(t.Context(), "b", "a"); err != nil || got.Value != "1" || !got.Until.IsZero() {
		t.Errorf("the other way: %+v, %v", got, err)
	}
}

func TestSpent(t *testing.T) {
	s := openTest(t)
	add := func(scope string, at time.Duration, n int) { commit(t, s, with(Spent{scope, someTime.Add(at), n})) }
	add("session:x", -time.Hour, 5)
	add("session:x", -59*time.Minute, 7)
	add("session:x", 0, 1)
	add("session:x", time.Second, 2)
	add("session:y", 0, 100)
	for since, want := range map[time.Duration]int{-2 * time.Hour: 15, -time.Hour: 15, -time.Hour + 30*time.Second: 10, 0: 3, 25 * time.Second: 3, time.Minute: 0} {
		if got, err := s.Spent(t.Context(), "session:x", someTime.Add(since)); err != nil || got != want {
			t.Errorf("since %s: %d, %v, want %d", since, got, err, want)
		}
	}
	if got, err := s.Spent(t.Context(), "session:z", someTime); err != nil || got != 0 {
		t.Errorf("never: %d, %v", got, err)
	}
}

func TestPaused(t *testing.T) {
	s := openTest(t)
	commit(t, s, with(Paused{"all", someTime, "x"}, Paused{"agent:a", someTime, "y"}, Paused{"all", someTime.Add(time.Second), "z"}))
	commit(t, s, with(Resumed("agent:a"), Resumed("channel:c")))
	want := []Paused{{"all", someTime.Add(time.Second), "z"}}
	if got, err := s.Paused(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHeardByPair(t *testing.T) {
	s := openTest(t)
	line := func(hops int) ocip.Chain { return ocip.Chain{ID: "d", Hops: hops} }
	c := with()
	c.Add(Heard{Agent: "a", At: someTime, Chain: line(3)}, Heard{Agent: "a", Counterparty: "b", At: someTime, Chain: line(7)}, Heard{Agent: "a", Counterparty: "c", At: someTime})
	commit(t, s, c)
	for counterparty, want := range map[string]int{"": 3, "b": 7, "c": 0} {
		if got, err := s.Heard(t.Context(), "a", counterparty); err != nil || got.Chain.Hops != want || got.Counterparty != counterparty {
			t.Errorf("from %q: %+v, %v", counterparty, got, err)
		}
	}
	if _, err := s.Heard(t.Context(), "b", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("another: %v", err)
	}
}

// A tenant knows only its own agents' sightings; ones from before tenants were distinguished are
// everybody's, until a tenant has its own. All of it is forgotten.
func TestSeenIsKeptByTenantAndForgotten(t *testing.T) {
	s := openTest(t)
	c := with(Brought{SessionKey: "telegram:b", Account: "x", At: someTime})
	for _, one := range []struct{ key, by, instance string }{
		{"telegram:a", "acme", "a-1"}, {"telegram:b", "", "before"}, {"telegram:b", "acme", "b-1"}, {"telegram:b", "globex", "b-2"}, {"telegram:c", "", "before"},
	} {
		c.Add(Seen{SessionKey: one.key, By: one.by, Identity: ocip.Identity{InstanceID: one.instance, UserID: "u", OrgUnit: "o", TenantID: "t"}})
	}
	commit(t, s, c)
	for _, want := range []struct{ tenant, key, instance string }{
		{"acme", "telegram:a", "a-1"}, {"globex", "telegram:a", ""}, {"acme", "telegram:b", "b-1"}, {"globex", "telegram:b", "b-2"},
		{"initech", "telegram:b", "before"}, {"acme", "telegram:c", "before"},
	} {
		got, err := s.SeenAt(t.Context(), want.tenant, want.key)
		if got.InstanceID != want.instance || (want.instance == "") != errors.Is(err, ErrNotFound) {
			t.Errorf("%s at %s: %+v, %v", want.tenant, want.key, got, err)
		}
	}
	if all := read(t, s.SeenByAll, "telegram:b"); len(all) != 3 || all[1].By != "acme" || all[1].TenantID != "t" || all[2].InstanceID != "b-2" {
		t.Errorf("seen by all: %+v", all)
	}
	commit(t, s, with(Forgotten("telegram:b")))
	if all := read(t, s.SeenByAll, "telegram:b"); len(all) != 0 {
		t.Errorf("forgotten: %+v", all)
	}
	if _, err := s.Brought(t.Context(), "telegram:b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("its address: %v", err)
	}
	if _, err := s.SeenAt(t.Context(), "acme", "telegram:a"); err != nil {
		t.Errorf("another: %v", err)
	}
}

// Rows without effect are deleted, and no others.
func TestTidy(t *testing.T) {
	s := openTest(t)
	var parts []Part
	for i := range 3 * tidyAtOnce {
		parts = append(parts,
			Owed{Agent: "over", Counterparty: fmt.Sprint(i), Value: "1", Until: someTime.Add(-time.Second)},
			Spent{fmt.Sprint("over", i), someTime.Add(-3 * time.Hour), 1})
	}
	parts = append(parts, Owed{Agent: "a", Counterparty: "b", Value: "1", Until: someTime}, Owed{Agent: "a", Counterparty: "never", Value: "1"},
		Spent{"over1", someTime.Add(-time.Hour), 1})
	c := with(parts...)
	c.Add(Heard{Agent: "a", At: someTime.Add(-3 * time.Hour)}, Heard{Agent: "a", Counterparty: "b", At: someTime.Add(-time.Hour)})
	commit(t, s, c)
	before := s.Head()
	if err := s.Tidy(t.Context(), someTime, someTime.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"owed": 2, "spent": 1, "heard": 1} {
		if got := count(t, s, table); got != want {
			t.Errorf("%s has %d rows, want %d", table, got, want)
		}
	}
	if s.Head() != before {
		t.Error("tidying made records")
	}
	wantSound(t, s)
}

// beforeParts is the version of the schema before the first parts had tables.
const beforeParts = 6

// A chain from the earlier schema counts as heard from anybody.
func TestMigrationKeepsWhatWasHeard(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	s := open(t, o)
	c := with()
	c.Add(Heard{Agent: "a", At: someTime, Chain: ocip.Chain{ID: "d", Hops: 4}})
	c.Add(&Message{MessageID: MessageID{Queue: "q"}, DispatchID: "d", Body: []byte("body")})
	for kind, asked := range map[string]string{"message": "sha256:1", "escalation": "escalation:sha256:1"} {
		c.Add(&Approval{ID: kind, Kind: kind, Agent: "a", Asked: asked, State: PendingApproval, New: true})
	}
	commit(t, s, c)
	shut(t, s)
	change(t, o.Path, `DELETE FROM meta WHERE key IN ('digests-from', 'row-key'); UPDATE heard SET counterparty = ''`)
	downgrade(t, o.Path, beforeParts)
	s = open(t, o)
	defer shut(t, s)
	if got, err := s.Heard(t.Context(), "a", ""); err != nil || got.Chain.Hops != 4 || !got.At.Equal(someTime) {
		t.Errorf("%+v, %v", got, err)
	}
	if page, err := s.Messages(t.Context(), "q", 0, 9); err != nil || len(page) != 1 || string(page[0].Body) != "body" {
		t.Errorf("waiting: %v, %v", page, err)
	}
	for _, kind := range []string{"message", "escalation"} {
		if got, err := s.Approval(t.Context(), kind); err != nil || got.Kind != kind {
			t.Errorf("what waits for a person is %+v, %v, want a %s", got, err, kind)
		}
	}
}
