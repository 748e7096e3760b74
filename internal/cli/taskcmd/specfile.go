package taskcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"go.yaml.in/yaml/v3"
)

// source reads a file, or stdin for -. what names the content in errors.
func (t *command) source(ctx context.Context, file, what string) ([]byte, error) {
	if file == "-" {
		return t.ReadStdin(ctx)
	}
	text, err := cli.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the %s: %w", what, err)
	}
	return text, nil
}

// readSpec reads the spec from a file that could create a task, and ignores the rest.
func (t *command) readSpec(ctx context.Context, file string) (markdown *string, fields *task.Fields, err error) {
	source, err := t.source(ctx, file, "spec file")
	if err != nil {
		return nil, nil, err
	}
	if isJSON(source) {
		p, err := readJSON(file, source)
		switch {
		case err != nil:
			return nil, nil, err
		case p.SpecRef != nil || p.Spec == nil && p.SpecMarkdown == "":
			return nil, nil, fmt.Errorf("cannot read %s: an update takes the spec from spec or spec_markdown, and it has neither", file)
		}
		t.leavesOut(file)
		return &p.SpecMarkdown, p.Spec, nil
	}
	f, err := task.ReadFile(source)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	if f.Front != nil {
		t.leavesOut(file)
	}
	return &f.Markdown, nil, nil
}

// leavesOut says that only the spec of a file is used.
func (t *command) leavesOut(file string) {
	fmt.Fprintf(t.Stderr, "of %s the spec is taken, and nothing else: title, labels, priority and dependencies have flags\n", term.OneLine(file))
}

func isJSON(source []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(source), []byte("{")) }

func readJSON(file string, source []byte) (*taskapi.CreateParams, error) {
	p := new(taskapi.CreateParams)
	if err := json.Unmarshal(source, p, json.RejectUnknownMembers(true)); err != nil {
		return nil, jsonFault(file, source, err)
	}
	return p, nil
}

// readTask reads the description of a new task: Markdown with front matter, or JSON. It
// prints all faults on stderr, each with its position.
func (t *command) readTask(ctx context.Context, file string) (*taskapi.CreateParams, error) {
	source, err := t.source(ctx, file, "spec file")
	if err != nil {
		return nil, err
	}
	if isJSON(source) {
		return readJSON(file, source)
	}
	f, err := task.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	r := &frontReader{places: make(map[string]*yaml.Node)}
	p := r.read(f)
	for _, hint := range misnamed(source, f.Markdown) {
		fmt.Fprintf(t.Stderr, "%s:%s\n", file, term.OneLine(hint))
	}
	if len(r.faults) == 0 {
		return p, nil
	}
	slices.SortStableFunc(r.faults, func(a, b fault) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	for _, what := range r.faults {
		place := ""
		if what.line > 0 {
			place = fmt.Sprintf("%d:%d: ", what.line, what.column)
		}
		fmt.Fprintf(t.Stderr, "%s:%s%s\n", file, cmp.Or(place, " "), term.OneLine(what.text))
	}
	return nil, cli.ErrSaid
}

// jsonFault gives the position of an error in a JSON text.
func jsonFault(file string, source []byte, err error) error {
	at, what := int64(0), err.Error()
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		at = e.ByteOffset
		name := strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")
		switch {
		case errors.Is(e.Err, json.ErrUnknownName):
			what = fmt.Sprintf("there is no member %s", name)
		case e.GoType != nil:
			what = fmt.Sprintf("%s: want %s", name, kindOf(e.GoType))
		}
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, what = e.ByteOffset, e.Err.Error()
	}
	before := source[:min(int(at), len(source))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("%s:%d:%d: %s", file, line, column, what)
}

// fault is an error at a position of a file.
type fault struct {
	line, column int
	text         string
}

// frontReader reads front matter as the parameters of task.create.
type frontReader struct {
	// places are the nodes of members, by path.
	places map[string]*yaml.Node
	faults []fault
}

func (r *frontReader) add(n *yaml.Node, format string, args ...any) {
	f := fault{text: fmt.Sprintf(format, args...)}
	if n != nil {
		f.line, f.column = n.Line, n.Column
	}
	r.faults = append(r.faults, f)
}

func (r *frontReader) read(f task.File) *taskapi.CreateParams {
	p := new(taskapi.CreateParams)
	if f.Front != nil {
		r.walk(f.Front, reflect.TypeFor[taskapi.CreateParams](), "")
		if len(r.faults) > 0 {
			return nil
		}
		var plain map[string]any
		err := f.Front.Decode(&plain)
		var encoded []byte
		if err == nil {
			encoded, err = json.Marshal(plain)
		}
		if err == nil {
			err = json.Unmarshal(encoded, p)
		}
		if err != nil {
			r.add(f.Front, "%v", err)
			return nil
		}
	}
	_, title := task.ReadMarkdown([]byte(f.Markdown))
	p.Title, p.InitialPhase, p.SpecMarkdown = cmp.Or(p.Title, title), cmp.Or(p.InitialPhase, task.SpecDraft), f.Markdown
	for _, e := range members.Check(p) {
		n := r.places[e.Path]
		for path := e.Path; n == nil && path != ""; n = r.places[path] {
			path = path[:max(0, strings.LastIndexAny(path, ".["))]
		}
		switch {
		case e.Path == "title" && n == nil:
			r.add(nil, "there is no title: the front matter names it, or the first heading (# …) does")
		case e.Path == "workspace" && n == nil:
			r.add(nil, "there is no workspace: begin the file with a line of ---, then title: … and workspace: …, then a line of ---")
		case e.Path == "spec_markdown":
			r.add(nil, "there is no spec: write it under the headings %s", strings.Join(task.Headings(), ", "))
		default:
			r.add(n, "%s: %s", e.Path, e.Message)
		}
	}
	return p
}

// walk compares a node with its expected type.
func (r *frontReader) walk(n *yaml.Node, want reflect.Type, path string) {
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	r.places[path] = n
	if n.Tag == "!!null" {
		r.add(n, "%s: there is no value", path)
		return
	}
	var kind yaml.Kind
	switch {
	case want == reflect.TypeFor[jsontext.Value]():
		return
	case want == reflect.TypeFor[time.Time]():
		if _, err := time.Parse(time.RFC3339, n.Value); err != nil {
			r.add(n, "%s: want a time, such as 2026-01-02T15:04:05Z", path)
		}
		n.Tag = "!!str"
		return
	case want.Kind() == reflect.Struct, want.Kind() == reflect.Map:
		kind = yaml.MappingNode
	case want.Kind() == reflect.Slice:
		kind = yaml.SequenceNode
	default:
		kind = yaml.ScalarNode
	}
	if n.Kind != kind || kind == yaml.ScalarNode && want.Kind() == reflect.Int && n.Tag != "!!int" {
		r.add(n, "%s: want %s", path, kindOf(want))
		return
	}
	switch kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			r.walk(item, want.Elem(), path+"["+strconv.Itoa(i)+"]")
		}
	case yaml.MappingNode:
		r.members(n, want, path)
	default:
		if want.Kind() == reflect.String {
			n.Tag = "!!str" // true, 12 and dates are meant as texts
		}
	}
}

