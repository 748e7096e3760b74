package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/fold"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskstore"
	"go.uber.org/zap"
)

// taskFigures are the figures of tasks.
func taskFigures() []figure {
	return []figure{
		{"task transition p50, 1 connection", "append+fsync", "≤ 1.8×", transitionLatency},
		{"task transitions/s, 64 connections × 4", "—", "≥ 15000/s", transitionRate},
		{"task heartbeat p50, 1 connection", "JSON echo", "≤ 1.5×", taskHeartbeat},
		{"task get p50, many tasks", "empty store", "≤ 1.2×", func(b *bench) (result, error) {
			return manyTasks(b, func(o *orchestrator) func() error { return o.get })
		}},
		{"task transition p50, many tasks", "empty store", "≤ 1.2×", func(b *bench) (result, error) {
			return manyTasks(b, func(o *orchestrator) func() error { return o.transition })
		}},
		{"task list_ready p99, many tasks", "—", "≤ 5 ms", listReady},
	}
}

// benchSpec is a spec that lacks nothing.
const benchSpec = "## Goal\nAccountants download a month of invoices as CSV.\n## Scope\n- the endpoint GET /invoices.csv\n## Non-goals\n- other formats\n## Inputs\n- internal/invoice/\n" +
	"## Outputs\n- internal/evidence/export/*.go\n## Acceptance criteria\n- `go test ./internal/evidence/export` exits with 0\n## Risks\n- commas and quotes in names\n"

// orchestrator is a connection of the actor lead, with tasks of its own.
type orchestrator struct {
	*conn
	ids     []string
	attempt string
	drafts  bool // the tasks are in spec_draft, else in spec_review
}

