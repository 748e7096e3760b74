// Package taskstore keeps tasks in the database: their heads, lists, dependencies, effects and the
// grants of their actors. All of them are written as parts of a [store.Change], which their Rows
// methods make.
package taskstore

import (
	"context"
	"errors"
	"time"

	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/db"
	"github.com/openclawos/ocipd/internal/store/foldrows"
	"zombiezen.com/go/sqlite"
)

// Task is a task's head as the store keeps it. As rows it is a new task, or one that
// has changed since Was.
type Task struct {
	ID, Tenant, Phase, Origin string
	// Open says that the task is neither completed nor failed, Binds that its
	// dependencies matter, and Running that an attempt runs.
	Open, Binds, Running bool
	// Completed unblocks those that depend on the task.
	Completed bool
	Priority  int
	// ReadyAt is zero if the task waits for somebody.
	ReadyAt time.Time
	// Seq is the number of the task's last event, and Was the number that the change
	// was decided at. It is zero for a new task.
	Seq, Was int
	// DependsOn are all the task's dependencies, if Deps is set.
	Deps      bool
	DependsOn []string
	// Parts is the log's state of the parts of the task.
	Parts fold.Parts
	Head  []byte
}

// Part is one entry of one of a task's lists, as a row written over what stands
// at its place.
type Part struct {
	TaskID, Kind, ID string
	Place            int
	Body             []byte
}

// Effect is one effect of a task, as a row written over what stands at its
// place. Busy says that a run of it is under way, or that nobody knows of one.
type Effect struct {
	TaskID, ID, Key string
	Place           int
	Busy            bool
	Body            []byte
}

// Grant is a grant of a task's actor. Token is the SHA-256 of its token. As a row
// it is new, or written over the one of its id.
type Grant struct {
	ID        string
	Token     []byte
	TaskID    string
	ExpiresAt time.Time
	Body      []byte
}

var (
	// ErrMoved means that a task is not as it was when the change was decided.
	ErrMoved = errors.New("the task has changed meanwhile")
	// ErrImported means that a task of that origin is there already.
	ErrImported = errors.New("the task was imported before")
)

// Rows is the task as a part of a change.
func (t *Task) Rows() store.Rows {
	return store.Rows{
		Size: len(t.Head) + 256, Guard: t.guard, Put: t.put,
		Folded: &store.FoldedRow{Table: fold.Tasks, Key: t.ID, Row: foldrows.Task(t.Tenant, t.Phase, t.Seq, &t.Parts)},
	}
}

func (t *Task) guard(tx *db.Writer) (refusal, err error) {
	if t.Was == 0 {
		if t.Origin == "" {
			return nil, nil
		}
		n, err := tx.Scalar("the task", `SELECT count(*) FROM tasks WHERE tenant = ? AND origin = ? AND origin <> ''`, db.Text(t.Tenant), db.Text(t.Origin))
		if err == nil && n > 0 {
			refusal = ErrImported
		}
		return refusal, err
	}
	n, err := tx.Scalar("the task", `SELECT count(*) FROM tasks WHERE id = ? AND seq = ?`, db.Text(t.ID), db.Int(int64(t.Was)))
	if err == nil && n == 0 {
		refusal = ErrMoved
	}
	return refusal, err
}

func (t *Task) put(tx *db.Writer) error {
	ready := db.Null()
	if !t.ReadyAt.IsZero() {
		ready = db.Time(t.ReadyAt)
	}
	var err error
	if t.Was == 0 {
		err = tx.Insert("the task", "tasks",
			db.Text(t.ID), db.Text(t.Tenant), db.Text(t.Phase), db.Bool(t.Open), db.Int(int64(t.Priority)), ready, db.Bool(t.Binds), db.Int(0), db.Bool(t.Running), db.Int(int64(t.Seq)), db.Text(t.Origin), db.Bytes(t.Head))
	} else {
		_, err = tx.Amend("the task", "tasks", func(row []db.Value) {
			const phase, isOpen, priority, readyAt, binds, running, seq, head = 2, 3, 4, 5, 6, 8, 9, 11
			row[phase], row[isOpen], row[priority], row[readyAt] = db.Text(t.Phase), db.Bool(t.Open), db.Int(int64(t.Priority)), ready
			row[binds], row[running], row[seq], row[head] = db.Bool(t.Binds), db.Bool(t.Running), db.Int(int64(t.Seq)), db.Bytes(t.Head)
		}, `id = ?`, db.Text(t.ID))
	}
	if err == nil && t.Deps {
		err = t.putDependencies(tx)
	}
	if err == nil && t.Completed {
		err = tx.Exec("the tasks that waited", `UPDATE main.tasks SET blocked = blocked - 1 WHERE id IN (SELECT task_id FROM task_deps WHERE depends_on = ?)`, db.Text(t.ID))
	}
	return err
}

