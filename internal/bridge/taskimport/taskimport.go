// Package taskimport reads the files of a project of the protocol's first version:
// shared/blackboard.json, specs/ID.md and .beads/issues.jsonl. It changes nothing. It
// returns the tasks to import, the content that tasks cannot hold, and the errors, each
// with file and line.
//
// The files are untrusted: all sizes are bounded, and only regular files are read.
package taskimport

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/task"
)

// The files of a project.
const (
	Blackboard = "shared/blackboard.json"
	Issues     = ".beads/issues.jsonl"
	Specs      = "specs"
)

// Limits for one file, and for all specs together.
const (
	maxFile  = 64 << 20
	maxSpecs = 256 << 20
	maxLine  = 4 << 20
	maxTasks = 100_000
	maxNotes = 1000
)

// Note is a remark about a line of a file, or about the whole file if Line is 0.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line,omitzero"`
	Text string `json:"text,omitzero"`
}

func (n Note) String() string {
	if n.Line == 0 {
		return n.File + ": " + n.Text
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text)
}

// Task is one task of the old project.
type Task struct {
	ID    string     `json:"id"`
	Title string     `json:"title"`
	Phase task.Phase `json:"phase"`
	// Status is the status, in the words of the file.
	Status    string      `json:"status,omitzero"`
	Fields    task.Fields `json:"-"`
	Markdown  string      `json:"-"`
	Priority  int         `json:"priority"`
	Labels    []string    `json:"labels,omitempty"`
	DependsOn []string    `json:"depends_on,omitempty"`
	// Artifacts are files of the project.
	Artifacts []string       `json:"artifacts,omitempty"`
	Retries   int            `json:"retries,omitzero"`
	LastError string         `json:"last_error,omitzero"`
	Missing   []task.Missing `json:"missing"`
	// At is the task's position.
	At Note `json:"at"`

	description, criteria, circuit string
	closed                         bool
}

// Origin is the task's former name.
func (t *Task) Origin() string { return "v1:" + t.ID }

// Project is the result of reading a project.
type Project struct {
	// Tasks are in order: each one follows those that it depends on.
	Tasks []*Task `json:"tasks"`
	// Dropped is content that tasks cannot hold. Guidance is where agents are told to work
	// by the first version.
	Dropped  []Note `json:"dropped"`
	Guidance []Note `json:"guidance"`
	// Faults must be fixed before the import, because a task would be lost or changed.
	Faults []Note `json:"faults"`
}

// reader reads one project.
type reader struct {
	files fs.FS
	p     *Project
	tasks map[string]*Task
	order []*Task
	// tombstones are ids of deleted tasks. edges are the dependencies in the issues, with
	// their position.
	tombstones map[string]bool
	edges      map[string][]edge
}

type edge struct {
	to string
	at Note
}

// Read reads a project.
func Read(files fs.FS) *Project {
	r := &reader{
		files: files, p: &Project{Tasks: []*Task{}, Dropped: []Note{}, Guidance: []Note{}, Faults: []Note{}}, tasks: make(map[string]*Task), tombstones: make(map[string]bool),
		edges: make(map[string][]edge),
	}
	r.issues()
	r.blackboard()
	r.specs()
	for _, t := range r.order {
		r.finish(t)
	}
	r.sort()
	r.guidance()
	return r.p
}

func add(list *[]Note, at Note, format string, args ...any) {
	switch n := len(*list); {
	case n < maxNotes:
		at.Text = fmt.Sprintf(format, args...)
		*list = append(*list, at)
	case n == maxNotes:
		*list = append(*list, Note{File: at.File, Text: fmt.Sprintf("and more: only %d are named", maxNotes)})
	}
}

func (r *reader) fault(at Note, format string, args ...any) { add(&r.p.Faults, at, format, args...) }
func (r *reader) drop(at Note, format string, args ...any)  { add(&r.p.Dropped, at, format, args...) }

