package taskstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
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
	parts := func(version int) (p fold.Parts) {
		p.Effect(fold.Kept{}, "e", "started", false)
		p.Run(1, false, "started", "a")
		p.Spec(fold.Kept{}, version)
		return p
	}
	mustPut(t, s, &Task{ID: "one", Tenant: "acme", Origin: "v1:1", Seq: 2, Open: true, Parts: parts(1), Head: []byte("a")}, &Part{TaskID: "one", Kind: "spec", ID: "1", Body: []byte(`{"version":1}`)},
		&Effect{TaskID: "one", ID: "e", Key: "k", Busy: true, Body: []byte(`{"effect_id":"e","state":"started","runs":[{"run":1,"state":"started","approval_id":"a"}]}`)})
	mustPut(t, s, &Task{ID: "one", Tenant: "acme", Was: 2, Seq: 3, Open: true, Running: true, Parts: parts(2), Head: []byte("b")}, &Part{TaskID: "one", Kind: "spec", ID: "1", Body: []byte(`{"version":2}`)})
	if err := put(s, &Task{ID: "one", Was: 2, Seq: 3, Head: []byte("c")}); !errors.Is(err, ErrMoved) {
		t.Errorf("a second change: %v", err)
	}
	if err := put(s, &Task{ID: "two", Tenant: "acme", Origin: "v1:1", Seq: 1}); !errors.Is(err, ErrImported) {
		t.Errorf("imported again: %v", err)
	}
	got, err := tasks.Task(t.Context(), "one")
	if err != nil || string(got.Head) != "b" || len(got.Parts) != 1 || string(got.Parts[0].Body) != `{"version":2}` || len(got.Effects) != 1 {
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
		if id, err := tasks.GrantByToken(t.Context(), want.Token); err != nil || id != want.ID {
			t.Errorf("by its token: %s, %v", id, err)
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

// Whatever somebody edits in a stopped database of what a task is decided by, the next start finds.
func TestEditedTaskIsFoundAtTheStart(t *testing.T) {
	for _, tc := range []struct{ script, want string }{
		{`UPDATE tasks SET phase = 'quality_review' WHERE id = 'one'`, "task one: the row says phase quality_review, record"},
		{`UPDATE tasks SET is_open = 0, phase = 'completed' WHERE id = 'one'`, "task one: there is no such row"},
		{`UPDATE tasks SET is_open = 1, phase = 'execution_active' WHERE id = 'over'`, "task over: the row says that it is open"},
		{`UPDATE tasks SET seq = 1 WHERE id = 'one'`, "task one: the row says seq 1"},
		{`UPDATE tasks SET tenant = 'other' WHERE id = 'one'`, "task one: the row says tenant other"},
		{`UPDATE effects SET body = json_set(body, '$.state', 'planned', '$.runs', json('[]')) WHERE id = 'e'`, "task one: the row says parts"},
		{`UPDATE effects SET body = json_set(body, '$.runs[0].approval_id', 'b') WHERE id = 'e'`, "task one: the row says parts"},
		{`UPDATE task_parts SET body = json_set(body, '$.used', json('false')) WHERE kind = 'approval'`, "task one: the row says parts"},
		{`UPDATE task_parts SET body = json_set(body, '$.status', 'completed') WHERE kind = 'attempt'`, "task one: the row says parts"},
		{`UPDATE task_parts SET body = json_set(body, '$.verdict', 'approved') WHERE kind = 'review'`, "task one: the row says parts"},
		{`DELETE FROM task_parts WHERE kind = 'review'`, "task one: the row says parts"},
		{`DELETE FROM effects WHERE id = 'e'`, "task one: the row says parts"},
		{`UPDATE effects SET body = 'x' WHERE id = 'e'`, "task one: the row says parts"},
		{`UPDATE task_parts SET body = json_set(body, '$.kept.seq', 0) WHERE kind = 'attempt'`, "task one: the row says bound"},
		{`UPDATE task_parts SET body = json_set(body, '$.request_digest', 'sha256:2') WHERE kind = 'approval'`, "task one: the row says bound"},
		{`UPDATE effects SET body = json_set(body, '$.request_digest', 'sha256:2') WHERE id = 'e'`, "task one: the row says bound"},
		{`UPDATE task_parts SET body = json_set(body, '$.kept.keyed', 'x') WHERE kind = 'spec'`, "task one: the row says bound"},
		{`DELETE FROM task_deps`, "task one: the row says bound"},
		{`INSERT INTO task_deps (task_id, depends_on, seal) VALUES ('one', 'undone', x'')`, "task one: the row says bound"},
		{`UPDATE effects SET body = json_set(body, '$.runs', json('[{"run":1,"state":"done","approval_id":"a"}]'), '$.kept.seq', 1) WHERE id = 'undone'`, "task undone: the row says "},
		{`UPDATE effects SET body = json_set(body, '$.runs', json('[{"run":1,"state":"started","approval_id":"a"}]')) WHERE id = 'undone'`, "task undone: the row says "},
		{`UPDATE effects SET body = json_remove(body, '$.runs') WHERE id = 'done'`, "task done: "},
		{`DELETE FROM effects WHERE id = 'done'`, "task done: "},
		{`UPDATE effects SET body = 'x' WHERE id = 'done'`, "task done: "},
		{`UPDATE grants SET token = x'00' WHERE id = 'g'`, "grant of an actor g: the row says token"},
		{`UPDATE grants SET body = json_remove(body, '$.holder') WHERE id = 'g'`, "grant of an actor g: the row says holder"},
		{`UPDATE grants SET body = json_set(body, '$.holder.uid', 7) WHERE id = 'g'`, "grant of an actor g: the row says holder"},
		{`UPDATE grants SET body = json_set(body, '$.role', 'orchestrator') WHERE id = 'g'`, "grant of an actor g: the row says role orchestrator, record"},
		{`UPDATE grants SET body = json_set(body, '$.actor', 'x') WHERE id = 'g'`, "grant of an actor g: the row says actor x"},
		{`UPDATE grants SET task_id = 'x' WHERE id = 'g'`, "grant of an actor g: the row says task x"},
		{`UPDATE grants SET expires_at = expires_at + 9 WHERE id = 'g'`, "grant of an actor g: the row says expiresAt"},
		{`UPDATE grants SET body = json_remove(body, '$.revoked_at') WHERE id = 'revoked'`, "grant of an actor revoked: the row says that it is open"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			o, key := signed(t, 8)
			s, err := store.Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			var parts fold.Parts
			parts.Approval(fold.Kept{Seq: 1, Digest: "sha256:1"}, "a", "e", "approved", true, false)
			parts.Attempt(fold.Kept{Seq: 1}, "at", "running", 3)
			parts.Effect(fold.Kept{Seq: 2, Digest: "sha256:1"}, "e", "done", false)
			parts.Run(1, false, "done", "a")
			parts.Review(fold.Kept{Seq: 2}, "r", "changes")
			parts.Spec(fold.Kept{Seq: 1, Digest: "hmac-sha256:1"}, 1)
			parts.Dependencies([]string{"over"})
			part := func(kind, id, body string) *Part { return &Part{TaskID: "one", Kind: kind, ID: id, Body: []byte(body)} }
			grant := func(id, body string) *Grant {
				return &Grant{ID: id, Token: []byte(id), TaskID: "one", ExpiresAt: time.Now().Add(time.Hour), Body: []byte(body)}
			}
			mustPut(t, s, &Task{ID: "one", Tenant: "acme", Phase: "execution_active", Open: true, Seq: 2, Parts: parts, Deps: true, DependsOn: []string{"over"}, Head: []byte("{}")},
				part("approval", "a", `{"approval_id":"a","effect_id":"e","status":"approved","used":true,"request_digest":"sha256:1","kept":{"seq":1}}`),
				part("attempt", "at", `{"attempt_id":"at","status":"running","fence":3,"kept":{"seq":1}}`), part("review", "r", `{"review_id":"r","verdict":"changes","kept":{"seq":2}}`),
				part("spec", "1", `{"version":1,"kept":{"seq":1,"keyed":"hmac-sha256:1"}}`),
				&Effect{TaskID: "one", ID: "e", Key: "k", Body: []byte(`{"effect_id":"e","state":"done","request_digest":"sha256:1","runs":[{"run":1,"state":"done","approval_id":"a"}],"kept":{"seq":2}}`)})
			// It has ended, and what it did can still be undone, or could.
			ended := func(id string, seq int, runs string) {
				t.Helper()
				var parts fold.Parts
				parts.Effect(fold.Kept{Seq: seq}, id, "done", true)
				parts.Run(1, false, "done", "a")
				if runs != "" {
					parts.Run(2, true, "done", "a")
				}
				row := &Task{ID: id, Tenant: "acme", Phase: "completed", Was: seq - 1, Seq: seq, Parts: parts, Head: []byte("{}")}
				mustPut(t, s, row, &Effect{TaskID: id, ID: id, Key: "k", Body: fmt.Appendf(nil, `{"effect_id":%q,"state":"done","compensation":{},"runs":[{"run":1,"state":"done","approval_id":"a"}%s],"kept":{"seq":%d}}`, id, runs, seq)})
			}
			ended("done", 1, "")
			ended("undone", 1, "")
			ended("undone", 2, `,{"run":2,"compensation":true,"state":"done","approval_id":"a"}`)
			mustPut(t, s, &Task{ID: "over", Tenant: "acme", Phase: "execution_active", Open: true, Seq: 1})
			mustPut(t, s, &Task{ID: "over", Tenant: "acme", Phase: "completed", Was: 1, Seq: 2})
			mustPut(t, s, grant("g", `{"actor":"claude","role":"executor","holder":{"uid":1000,"exe":"/bin/x"}}`), grant("revoked", `{"actor":"claude","role":"executor"}`))
			mustPut(t, s, grant("revoked", `{"actor":"claude","role":"executor","revoked_at":"2026-01-01T00:00:00Z"}`))
			if err := errors.Join(s.Sign(), s.Close()); err != nil {
				t.Fatal(err)
			}
			again := func() error {
				s, err := store.Open(t.Context(), o)
				if err == nil {
					err = s.Close()
				}
				return err
			}
			if err := again(); err != nil {
				t.Fatal(err)
			}
			conn, err := sqlite.OpenConn(o.Path, sqlite.OpenReadWrite)
			if err == nil {
				err = errors.Join(sqlitex.ExecuteScript(conn, tc.script, nil), conn.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := again(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the start says %v", err)
			}
			// The program of the page names the row too.
			row := strings.Fields(strings.TrimPrefix(tc.want, "grant of an actor "))
			name := strings.TrimSuffix(row[min(1, len(row)-1)], ":")
			if strings.HasPrefix(tc.want, "grant") {
				name = strings.TrimSuffix(row[0], ":")
			}
			if _, problem, _ := verified(t, o.Path, *key); !strings.Contains(problem, " "+name+": ") {
				if tc.script != `UPDATE effects SET body = 'x' WHERE id = 'e'` && tc.script != `UPDATE effects SET body = 'x' WHERE id = 'done'` {
					t.Errorf("verify.py says %q, want %q", problem, name)
				} else if problem == "" {
					t.Error("verify.py finds nothing")
				}
			}
		})
	}
}
