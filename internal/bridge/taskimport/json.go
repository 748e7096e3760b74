package taskimport

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/task"
)

// member is a name and a value of a JSON object, with its line.
type member struct {
	name  string
	value jsontext.Value
	at    Note
}

// members splits a JSON object into its members. at is the start of the text.
func (r *reader) members(text jsontext.Value, at Note) (list []member, ok bool) {
	line := func(offset int64) Note {
		return Note{File: at.File, Line: at.Line + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))}
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	fail := func(err error) ([]member, bool) {
		what := err.Error()
		where := line(d.InputOffset())
		if e, isSyntax := errors.AsType[*jsontext.SyntacticError](err); isSyntax {
			where, what = line(e.ByteOffset), e.Err.Error()
		}
		r.fault(where, "it is no JSON: %s", what)
		return nil, false
	}
	if d.PeekKind() != '{' {
		if d.PeekKind() == jsontext.KindInvalid {
			_, err := d.ReadToken()
			return fail(err)
		}
		r.fault(at, "want an object, it is %s", kind(text))
		return nil, false
	}
	if _, err := d.ReadToken(); err != nil {
		return fail(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return fail(err)
		}
		m := member{name: name.String(), at: line(d.InputOffset())}
		value, err := d.ReadValue()
		if err != nil {
			return fail(err)
		}
		m.value = value.Clone()
		list = append(list, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return fail(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		r.fault(line(d.InputOffset()), "something follows the object")
		return nil, false
	}
	return list, true
}

// kind names the kind of a value.
func kind(v jsontext.Value) string {
	switch v.Kind() {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "a text"
	case '0':
		return "a number"
	case '[':
		return "a list"
	default:
		return "an object"
	}
}

// text reads a string, or "" for null.
func (r *reader) text(m member) (s string) {
	if m.value.Kind() == 'n' {
		return ""
	}
	if m.value.Kind() != '"' || json.Unmarshal(m.value, &s) != nil {
		r.fault(m.at, "%s: want a text, it is %s", m.name, kind(m.value))
		return ""
	}
	return s
}

// number reads a whole number, or returns otherwise for null.
func (r *reader) number(m member, otherwise int) (n int) {
	if m.value.Kind() == 'n' {
		return otherwise
	}
	if json.Unmarshal(m.value, &n) != nil {
		r.fault(m.at, "%s: want a whole number, it is %s", m.name, kind(m.value))
		return otherwise
	}
	return n
}

// blackboard reads the state of roles and tasks.
func (r *reader) blackboard() {
	source, ok := r.read(Blackboard, maxFile)
	if !ok {
		return
	}
	list, ok := r.members(bytes.TrimPrefix(source, []byte("\ufeff")), Note{File: Blackboard, Line: 1})
	if !ok {
		return
	}
	for _, m := range list {
		switch m.name {
		case "agents":
			r.agents(m)
		case "tasks":
			r.retries(m)
		case "signals":
			var signals []jsontext.Value
			if json.Unmarshal(m.value, &signals) != nil || len(signals) > 0 {
				r.drop(m.at, "signals: nobody waits for them any more")
			}
		default:
			r.drop(m.at, "%.80q", m.name)
		}
	}
}

// agents reads the artifacts of each role. It drops the role's status and session, because
// attempts, grants and leases replace them.
func (r *reader) agents(of member) {
	roles, _ := r.members(of.value, of.at)
	for _, role := range roles {
		list, ok := r.members(role.value, role.at)
		if !ok {
			continue
		}
		var id, artifact string
		var at Note
		for _, m := range list {
			switch m.name {
			case "task":
				id = r.text(m)
			case "artifact":
				artifact = r.text(m)
				at = m.at
			default:
				r.drop(m.at, "agents.%.80s.%.80s: who does what is a task's attempts and grants", role.name, m.name)
			}
		}
		switch {
		case artifact == "":
		case id == "":
			r.drop(at, "agents.%.80s.artifact: no task is named beside it", role.name)
		case r.tombstones[id]:
			r.drop(at, "agents.%.80s.artifact: its task %s was deleted", role.name, id)
		case len(artifact) > task.MaxText:
			r.fault(at, "artifact: longer than %d bytes", task.MaxText)
		default:
			if t := r.task(id, at); t != nil {
				t.Artifacts = append(t.Artifacts, artifact)
			}
		}
	}
}

// retries reads the number of retries of each task.
func (r *reader) retries(of member) {
	tasks, _ := r.members(of.value, of.at)
	for _, one := range tasks {
		if r.tombstones[one.name] {
			r.drop(one.at, "tasks.%s: it was deleted", one.name)
			continue
		}
		t := r.task(one.name, one.at)
		if t == nil {
			continue
		}
		list, _ := r.members(one.value, one.at)
		for _, m := range list {
			switch m.name {
			case "retry_count":
				if t.Retries = r.number(m, 0); t.Retries < 0 {
					r.fault(m.at, "retry_count: %d is less than none", t.Retries)
				}
			case "last_error":
				t.LastError = r.text(m)
			case "circuit_status":
				t.circuit = r.text(m)
				t.circuit = strings.ToLower(strings.TrimSpace(t.circuit))
			default:
				r.drop(m.at, "tasks.%s.%.80s", one.name, m.name)
			}
		}
	}
}

// issues reads the issues, one a line.
func (r *reader) issues() {
	source, ok := r.read(Issues, maxFile)
	if !ok {
		return
	}
	n := 0
	for line := range bytes.Lines(bytes.TrimPrefix(source, []byte("\ufeff"))) {
		n++
		at := Note{File: Issues, Line: n}
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case len(line) > maxLine:
			r.fault(at, "the line is longer than %d bytes", maxLine)
		default:
			r.issue(line, at)
		}
	}
}