func (t *Task) putDependencies(tx *db.Writer) error {
	if err := tx.Exec("the dependencies", `DELETE FROM main.task_deps WHERE task_id = ?`, db.Text(t.ID)); err != nil {
		return err
	}
	for _, on := range t.DependsOn {
		if err := tx.Insert("a dependency", "task_deps", db.Text(t.ID), db.Text(on)); err != nil {
			return err
		}
	}
	return tx.Exec("the dependencies", `UPDATE main.tasks SET blocked = (
		SELECT count(*) FROM task_deps d WHERE d.task_id = ? AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = d.depends_on AND t.phase = 'completed')) WHERE id = ?`, db.Text(t.ID), db.Text(t.ID))
}

// Rows is the entry as a part of a change.
func (p Part) Rows() store.Rows {
	return store.Rows{Size: len(p.Body) + 128, Put: p.put}
}

func (p Part) put(tx *db.Writer) error {
	return tx.Put("a part of the task", "task_parts", db.Text(p.TaskID), db.Text(p.Kind), db.Int(int64(p.Place)), db.Text(p.ID), db.Bytes(p.Body))
}

// Rows is the effect as a part of a change.
func (e Effect) Rows() store.Rows {
	return store.Rows{Size: len(e.Body) + 128, Put: e.put}
}

func (e Effect) put(tx *db.Writer) error {
	return tx.Put("the effect", "effects", db.Text(e.TaskID), db.Int(int64(e.Place)), db.Text(e.ID), db.Text(e.Key), db.Bool(e.Busy), db.Bytes(e.Body))
}

// Rows is the grant as a part of a change.
func (g Grant) Rows() store.Rows {
	return store.Rows{
		Size: len(g.Body) + 64, Put: g.put,
		Folded: &store.FoldedRow{Table: fold.TaskGrants, Key: g.ID, Row: foldrows.TaskGrant(g.Token, g.TaskID, g.ExpiresAt, g.Body)},
	}
}

func (g Grant) put(tx *db.Writer) error {
	return tx.Put("the grant", "grants", db.Text(g.ID), db.Bytes(g.Token), db.Text(g.TaskID), db.Time(g.ExpiresAt), db.Bytes(g.Body))
}

// Tasks are the tasks in a database.
type Tasks struct {
	db    *db.Reader
	store *store.Store
}

// In returns the tasks that a store has.
func In(s *store.Store) Tasks { return Tasks{s.Tables(), s} }

// Stored is a task with its lists, as they are stored.
type Stored struct {
	Head    []byte
	Parts   []Part
	Effects [][]byte
}

// Agrees compares the rows of a task with the log. Somebody else's are an [*store.AlteredError].
func (s Tasks) Agrees(ctx context.Context, id string) error {
	return s.store.Agrees(ctx, fold.Tasks, id)
}

// Task returns a task with its lists but checkpoints, or [db.ErrNotFound]. They are as the log
// says: somebody else's are an [*store.AlteredError].
func (s Tasks) Task(ctx context.Context, id string) (t Stored, err error) {
	if err := s.Agrees(ctx, id); err != nil {
		return t, err
	}
	err = s.db.Read(ctx, func(conn *sqlite.Conn) error {
		var heads [][]byte
		if err := db.Collect(conn, &heads, `SELECT head FROM tasks WHERE id = ?`, []any{id}, db.ScanBytes); err != nil {
			return err
		}
		if len(heads) == 0 {
			return db.ErrNotFound
		}
		t.Head = heads[0]
		err := db.Collect(conn, &t.Parts, `SELECT kind, id, place, body FROM task_parts WHERE task_id = ? AND kind <> 'checkpoint' ORDER BY kind, place`, []any{id}, scanPart)
		if err != nil {
			return err
		}
		return db.Collect(conn, &t.Effects, `SELECT body FROM effects WHERE task_id = ? ORDER BY place`, []any{id}, db.ScanBytes)
	})
	return t, err
}

