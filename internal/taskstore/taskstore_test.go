package taskstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// open opens a store, and the tasks in it.
func open(t *testing.T) (*store.Store, Tasks) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, In(s)
}

// rows are what is written of a task.
type rows interface{ Rows() store.Rows }

func put(s *store.Store, parts ...rows) error {
	c := &store.Change{Records: []*audit.Record{{ID: "p", ActionType: audit.ActionTask}}}
	for _, p := range parts {
		c.Add(p.Rows())
	}
	_, err := s.Commit(c)
	return err
}

func mustPut(t *testing.T, s *store.Store, parts ...rows) {
	t.Helper()
	if err := put(s, parts...); err != nil {
		t.Fatal(err)
	}
}

func ready(t *testing.T, tasks Tasks, now time.Time, limit int) (ids []string) {
	t.Helper()
	for priority := range 5 {
		err := tasks.Ready(t.Context(), "acme", priority, now, func(r Ready) bool {
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
	s, tasks := open(t)
	now := time.UnixMilli(1_000_000_000).UTC()
	add := func(id string, priority int, at time.Time, binds bool, on ...string) {
		mustPut(t, s, &Task{ID: id, Tenant: "acme", Phase: "execution_ready", Open: true, Binds: binds, Priority: priority, ReadyAt: at, Seq: 1, Deps: true, DependsOn: on, Head: []byte(id)})
	}
	add("late", 0, now.Add(time.Second), true)
	add("low", 4, now, true)
	add("second", 1, now, true)
	add("first", 1, now.Add(-time.Hour), true)
	add("waits", 1, time.Time{}, true)
	add("blocked", 0, now, true, "first", "second")
	add("draft", 0, now, false, "first")
	mustPut(t, s, &Task{ID: "other", Tenant: "globex", Open: true, ReadyAt: now, Seq: 1, Head: []byte("other")})
	if got := ready(t, tasks, now, 99); !slices.Equal(got, []string{"draft", "first", "second", "low"}) {
		t.Errorf("ready: %v", got)
	}
	if open, err := tasks.OpenDependencies(t.Context(), "blocked"); err != nil || !slices.Equal(open, []string{"first", "second"}) {
		t.Errorf("open: %v, %v", open, err)
	}
	for _, id := range []string{"first", "second"} {
		mustPut(t, s, &Task{ID: id, Tenant: "acme", Phase: "completed", Completed: true, Was: 1, Seq: 2, Head: []byte(id)})
	}
	if got := ready(t, tasks, now, 99); !slices.Contains(got, "blocked") || slices.Contains(got, "first") {
		t.Errorf("ready: %v", got)
	}
	// One that depends on what is completed, and on what is not there, waits for the latter.
	add("new", 0, now, true, "first")
	add("lost", 0, now, true, "nowhere")
	if got := ready(t, tasks, now, 99); !slices.Contains(got, "new") || slices.Contains(got, "lost") {
		t.Errorf("ready: %v", got)
	}
	if n, err := tasks.Open(t.Context()); err != nil || n["acme"] != 7 || n["globex"] != 1 {
		t.Errorf("open: %v, %v", n, err)
	}
	for i := range 200 {
		add(fmt.Sprint("many-", i), 3, now, true)
	}
	if got := ready(t, tasks, now, 1000); len(got) < 200 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("%d ready", len(got))
	}
}

// Of two that decide about a task as it was, the first wins; and an origin is imported
// once.
func TestTaskMoves(t *testing.T) {
	s, tasks := open(t)
	mustPut(t, s, &Task{ID: "one", Tenant: "acme", Origin: "v1:1", Seq: 2, Head: []byte("a")}, &Part{TaskID: "one", Kind: "spec", ID: "1", Body: []byte("{}")},
		&Effect{TaskID: "one", ID: "e", Key: "k", Busy: true, Body: []byte("{}")})
	mustPut(t, s, &Task{ID: "one", Tenant: "acme", Was: 2, Seq: 3, Running: true, Head: []byte("b")}, &Part{TaskID: "one", Kind: "spec", ID: "1", Body: []byte("[]")})
	if err := put(s, &Task{ID: "one", Was: 2, Seq: 3, Head: []byte("c")}); !errors.Is(err, ErrMoved) {
		t.Errorf("a second change: %v", err)
	}
	if err := put(s, &Task{ID: "two", Tenant: "acme", Origin: "v1:1", Seq: 1}); !errors.Is(err, ErrImported) {
		t.Errorf("imported again: %v", err)
	}
	got, err := tasks.Task(t.Context(), "one")
	if err != nil || string(got.Head) != "b" || len(got.Parts) != 1 || string(got.Parts[0].Body) != "[]" || len(got.Effects) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := tasks.Task(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	running, err1 := tasks.Running(t.Context())
	busy, err2 := tasks.Busy(t.Context())
	if !slices.Equal(running, []string{"one"}) || !slices.Equal(busy, []string{"one"}) || err1 != nil || err2 != nil {
		t.Errorf("running %v %v, busy %v %v", running, err1, busy, err2)
	}
}

// A grant is found by its id and by the digest of its token, as it was written last.
func TestTaskGrants(t *testing.T) {
	s, tasks := open(t)
	until := time.UnixMilli(1_000_000_000).UTC()
	for _, want := range []Grant{
		{ID: "g", Token: []byte{1, 2}, TaskID: "one", ExpiresAt: until, Body: []byte(`{}`)},
		{ID: "g", Token: []byte{1, 2}, TaskID: "one", ExpiresAt: until.Add(-time.Hour), Body: []byte(`[]`)},
	} {
		mustPut(t, s, &want)
		if got, err := tasks.Grant(t.Context(), "g"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if body, err := tasks.GrantByToken(t.Context(), want.Token); err != nil || string(body) != string(want.Body) {
			t.Errorf("by its token: %s, %v", body, err)
		}
	}
	if _, err := tasks.GrantByToken(t.Context(), []byte{1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("by another token: %v", err)
	}
}

// A list goes on from either end, page by page, and an origin is found in its tenant
// alone.
func TestListFromEitherEnd(t *testing.T) {
	s, tasks := open(t)
	for i := range 7 {
		id := fmt.Sprintf("tsk_%d", i)
		if err := put(s, &Task{ID: id, Tenant: "acme", Phase: "spec_draft", Origin: "v1:" + id, Open: true, Seq: 1, Head: []byte(`"` + id + `"`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, newest := range []bool{false, true} {
		var got, want []string
		for f := (Filter{Tenant: "acme", Newest: newest}); ; {
			page, err := tasks.List(t.Context(), f, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				f.After = string(r.Head[1 : len(r.Head)-1])
				got = append(got, f.After)
			}
			if len(page) < 3 {
				break
			}
		}
		for i := range 7 {
			want = append(want, fmt.Sprintf("tsk_%d", i))
		}
		if newest {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("newest %v: %v, want %v", newest, got, want)
		}
	}
	if id, err := tasks.Imported(t.Context(), "acme", "v1:tsk_3"); err != nil || id != "tsk_3" {
		t.Errorf("%s, %v", id, err)
	}
	for _, other := range [][2]string{{"globex", "v1:tsk_3"}, {"acme", ""}, {"acme", "v1:tsk_9"}} {
		if id, err := tasks.Imported(t.Context(), other[0], other[1]); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v: %s, %v", other, id, err)
		}
	}
	if err := put(s, &Task{ID: "tsk_x", Tenant: "acme", Phase: "spec_draft", Origin: "v1:tsk_3", Seq: 1, Head: []byte(`1`)}); !errors.Is(err, ErrImported) {
		t.Errorf("imported twice: %v", err)
	}
}