func (r *reader) issue(line []byte, at Note) {
	list, ok := r.members(line, at)
	if !ok {
		return
	}
	values := make(map[string]member)
	for _, m := range list {
		values[m.name] = m
	}
	text := func(name string) string {
		m, ok := values[name]
		delete(values, name)
		if !ok {
			return ""
		}
		return r.text(m)
	}
	faults := len(r.p.Faults)
	id, status := text("id"), text("status")
	if id == "" {
		if len(r.p.Faults) == faults { // else it was said already
			r.fault(at, "the issue has no id")
		}
		return
	}
	if first, twice := r.tasks[id]; twice || r.tombstones[id] {
		where := ""
		if twice {
			where = ", as on line " + itoa(first.At.Line)
		}
		r.fault(at, "the id %.80s stands here again%s", id, where)
		return
	}
	if status == "tombstone" {
		r.tombstones[id] = true
		r.drop(at, "%.80s: it was deleted", id)
		return
	}
	t := r.task(id, at)
	if t == nil {
		return
	}
	t.Status, t.closed = status, status == "closed"
	if len(t.Status) > 64 {
		r.fault(at, "status: longer than 64 bytes")
	}
	t.Title, t.description, t.criteria = text("title"), text("description"), text("acceptance_criteria")
	if m, ok := values["priority"]; ok {
		if t.Priority = r.number(m, task.DefaultPriority); t.Priority < 0 || t.Priority > task.MaxPriority {
			r.drop(at, "%s: priority %d, which is not between 0 and %d; it is %d now", id, t.Priority, task.MaxPriority, task.DefaultPriority)
			t.Priority = task.DefaultPriority
		}
		delete(values, "priority")
	}
	r.labels(t, values["labels"], at)
	r.dependencies(t, values["dependencies"], at)
	delete(values, "labels")
	delete(values, "dependencies")
	var others []string
	for name, m := range values {
		if k := m.value.Kind(); k != 'n' && string(m.value) != `""` && string(m.value) != "[]" && string(m.value) != "{}" {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		r.drop(at, "%s: %.400s", id, strings.Join(others, ", "))
	}
}

// maxLabel bounds a label.
const maxLabel = 64

func (r *reader) labels(t *Task, m member, at Note) {
	if len(m.value) == 0 || m.value.Kind() == 'n' {
		return
	}
	var labels []string
	if json.Unmarshal(m.value, &labels) != nil {
		r.fault(at, "labels: want a list of texts")
		return
	}
	slices.Sort(labels)
	for _, l := range slices.Compact(labels) {
		switch {
		case l == "":
		case len(l) > maxLabel, len(t.Labels) == task.MaxLabels:
			r.drop(at, "%s: the label %.80q: a task has up to %d, of up to %d bytes", t.ID, l, task.MaxLabels, maxLabel)
		default:
			t.Labels = append(t.Labels, l)
		}
	}
}

func (r *reader) dependencies(t *Task, m member, at Note) {
	if len(m.value) == 0 || m.value.Kind() == 'n' {
		return
	}
	var list []struct {
		On   string `json:"depends_on_id"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(m.value, &list); err != nil {
		r.fault(at, "dependencies: want a list of {depends_on_id, type}")
		return
	}
	for _, d := range list {
		switch {
		case d.On == t.ID:
			r.drop(at, "%s: it waits for itself", t.ID)
		case d.Type == "blocks":
			r.edges[t.ID] = append(r.edges[t.ID], edge{d.On, at})
		default:
			r.drop(at, "%s: %.80q of %.80s, which keeps nothing from beginning", t.ID, d.Type, d.On)
		}
	}
}