// read returns a file. It returns false if there is none, and reports a fault if it cannot be read.
func (r *reader) read(name string, limit int64) ([]byte, bool) {
	info, err := fs.Stat(r.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	at := Note{File: name}
	switch {
	case err != nil:
		r.fault(at, "it cannot be read: %v", err)
		return nil, false
	case !info.Mode().IsRegular():
		r.fault(at, "it is no regular file")
		return nil, false
	}
	f, err := r.files.Open(name)
	if err != nil {
		r.fault(at, "it cannot be read: %v", err)
		return nil, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		r.fault(at, "it cannot be read: %v", err)
		return nil, false
	case int64(len(text)) > limit:
		r.fault(at, "it is larger than %d bytes", limit)
		return nil, false
	}
	return text, true
}

// maxID bounds an id, so that the prefixed id is a valid name.
const maxID = 120

// goodID reports whether an id is valid; it is part of a file name.
func goodID(id string) bool {
	if id == "" || len(id) > maxID || strings.HasPrefix(id, ".") {
		return false
	}
	for _, c := range []byte(id) {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", rune(c)) {
			return false
		}
	}
	return true
}

// task returns the task with an id, and creates it if necessary. It returns nil for an invalid id.
func (r *reader) task(id string, at Note) *Task {
	if t, ok := r.tasks[id]; ok {
		return t
	}
	switch {
	case !goodID(id):
		r.fault(at, "%.80q is no id of a task: letters, digits, dots, lines and _ make one, up to %d", id, maxID)
		return nil
	case len(r.order) >= maxTasks:
		if len(r.order) == maxTasks {
			r.fault(at, "there are more than %d tasks", maxTasks)
		}
		return nil
	}
	t := &Task{ID: id, At: at, Priority: task.DefaultPriority}
	r.tasks[id], r.order = t, append(r.order, t)
	return t
}

// specs reads all specs, including those of tasks that no other file names.
func (r *reader) specs() {
	entries, err := fs.ReadDir(r.files, Specs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fault(Note{File: Specs}, "it cannot be read: %v", err)
	}
	size := 0
	for _, e := range entries {
		name := path.Join(Specs, e.Name())
		id, ok := strings.CutSuffix(e.Name(), ".md")
		if !ok {
			r.drop(Note{File: name}, "it is no spec: one is named ID.md")
			continue
		}
		if r.tombstones[id] {
			r.drop(Note{File: name}, "its task was deleted")
			continue
		}
		text, ok := r.read(name, task.MaxSpecBytes)
		if !ok {
			continue
		}
		if size += len(text); size > maxSpecs {
			r.fault(Note{File: name}, "the specs up to this one are larger than %d bytes", maxSpecs)
			return
		}
		t := r.task(id, Note{File: name, Line: 1})
		if t == nil {
			continue
		}
		file, err := task.ReadFile(text)
		if err != nil {
			r.fault(Note{File: name}, "%v", err)
			continue
		}
		if file.Front != nil {
			r.drop(Note{File: name, Line: 1}, "the front matter: title, labels and priority are those of the issue")
		}
		t.Markdown = strings.ToValidUTF8(file.Markdown, "�")
	}
}

// finish builds the imported task from everything read.
func (r *reader) finish(t *Task) {
	fields, title := task.ReadMarkdown([]byte(t.Markdown))
	if strings.TrimSpace(fields.Goal) == "" && strings.TrimSpace(t.description) != "" {
		fields.Goal = t.description
	}
	if len(fields.AcceptanceCriteria) == 0 && strings.TrimSpace(t.criteria) != "" {
		fields.AcceptanceCriteria = items(t.criteria)
	}
	for name, list := range map[string]*[]string{
		"scope": &fields.ScopeIn, "non-goals": &fields.ScopeOut, "inputs": &fields.Inputs, "outputs": &fields.Outputs, "acceptance criteria": &fields.AcceptanceCriteria, "risks": &fields.Risks,
	} {
		if len(*list) > task.MaxEntries {
			r.drop(t.At, "%s: all entries of %s after the first %d; they stay in the Markdown", t.ID, name, task.MaxEntries)
			*list = (*list)[:task.MaxEntries]
		}
	}
	if spec := (task.Spec{Fields: fields, Markdown: t.Markdown}); spec.Oversized() != "" {
		r.fault(t.At, "%s: %s, with what the issue says", t.ID, spec.Oversized())
	}
	t.Fields = fields
	t.Title = cmp.Or(strings.TrimSpace(t.Title), strings.TrimSpace(title), t.ID)
	if len(t.Title) > task.MaxTitle {
		r.drop(t.At, "%s: the title from byte %d on", t.ID, task.MaxTitle)
		t.Title = text.Clip(t.Title, task.MaxTitle)
	}
	switch {
	case t.closed:
		t.Phase = task.Completed
	case t.circuit != "" && t.circuit != task.CircuitClosed:
		t.Phase = task.CircuitOpen
		t.LastError = cmp.Or(t.LastError, "the circuit was "+t.circuit)
	default:
		t.Phase = task.SpecDraft
	}
	if len(t.LastError) > task.MaxText {
		t.LastError = text.Clip(t.LastError, task.MaxText)
		r.drop(t.At, "%s: the last error from byte %d on", t.ID, task.MaxText)
	}
	t.Missing = t.Fields.Missing(t.Title)
	r.artifacts(t)
}