func scanPart(stmt *sqlite.Stmt) (Part, error) {
	return Part{Kind: stmt.ColumnText(0), ID: stmt.ColumnText(1), Place: stmt.ColumnInt(2), Body: db.ColumnBytes(stmt, 3)}, nil
}

// Imported returns the id of a tenant's task that was imported from an origin, or
// [db.ErrNotFound].
func (s Tasks) Imported(ctx context.Context, tenant, origin string) (string, error) {
	return db.Row(ctx, s.db, "the task", `SELECT id FROM tasks WHERE tenant = ? AND origin = ? AND origin <> ''`, []any{tenant, origin}, db.ScanText)
}

// Parts returns up to limit entries of one of a task's lists from a place on.
func (s Tasks) Parts(ctx context.Context, id, kind string, from, limit int) ([]Part, error) {
	return db.Rows(ctx, s.db, "the task", `SELECT kind, id, place, body FROM task_parts WHERE task_id = ? AND kind = ? AND place >= ? ORDER BY place LIMIT ?`,
		[]any{id, kind, from, limit}, scanPart)
}

// OpenDependencies returns those of a task's dependencies that are not completed.
func (s Tasks) OpenDependencies(ctx context.Context, id string) ([]string, error) {
	return db.Rows(ctx, s.db, "the dependencies", `SELECT d.depends_on FROM task_deps d
		WHERE d.task_id = ? AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = d.depends_on AND t.phase = 'completed') ORDER BY d.depends_on`, []any{id}, db.ScanText)
}

// DependenciesOf returns what a task depends on.
func (s Tasks) DependenciesOf(ctx context.Context, id string) ([]string, error) {
	return db.Rows(ctx, s.db, "the dependencies", `SELECT depends_on FROM task_deps WHERE task_id = ?`, []any{id}, db.ScanText)
}

// Ready is a task of the list of those with something to do.
type Ready struct {
	Head    []byte
	ReadyAt time.Time
}

// Ready calls visit with the heads of a tenant's tasks of one priority that are
// ready by now, those that are ready for longest first, until it returns false.
func (s Tasks) Ready(ctx context.Context, tenant string, priority int, now time.Time, visit func(Ready) bool) error {
	const page = 64
	after, skip := int64(-1), 0
	for {
		found, err := db.Rows(ctx, s.db, "the tasks", `SELECT head, ready_at FROM tasks
			WHERE tenant = ? AND priority = ? AND ready_at >= ? AND ready_at <= ? AND ready_at IS NOT NULL AND (binds = 0 OR blocked = 0) ORDER BY ready_at LIMIT ? OFFSET ?`,
			[]any{tenant, priority, after, now.UnixMilli(), page, skip}, func(stmt *sqlite.Stmt) (Ready, error) {
				return Ready{db.ColumnBytes(stmt, 0), db.TimeOf(stmt.ColumnInt64(1))}, nil
			})
		if err != nil {
			return err
		}
		for _, t := range found {
			if !visit(t) {
				return nil
			}
			if at := t.ReadyAt.UnixMilli(); at != after {
				after, skip = at, 0
			}
			skip++
		}
		if len(found) < page {
			return nil
		}
	}
}

// Filter selects tasks; an empty member selects all.
type Filter struct {
	Tenant, Phase string
	Open          bool
	// After continues a page: the id of its last task.
	After  string
	Newest bool
}

// List returns the heads of up to limit tasks, oldest or newest first, with when they
// are ready.
func (s Tasks) List(ctx context.Context, f Filter, limit int) ([]Ready, error) {
	where, args := db.Matching([2]string{"tenant = ?", f.Tenant}, [2]string{"phase = ?", f.Phase})
	if f.Open {
		where += " AND is_open = 1"
	}
	order := " AND id > ? ORDER BY id"
	switch {
	case f.Newest && f.After != "":
		order = " AND id < ? ORDER BY id DESC"
	case f.Newest:
		order = " AND id <> ? ORDER BY id DESC"
	}
	return db.Rows(ctx, s.db, "the tasks", `SELECT head, coalesce(CASE WHEN binds = 0 OR blocked = 0 THEN ready_at END, 0) FROM tasks WHERE `+where+order+` LIMIT ?`,
		append(args, f.After, limit), func(stmt *sqlite.Stmt) (Ready, error) {
			return Ready{db.ColumnBytes(stmt, 0), db.TimeOf(stmt.ColumnInt64(1))}, nil
		})
}

