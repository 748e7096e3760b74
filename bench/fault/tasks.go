package main

import (
	"fmt"
	"slices"
)

// tracked is a task as its creator knows it. Its title is its name, since the answer that
// has the id may be lost.
type tracked struct {
	title, id string
	// acknowledged is set once its creation was answered.
	acknowledged bool
	// known is the task by the last answer; maybe is the task if a call without an answer, or
	// one that could not be recorded, took effect.
	known, maybe stored
	other        string
}

// stored has the members of a task that are compared.
type stored struct {
	Phase    string `json:"phase"`
	Revision int    `json:"revision"`
}

// The tasks of a run. The second depends on the first.
const (
	firstTask  = "the first task"
	secondTask = "the second task"
)

const taskSpec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

// create makes a task. With the same key it is the same task.
func (p *people) create(title string, dependsOn ...string) *tracked {
	t := &tracked{title: title, maybe: stored{"spec_draft", 1}}
	p.mu.Lock()
	*p.tasks = append(*p.tasks, t)
	p.mu.Unlock()
	p.creates(t, dependsOn)
	return t
}

func (p *people) creates(t *tracked, dependsOn []string) {
	var made struct {
		stored
		ID string `json:"task_id"`
	}
	err := p.call(p.operator, "task.create", map[string]any{
		"title": t.title, "spec_markdown": taskSpec, "workspace": "billing", "initial_phase": "spec_draft", "request_key": t.title, "depends_on": append([]string{}, dependsOn...),
		"effects": []any{map[string]any{"idempotency_key": "tell", "side_effect_kind": "notification", "requested_action": "Tell ops", "params": map[string]any{"to": "ops"}}},
	}, &made)
	if t.answered(err) {
		t.id, t.acknowledged, t.known = made.ID, true, made.stored
	}
}

// answered judges an answer as that of a message is judged.
func (t *tracked) answered(err error) bool {
	var a attempt
	if a.judge(err); a.other != "" {
		t.other = a.other
	}
	return err == nil
}

// changes is a call that changes a task, and to what.
func (p *people) changes(t *tracked, to stored, method string, params map[string]any) {
	if !t.acknowledged || t.maybe != (stored{}) && t.maybe != t.known {
		// Nobody knows how it stands.
		return
	}
	params["task_id"], t.maybe = t.id, to
	var now stored
	if t.answered(p.call(p.operator, method, params, &now)) {
		t.known, t.maybe = now, now
	}
}

// manage makes tasks and changes them.
func (p *people) manage() {
	move := func(from, to string) map[string]any {
		return map[string]any{"from_phase": from, "to_phase": to, "actor": "me", "actor_role": "operator", "reason": "it is looked at"}
	}
	first := p.create(firstTask)
	if first.acknowledged {
		first.maybe = first.known
	}
	p.changes(first, stored{"spec_review", 2}, "task.transition", move("spec_draft", "spec_review"))
	p.changes(first, stored{"spec_review", 2}, "task.grant", map[string]any{"actor": "lead"})
	p.changes(first, stored{"spec_draft", 3}, "task.transition", move("spec_review", "spec_draft"))
	p.changes(first, stored{"spec_draft", 4}, "task.update", map[string]any{"spec_markdown": taskSpec + "- and commas\n", "priority": 1, "expected_revision": first.known.Revision})
	if first.acknowledged {
		p.create(secondTask, first.id)
	}
}

// inspect holds the tasks, once the daemon was started again, against what was answered
// and against their events.
func (p *people) inspect(o *outcome) {
	for _, t := range *p.tasks {
		if t.other != "" {
			o.wrong("a call about %q is answered with %s", t.title, t.other)
		}
		if !t.acknowledged && t.title == firstTask {
			// Once more with the same key: it is there, or it is made now.
			p.creates(t, nil)
		}
	}
	var list struct {
		Tasks []struct {
			stored
			ID    string `json:"task_id"`
			Title string `json:"title"`
		} `json:"tasks"`
	}
	if err := p.call(p.operator, "task.list", map[string]any{"limit": 100}, &list); err != nil {
		o.wrong("tasks cannot be listed: %v", err)
		return
	}
	found := map[string]int{}
	for _, now := range list.Tasks {
		found[now.Title]++
		i := slices.IndexFunc(*p.tasks, func(t *tracked) bool { return t.title == now.Title })
		if i < 0 && now.Title != effectTask {
			o.wrong("nobody made the task %q", now.Title)
			continue
		}
		if i < 0 {
			i = len(*p.tasks)
			*p.tasks = append(*p.tasks, &tracked{title: now.Title})
		}
		if t := (*p.tasks)[i]; t.acknowledged && (t.id != now.ID || now.stored != t.known && now.stored != t.maybe) {
			o.wrong("the task %q is %v, and was answered as %v, perhaps %v", t.title, now.stored, t.known, t.maybe)
		}
		if fault := p.events(now.ID, now.stored); fault != "" {
			o.wrong("the task %q: %s", now.Title, fault)
		}
	}
	for _, t := range *p.tasks {
		if n := found[t.title]; n > 1 || n == 0 && t.acknowledged {
			o.wrong("the task %q is there %d times", t.title, n)
		}
	}
}

// events names the fault in a task's events, "" if there is none: they must have no gap, and
// the last one must belong to the task as it is stored.
func (p *people) events(id string, now stored) string {
	var view struct {
		Events []struct {
			N int `json:"n"`
			stored
		} `json:"events"`
	}
	if err := p.call(p.operator, "task.get", map[string]any{"task_id": id, "include_events_limit": 200}, &view); err != nil {
		return err.Error()
	}
	for i, e := range view.Events {
		if e.N != i+1 {
			return fmt.Sprintf("event %d has number %d", i+1, e.N)
		}
	}
	if n := len(view.Events); n == 0 || view.Events[n-1].stored != now {
		return fmt.Sprintf("it is %v, and its %d events say something else", now, n)
	}
	return ""
}
