package store

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

func putTask(t *testing.T, s *Store, parts ...Part) {
	t.Helper()
	commit(t, s, with(parts...))
}

func ready(t *testing.T, s *Store, now time.Time, limit int) (ids []string) {
	t.Helper()
	for priority := range 5 {
		err := s.ReadyTasks(t.Context(), "acme", priority, now, func(r ReadyTask) bool {
			ids = append(ids, string(r.Head))
			return len(ids) < limit
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// What is ready comes by priority and then by how long, and what depends on others
// once they are completed.
func TestReadyTasks(t *testing.T) {
	s := openTest(t)
	now := time.UnixMilli(1_000_000_000).UTC()
	add := func(id string, priority int, at time.Time, binds bool, on ...string) {
		putTask(t, s, &Task{ID: id, Tenant: "acme", Phase: "execution_ready", Open: true, Binds: binds, Priority: priority, ReadyAt: at, Seq: 1, Deps: true, DependsOn: on, Head: []byte(id)})
	}
	add("late", 0, now.Add(time.Second), true)
	add("low", 4, now, true)
	add("second", 1, now, true)
	add("first", 1, now.Add(-time.Hour), true)
	add("waits", 1, time.Time{}, true)
	add("blocked", 0, now, true, "first", "second")
	add("draft", 0, now, false, "first")
	putTask(t, s, &Task{ID: "other", Tenant: "globex", Open: true, ReadyAt: now, Seq: 1, Head: []byte("other")})
	if got := ready(t, s, now, 99); !slices.Equal(got, []string{"draft", "first", "second", "low"}) {
		t.Errorf("ready: %v", got)
	}
	if open, err := s.OpenDependencies(t.Context(), "blocked"); err != nil || !slices.Equal(open, []string{"first", "second"}) {
		t.Errorf("open: %v, %v", open, err)
	}
	for _, id := range []string{"first", "second"} {
		putTask(t, s, &Task{ID: id, Tenant: "acme", Phase: "completed", Completed: true, Was: 1, Seq: 2, Head: []byte(id)})
	}
	if got := ready(t, s, now, 99); !slices.Contains(got, "blocked") || slices.Contains(got, "first") {
		t.Errorf("ready: %v", got)
	}
	// One that depends on what is completed, and on what is not there, waits for the latter.
	add("new", 0, now, true, "first")
	add("lost", 0, now, true, "nowhere")
	if got := ready(t, s, now, 99); !slices.Contains(got, "new") || slices.Contains(got, "lost") {
		t.Errorf("ready: %v", got)
	}
	if n, err := s.OpenTasks(t.Context()); err != nil || n["acme"] != 7 || n["globex"] != 1 {
		t.Errorf("open: %v, %v", n, err)
	}
	for i := range 200 {
		add(fmt.Sprint("many-", i), 3, now, true)
	}
	if got := ready(t, s, now, 1000); len(got) < 200 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("%d ready", len(got))
	}
}

// Of two that decide about a task as it was, the first wins; and an origin is imported
// once.
func TestTaskMoves(t *testing.T) {
	s := openTest(t)
	putTask(t, s, &Task{ID: "one", Tenant: "acme", Origin: "v1:1", Seq: 2, Head: []byte("a")}, &TaskPart{TaskID: "one", Kind: "spec", ID: "1", Body: []byte("{}")},
		&TaskEffect{TaskID: "one", ID: "e", Key: "k", Busy: true, Body: []byte("{}")})
	putTask(t, s, &Task{ID: "one", Tenant: "acme", Was: 2, Seq: 3, Running: true, Head: []byte("b")}, &TaskPart{TaskID: "one", Kind: "spec", ID: "1", Body: []byte("[]")})
	if _, err := s.Commit(with(&Task{ID: "one", Was: 2, Seq: 3, Head: []byte("c")})); !errors.Is(err, ErrTaskMoved) {
		t.Errorf("a second change: %v", err)
	}
	if _, err := s.Commit(with(&Task{ID: "two", Tenant: "acme", Origin: "v1:1", Seq: 1})); !errors.Is(err, ErrImported) {
		t.Errorf("imported again: %v", err)
	}
	got, err := s.Task(t.Context(), "one")
	if err != nil || string(got.Head) != "b" || len(got.Parts) != 1 || string(got.Parts[0].Body) != "[]" || len(got.Effects) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := s.Task(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	running, err1 := s.RunningTasks(t.Context())
	busy, err2 := s.BusyTasks(t.Context())
	if !slices.Equal(running, []string{"one"}) || !slices.Equal(busy, []string{"one"}) || err1 != nil || err2 != nil {
		t.Errorf("running %v %v, busy %v %v", running, err1, busy, err2)
	}
}

// A grant is found by its id and by the digest of its token, as it was written last.
func TestTaskGrants(t *testing.T) {
	s := openTest(t)
	until := time.UnixMilli(1_000_000_000).UTC()
	for _, want := range []TaskGrant{
		{ID: "g", Token: []byte{1, 2}, TaskID: "one", ExpiresAt: until, Body: []byte(`{}`)},
		{ID: "g", Token: []byte{1, 2}, TaskID: "one", ExpiresAt: until.Add(-time.Hour), Body: []byte(`[]`)},
	} {
		putTask(t, s, &want)
		if got, err := s.Grant(t.Context(), "g"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if body, err := s.GrantByToken(t.Context(), want.Token); err != nil || string(body) != string(want.Body) {
			t.Errorf("by its token: %s, %v", body, err)
		}
	}
	if _, err := s.GrantByToken(t.Context(), []byte{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("by another token: %v", err)
	}
}

// An answer is kept for a day.
func TestRequestKeys(t *testing.T) {
	s := openTest(t)
	now := time.UnixMilli(1_000_000_000).UTC()
	for i := range 10 {
		putTask(t, s, &RequestKey{Actor: "a", Key: fmt.Sprint(i), Asked: "x", At: now.Add(time.Duration(i)), Result: []byte(`1`)})
	}
	if k, err := s.RequestOf(t.Context(), "a", "3", now.Add(time.Hour)); err != nil || string(k.Result) != "1" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := s.RequestOf(t.Context(), "b", "3", now); !errors.Is(err, ErrNotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	later := now.Add(25 * time.Hour)
	if _, err := s.RequestOf(t.Context(), "a", "3", later); !errors.Is(err, ErrNotFound) {
		t.Errorf("an old one: %v", err)
	}
	for i := range 3 {
		putTask(t, s, &RequestKey{Actor: "b", Key: fmt.Sprint(i), At: later, Result: []byte(`1`)})
	}
	if n := count(t, s, "request_keys"); n != 3 {
		t.Errorf("%d answers are kept", n)
	}
}