// Open returns how many tasks of each tenant are open.
func (s Tasks) Open(ctx context.Context) (map[string]int, error) {
	counts := make(map[string]int)
	_, err := db.Rows(ctx, s.db, "the tasks", `SELECT tenant, count(*) FROM tasks WHERE is_open = 1 GROUP BY tenant`, nil, func(stmt *sqlite.Stmt) (struct{}, error) {
		counts[stmt.ColumnText(0)] = stmt.ColumnInt(1)
		return struct{}{}, nil
	})
	return counts, err
}

// Running returns the tasks of which an attempt runs, and Busy those of
// which a run of an effect is under way.
func (s Tasks) Running(ctx context.Context) ([]string, error) {
	return db.Rows(ctx, s.db, "the tasks", `SELECT id FROM tasks WHERE running = 1`, nil, db.ScanText)
}

// Busy returns the tasks of which a run of an effect is under way, or unknown.
func (s Tasks) Busy(ctx context.Context) ([]string, error) {
	return db.Rows(ctx, s.db, "the effects", `SELECT DISTINCT task_id FROM effects WHERE busy = 1`, nil, db.ScanText)
}

// Approved returns the tasks with an approval by which an effect may still be started or undone, or with
// a run that is under way.
func (s Tasks) Approved(ctx context.Context) ([]string, error) {
	return db.Rows(ctx, s.db, "the approvals", `SELECT task_id FROM task_parts WHERE kind = 'approval' AND body ->> '$.status' = 'approved' AND body ->> '$.used' IS NOT TRUE
		UNION SELECT task_id FROM effects WHERE body ->> '$.compensation' IS NOT NULL AND body ->> '$.runs[#-1].state' IS NOT NULL AND body ->> '$.runs[#-1].compensation' IS NOT TRUE
		UNION SELECT task_id FROM effects WHERE busy = 1`, nil, db.ScanText)
}

// GrantByToken returns the id of a grant by the SHA-256 of its token, as the log says it is, and
// Grant returns a grant by its id.
func (s Tasks) GrantByToken(ctx context.Context, token []byte) (id string, err error) {
	id, err = db.Row(ctx, s.db, "the grant", `SELECT id FROM grants WHERE token = ?`, []any{token}, db.ScanText)
	if err == nil {
		err = s.store.Agrees(ctx, fold.TaskGrants, id)
	}
	return id, err
}

// Grants returns up to limit grants after an id that have not expired, of one task or, with "", all.
// The log has not been asked about them.
func (s Tasks) Grants(ctx context.Context, task, after string, now time.Time, limit int) ([]Grant, error) {
	where, args := db.Matching([2]string{"task_id IN (?, '')", task})
	return db.Rows(ctx, s.db, "the grants", `SELECT id, body FROM grants WHERE `+where+` AND id > ? AND expires_at > ? ORDER BY id LIMIT ?`,
		append(args, after, now.UnixMilli(), limit), func(stmt *sqlite.Stmt) (Grant, error) {
			return Grant{ID: stmt.ColumnText(0), Body: db.ColumnBytes(stmt, 1)}, nil
		})
}

// GrantsUnder returns the ids of the grants that were given under a grant, unless they were revoked or
// have expired.
func (s Tasks) GrantsUnder(ctx context.Context, id string, now time.Time) ([]string, error) {
	return db.Rows(ctx, s.db, "the grants", `SELECT id FROM grants WHERE expires_at > ? AND json_extract(body, '$.under') = ? AND json_extract(body, '$.revoked_at') IS NULL ORDER BY id`,
		[]any{now.UnixMilli(), id}, db.ScanText)
}

// Grant returns a grant with all that is stored of it.
func (s Tasks) Grant(ctx context.Context, id string) (Grant, error) {
	if err := s.store.Agrees(ctx, fold.TaskGrants, id); err != nil {
		return Grant{}, err
	}
	return db.Row(ctx, s.db, "the grant", `SELECT id, token, task_id, expires_at, body FROM grants WHERE id = ?`, []any{id}, func(stmt *sqlite.Stmt) (Grant, error) {
		return Grant{ID: stmt.ColumnText(0), Token: db.ColumnBytes(stmt, 1), TaskID: stmt.ColumnText(2), ExpiresAt: db.TimeOf(stmt.ColumnInt64(3)), Body: db.ColumnBytes(stmt, 4)}, nil
	})
}