// maxArtifact is the size limit of files that the daemon hashes.
const maxArtifact = 64 << 20

// regular returns a regular file of the project without symbolic links in its path, or an
// error. The daemon, which hashes the file, follows no links.
func (r *reader) regular(file string) (info fs.FileInfo, err error) {
	if !fs.ValidPath(file) {
		return nil, fs.ErrInvalid
	}
	for i := range len(file) + 1 {
		if i < len(file) && file[i] != '/' {
			continue
		}
		if info, err = fs.Lstat(r.files, file[:i]); err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 || i == len(file) && !info.Mode().IsRegular() {
			return nil, fs.ErrInvalid
		}
	}
	return info, nil
}

// artifacts keeps only files of the project.
func (r *reader) artifacts(t *Task) {
	named := t.Artifacts
	slices.Sort(named)
	t.Artifacts = nil
	for _, name := range slices.Compact(named) {
		file := path.Clean(name)
		info, err := r.regular(file)
		switch {
		case err != nil:
			r.drop(t.At, "%s: the artifact %.200q, which is no file of the project", t.ID, name)
		case info.Size() > maxArtifact:
			r.drop(t.At, "%s: the artifact %.200q, which is larger than %d bytes", t.ID, name, maxArtifact)
		case len(t.Artifacts) == task.MaxEntries:
			r.drop(t.At, "%s: the artifact %.200q: an import takes %d", t.ID, name, task.MaxEntries)
		default:
			t.Artifacts = append(t.Artifacts, file)
		}
	}
}

// items returns the lines of a text without list marks.
func items(text string) (list []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, mark := range []string{"- ", "* ", "+ ", "[ ] ", "[x] ", "[X] "} {
			line = strings.TrimPrefix(line, mark)
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// sort puts each task after its dependencies, and drops dependencies that close a cycle.
func (r *reader) sort() {
	const (
		open = 1
		done = 2
	)
	state := make(map[string]int)
	// Not recursive: a chain can be as long as the number of tasks.
	type step struct {
		t    *Task
		next int
	}
	for _, first := range r.order {
		if state[first.ID] != 0 {
			continue
		}
		stack := []step{{t: first}}
		state[first.ID] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			edges := r.edges[top.t.ID]
			if top.next == len(edges) {
				state[top.t.ID] = done
				r.p.Tasks = append(r.p.Tasks, top.t)
				stack = stack[:len(stack)-1]
				continue
			}
			e := edges[top.next]
			top.next++
			t := top.t
			on, ok := r.tasks[e.to]
			switch {
			case r.tombstones[e.to]:
				r.drop(e.at, "%s waits for %s, which was deleted", t.ID, e.to)
			case !ok:
				r.drop(e.at, "%s waits for %.80q, which is not there", t.ID, e.to)
			case state[e.to] == open:
				r.drop(e.at, "%s waits for %s, which waits for it: a circle is cut here", t.ID, e.to)
			case slices.Contains(t.DependsOn, e.to):
			case len(t.DependsOn) == task.MaxDependencies:
				r.fault(e.at, "%s waits for more than %d tasks", t.ID, task.MaxDependencies)
				top.next = len(edges)
			default:
				t.DependsOn = append(t.DependsOn, e.to)
				if state[e.to] == 0 {
					state[e.to] = open
					stack = append(stack, step{t: on})
				}
			}
		}
	}
}