// member is a text member of an answer.
func member(line []byte, name string) string {
	_, rest, _ := strings.Cut(string(line), `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// orchestrator attaches with a grant of its own, and makes tasks.
func (d *daemon) orchestrator(tasks int) (*orchestrator, error) {
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return nil, err
	}
	defer operator.socket.Close()
	granted, err := operator.call("task.grant", `{"actor":"lead"}`)
	if err != nil {
		return nil, err
	}
	c, err := dial(d.socket)
	if err != nil {
		return nil, err
	}
	o := &orchestrator{conn: c, drafts: true}
	if _, err := o.call("task.attach", fmt.Sprintf(`{"token":%q}`, member(granted, "token"))); err != nil {
		return nil, err
	}
	for range tasks {
		created, err := o.call("task.create", fmt.Sprintf(`{"title":"Invoices get a CSV export","spec_markdown":%s,"workspace":"billing","initial_phase":"spec_draft"}`, quoted(benchSpec)))
		if err != nil {
			return nil, err
		}
		o.ids = append(o.ids, member(created, "task_id"))
	}
	return o, nil
}

func quoted(s string) []byte {
	text, _ := json.Marshal(s) //nolint:errchkjson // a string
	return text
}

// transition moves each of the tasks to the other phase.
func (o *orchestrator) transition() error {
	from, to := "spec_draft", "spec_review"
	if !o.drafts {
		from, to = to, from
	}
	o.drafts = !o.drafts
	o.buf = o.buf[:0]
	for _, id := range o.ids {
		o.ask("task.transition", `{"task_id":"`+id+`","from_phase":"`+from+`","to_phase":"`+to+`","actor":"lead","actor_role":"orchestrator","reason":"the spec is looked at again"}`)
	}
	if _, err := o.socket.Write(o.buf); err != nil {
		return err
	}
	for range o.ids {
		if _, err := o.answer("task.transition"); err != nil {
			return err
		}
	}
	return nil
}

func (o *orchestrator) get() error {
	_, err := o.call("task.get", `{"task_id":"`+o.ids[0]+`"}`)
	return err
}

func (o *orchestrator) beat() error {
	_, err := o.call("task.record_checkpoint", `{"task_id":"`+o.ids[0]+`","attempt_id":"`+o.attempt+`","checkpoint_type":"heartbeat","payload":{}}`)
	return err
}

// works has the first task's attempt run, past a reviewer.
func (o *orchestrator) works(d *daemon) error {
	if err := o.transition(); err != nil {
		return err
	}
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return err
	}
	defer operator.socket.Close()
	granted, err := operator.call("task.grant", `{"actor":"checker","task_id":"`+o.ids[0]+`"}`)
	if err != nil {
		return err
	}
	reviewer, err := dial(d.socket)
	if err != nil {
		return err
	}
	defer reviewer.socket.Close()
	id := `{"task_id":"` + o.ids[0] + `",`
	for _, step := range []struct {
		by             *conn
		method, params string
	}{
		{reviewer, "task.attach", fmt.Sprintf(`{"token":%q}`, member(granted, "token"))},
		{reviewer, "task.append_review", id + `"review_type":"spec","reviewer_ref":"checker","verdict":"approved","findings":[]}`},
		{o.conn, "task.transition", id + `"from_phase":"spec_review","to_phase":"execution_ready","actor":"lead","actor_role":"orchestrator","reason":"r"}`},
		{o.conn, "task.start_attempt", id + `"phase":"executing","actor":"lead","runtime":"local","executor_kind":"builder"}`},
	} {
		line, err := step.by.call(step.method, step.params)
		if err != nil {
			return err
		}
		o.attempt = member(line, "attempt_id")
	}
	return nil
}

// recorded is the line that a transition leaves in the log.
func (d *daemon) recorded(o *orchestrator) ([]byte, error) {
	if err := o.transition(); err != nil {
		return nil, err
	}
	return d.recordWith(`"event":"task.transitioned"`, o.get)
}

func transitionLatency(b *bench) (result, error) {
	d, err := b.start("tasks", 1)
	if err != nil {
		return result{}, err
	}
	o, err := d.orchestrator(1)
	if err != nil {
		return result{}, err
	}
	line, err := d.recorded(o)
	if err != nil {
		return result{}, err
	}
	return b.overAppend(o.transition, line)
}

func transitionRate(b *bench) (result, error) {
	d, err := b.start("transitions", 1)
	if err != nil {
		return result{}, err
	}
	var steps []func() error
	for range clients {
		o, err := d.orchestrator(talks)
		if err != nil {
			return result{}, err
		}
		steps = append(steps, o.transition)
	}
	return talksRate(steps, 15000)
}

func taskHeartbeat(b *bench) (result, error) {
	d, err := b.start("beats", 1)
	if err != nil {
		return result{}, err
	}
	e, err := b.echo()
	if err != nil {
		return result{}, err
	}
	o, err := d.orchestrator(1)
	if err == nil {
		err = o.works(d)
	}
	if err != nil {
		return result{}, err
	}
	floor, err := dial(e.socket)
	if err != nil {
		return result{}, err
	}
	other := &orchestrator{conn: floor, ids: o.ids, attempt: o.attempt}
	return compare(5*turns*turnSamples, o.beat, other.beat, 1.5)
}

// manyTasks compares a step in a store with many tasks with one in an empty store.
func manyTasks(b *bench, step func(*orchestrator) func() error) (result, error) {
	if err := b.manyTasks(); err != nil {
		return result{}, err
	}
	var sides [2]*orchestrator
	for i, name := range []string{"many-tasks", "few-tasks"} {
		d, err := b.start(name, 1)
		if err != nil {
			return result{}, err
		}
		if sides[i], err = d.settledOrchestrator(b); err != nil {
			return result{}, err
		}
	}
	return compare(turns*turnSamples, step(sides[0]), step(sides[1]), 1.2)
}

// settledOrchestrator is an orchestrator of a daemon that has indexed its log.
func (d *daemon) settledOrchestrator(b *bench) (*orchestrator, error) {
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return nil, err
	}
	defer operator.socket.Close()
	if err := d.indexed(b.ctx, operator); err != nil {
		return nil, err
	}
	return d.orchestrator(1)
}

func listReady(b *bench) (result, error) {
	if err := b.manyTasks(); err != nil {
		return result{}, err
	}
	d, err := b.start("many-tasks", 1)
	if err != nil {
		return result{}, err
	}
	o, err := d.settledOrchestrator(b)
	if err != nil {
		return result{}, err
	}
	var samples []time.Duration
	for i := range turns * turnSamples {
		began := time.Now()
		line, err := o.call("task.list_ready", `{"limit":10}`)
		if err != nil {
			return result{}, err
		}
		if n := bytes.Count(line, []byte(`"task_id"`)); n != 10 {
			return result{}, fmt.Errorf("%d tasks are ready", n)
		}
		if i >= turnSamples {
			samples = append(samples, time.Since(began))
		}
	}
	slices.Sort(samples)
	t := samples[len(samples)*99/100]
	return result{fmt.Sprintf("%s (p50 %s)", t.Round(time.Microsecond), samples[len(samples)/2].Round(time.Microsecond)), "—", "—", t <= 5*time.Millisecond}, nil
}

// openTasks is how many of the large store's tasks are open: fewer than a tenant may
// have, so that the figures can make theirs.
const openTasks = 99_900

// manyTasks makes a store with many tasks once, each with its spec and the record of
// its beginning. Those that are open are ready to be worked on.
func (b *bench) manyTasks() error {
	dir := filepath.Join(b.dir, "many-tasks", "openclawos")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	s, err := store.Open(b.ctx, store.Options{Path: filepath.Join(dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop(), Signing: signing(dir), RowKey: rowKey(dir)})
	if err != nil {
		return err
	}
	files, err := mirror.Open(b.ctx, mirror.Options{
		Path: filepath.Join(dir, "audit.jsonl"), Source: s, Clock: time.Now, Log: zap.NewNop(), RotateBytes: int64(config.Default().Audit.Rotate.Bytes),
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	fields, _ := task.ReadMarkdown([]byte(benchSpec))
	now := time.Now().UTC()
	const batch = 2000
	for done := 0; done < b.tasks && err == nil; done += batch {
		change := new(store.Change)
		for i := range min(batch, b.tasks-done) {
			if err = addTask(change, fields, now, done+i < openTasks); err != nil {
				break
			}
		}
		if err == nil {
			_, err = s.Commit(change)
		}
		if done%100_000 == 0 {
			fmt.Fprintf(os.Stderr, "  making tasks: %d of %d\r", done, b.tasks)
		}
	}
	fmt.Fprintln(os.Stderr)
	return errors.Join(err, b.packed(files, b.tasks), files.Close(b.ctx), s.Close())
}

// addTask adds a task to a change, as the daemon would keep it.
func addTask(change *store.Change, fields task.Fields, now time.Time, open bool) error {
	made, err := task.Decide(nil, task.Create{
		Title: "Invoices get a CSV export", Workspace: "billing", Tenant: "acme", Classification: "internal", Phase: task.SpecReview, Priority: task.DefaultPriority,
		Spec: task.Spec{Fields: fields, Markdown: benchSpec},
	}, &task.Actor{Name: "lead", Role: task.Orchestrator, Tenant: "acme"}, &task.World{NewID: func(prefix string) string { return prefix + uuid.Must(uuid.NewV7()).String() }}, now)
	if err != nil {
		return err
	}
	t := made.Task
	row := &taskstore.Task{ID: t.ID, Tenant: t.Tenant, Phase: string(task.Completed), Priority: t.Priority, Seq: t.Seq}
	if t.Phase = task.Completed; open {
		t.Phase, row.Phase, row.Open, row.Binds, row.ReadyAt = task.ExecutionReady, string(task.ExecutionReady), true, true, now
	}
	if row.Head, err = json.Marshal(&t.Head); err != nil {
		return err
	}
	body, err := json.Marshal(&t.Specs[0])
	if err != nil {
		return err
	}
	// The daemon compares the rows with the log when it starts.
	row.Parts.Spec(fold.Kept{}, t.Specs[0].Version)
	change.Add(row.Rows())
	change.Add(taskstore.Part{TaskID: t.ID, Kind: task.KindSpec, ID: "1", Body: body}.Rows())
	change.Records = append(change.Records, &audit.Record{
		ID: uuid.Must(uuid.NewV7()).String(), ActionType: audit.ActionTask, Event: "task.created", TenantID: t.Tenant, TaskID: t.ID, TaskSeq: 1,
		Actor: "lead", Role: string(task.Orchestrator), Classification: t.Classification, PolicyResult: audit.ResultAllow,
		PolicyApplied: "tasks-built-in", PolicyRevision: "sha256:0123456789ab",
		Details: map[string]any{"phase": "spec_review", "revision": 1, "now": made.Events[0].Now},
	})
	return nil
}