// members compares a mapping with a struct or a map of texts.
func (r *frontReader) members(n *yaml.Node, want reflect.Type, path string) {
	known := make(map[string]reflect.Type)
	if want.Kind() == reflect.Struct {
		namesOf(want, known)
	}
	if path == "" {
		// The spec follows the front matter, and the command chooses the request key.
		delete(known, "spec_markdown")
		delete(known, "request_key")
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+name.Value, ".")
		if line, twice := seen[name.Value]; twice {
			r.add(name, "%s stands on line %d already", at, line)
			continue
		}
		seen[name.Value] = name.Line
		of, ok := known[name.Value]
		switch {
		case want.Kind() == reflect.Map:
			r.walk(value, want.Elem(), at)
		case !ok:
			var names []string
			for k := range known {
				names = append(names, k)
			}
			slices.Sort(names)
			hint := ": there are " + strings.Join(names, ", ")
			if near := text.Nearest(name.Value, names, text.Near(name.Value)); near != "" {
				hint = fmt.Sprintf(": did you mean %q?", near)
			}
			r.add(name, "there is no member %q%s", at, hint)
		default:
			r.walk(value, of, at)
		}
	}
}

// namesOf collects the members of a struct with their types.
func namesOf(t reflect.Type, into map[string]reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			into[name] = f.Type
		case f.Anonymous:
			namesOf(f.Type, into)
		}
	}
}

// kindOf describes a type's values.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list, such as [a, b]"
	case reflect.Struct, reflect.Map:
		return "members, each name: value"
	default:
		return "a text"
	}
}

// misnamed finds headings that resemble a field of the spec but do not match it, with their
// lines in the source.
func misnamed(source []byte, markdown string) (hints []string) {
	line := bytes.Count(source, []byte("\n")) - strings.Count(markdown, "\n")
	var known []string
	for _, h := range task.Headings() {
		known = append(known, strings.ToLower(h))
	}
	code := false
	for l := range strings.Lines(markdown) {
		line++
		words := strings.TrimRight(l, "\r\n")
		if strings.HasPrefix(strings.TrimLeft(words, " "), "```") {
			code = !code
		}
		heading := strings.TrimLeft(words, "#")
		if code || heading == words || !strings.HasPrefix(heading, " ") || task.NamesField(heading) {
			continue
		}
		heading = strings.TrimSpace(heading)
		if near := text.Nearest(strings.ToLower(heading), known, text.Near(heading)); near != "" {
			hints = append(hints, fmt.Sprintf("%d:1: the heading %q names no field of a spec: did you mean %q?", line, heading, task.Headings()[slices.Index(known, near)]))
		}
	}
	return hints
}
