package hook

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
)

// Row describes a runtime that runs a command before a call of a tool: the form of its questions,
// the forms of the answers, and its conduct without an answer.
type Row struct {
	// Name is the runtime's name on command lines, and Title the name for people. Program is its
	// executable.
	Name, Title, Program string
	// Least is the oldest version that was seen to have this form of hooks, or zero. Run is the version that was run for this
	// row, or "" for one of which only the documentation was read.
	Least [3]int
	Run   string
	// Events are the runtime's events about calls of tools.
	Events []Event
	// Input has the members of the runtime's JSON. Without When, the runtime has one event only.
	Input Input
	// Parting separates an MCP server from its tool in the runtime's names of tools, and Own are
	// names before it that are no server's. Foreign begins the names of tools of servers that the
	// runtime does not name. All are "" if Input tells the server, or if the names are those of Claude
	// Code, which [toolgate.Question] knows.
	Parting string
	Own     []string
	Foreign string
	// Projects are the files with which a project lists servers of its own, below its folder. The
	// runtime starts them in the place of the user's servers of the same names. Users is the one that is the user's own list below the home.
	Projects []string
	Users    string
	// Defers is an environment variable, and the beginning of its value, with which the runtime runs
	// without a person, so that it can end its turn until one has decided.
	Defers [2]string
	// Wait is the number of seconds that the entered hook may take, as its settings say.
	Wait int
	// Fails lists the failures of a hook with the fate of the call, for people.
	Fails []Failure
	// Gated and Open say which calls it asks about, and which not. Off says how a user of the
	// runtime switches the hook off.
	Gated, Open, Off []string
	// Files are the files that the integration changes, for people. Guide is the page below docs/guides
	// about the runtime.
	Files []string
	Guide string
}

// Event is an event of a runtime, with the answers that it takes.
type Event struct {
	// Name is the runtime's, and Means is [toolgate.Before] or [toolgate.Permission].
	Name, Means string
	// Answers has an [Answer] for each decision. A decision without one is answered as a denial.
	Answers map[string]Answer
}

// Answer is the form of an answer. In Out, and only in a whole string of it, $reason stands for the
// reason.
type Answer struct {
	Out  string
	Exit int
	// Say is set if the runtime reads the reason from standard error.
	Say bool
}

// Input has the paths of members in a runtime's JSON, each as "member.member", or "".
type Input struct{ When, Tool, Arguments, Folder, Session, Call, Server, Name, Source string }

// Failure is one way in which a hook fails. Closed is set if the runtime then refuses the call.
type Failure struct {
	How    string
	Closed bool
}

// Rows is the table of the runtimes that run a command before a call of a tool, in the order of display.
func Rows() []Row { return slices.Clone(table) }

// Find returns the row of a runtime, or nil.
func Find(name string) *Row {
	rows := Rows()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// Names are the runtimes' names, in the order of the table.
func Names() []string {
	var names []string
	for _, r := range Rows() {
		names = append(names, r.Name)
	}
	return names
}

// event returns the event with a name, or nil.
func (r *Row) event(name string) *Event {
	i := slices.IndexFunc(r.Events, func(e Event) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Events[i]
}

// object reads a JSON object. Members are matched exactly, and a double one is an error: programs
// differ in the one that they use.
func object(raw []byte) (map[string]jsontext.Value, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("it is empty")
	}
	var members map[string]jsontext.Value
	err := json.Unmarshal(raw, &members)
	if kind := jsontext.Value(raw).Kind(); kind != '{' && jsontext.Value(raw).IsValid() {
		return nil, fmt.Errorf("it is %s", kinds[kind])
	}
	return members, err
}

// kinds are the words for JSON that is no object.
var kinds = map[jsontext.Kind]string{'[': "an array", '"': "a text", '0': "a number", 't': "true", 'f': "false", 'n': "null"}

// member returns the value at a path, or nil if there is none.
func member(raw []byte, path string) (jsontext.Value, error) {
	value := jsontext.Value(raw)
	for name := range strings.SplitSeq(path, ".") {
		members, err := object(value)
		if err != nil {
			return nil, err
		}
		if value = members[name]; value == nil {
			return nil, nil
		}
	}
	return value, nil
}

// text returns the text at a path, "" if there is none.
func text(raw []byte, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	value, err := member(raw, path)
	if err != nil || value == nil || value.Kind() == 'n' {
		return "", err
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", fmt.Errorf("%s is no text", path)
	}
	return s, nil
}

// Read parses a runtime's question. The event is nil if it is not known which one the runtime asks
// about.
func (r *Row) Read(raw []byte) (*toolgate.Question, *Event, error) {
	if _, err := object(raw); err != nil {
		return nil, nil, fmt.Errorf("the input of the hook is no JSON object: %w", err)
	}
	event := &r.Events[0]
	if r.Input.When != "" {
		name, err := text(raw, r.Input.When)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("the input of the hook: %w", err)
		case name == "":
			return nil, nil, fmt.Errorf("the input of the hook has no %s, which %s gives", r.Input.When, r.Title)
		}
		if event = r.event(name); event == nil {
			return nil, nil, fmt.Errorf("%s has asked at %q, which is not about a call of a tool", r.Title, name)
		}
	}
	q := &toolgate.Question{Event: event.Means}
	for _, one := range []struct {
		path string
		into *string
	}{{r.Input.Folder, &q.Folder}, {r.Input.Session, &q.Session}, {r.Input.Call, &q.Call}, {r.Input.Server, &q.Server}, {r.Input.Name, &q.Name}, {r.Input.Source, &q.Source}} {
		var err error
		if *one.into, err = text(raw, one.path); err != nil {
			return nil, event, fmt.Errorf("the input of the hook: %w", err)
		}
	}
	if err := r.arguments(raw, q); err != nil {
		return nil, event, fmt.Errorf("the input of the hook: %w", err)
	}
	if (q.Server == "") != (q.Name == "") {
		return nil, event, fmt.Errorf("the input of the hook names the server %q and the tool %q, of which one is missing", q.Server, q.Name)
	}
	if q.Server == "" {
		r.serverOf(q)
	}
	return q, event, q.Check()
}

// arguments reads the tool and its arguments.
func (r *Row) arguments(raw []byte, q *toolgate.Question) (err error) {
	if q.Tool, err = text(raw, r.Input.Tool); err != nil {
		return err
	}
	if q.Tool == "" {
		return fmt.Errorf("it has no %s", r.Input.Tool)
	}
	q.Input, err = member(raw, r.Input.Arguments)
	if err == nil && q.Input == nil {
		err = fmt.Errorf("it has no %s", r.Input.Arguments)
	}
	return err
}

// serverOf parses a tool's name for its MCP server. A name with a second parting could be that of
// another server.
func (r *Row) serverOf(q *toolgate.Question) {
	q.Foreign = r.Foreign != "" && strings.HasPrefix(q.Tool, r.Foreign)
	if r.Parting == "" {
		return
	}
	if name, ok := strings.CutPrefix(q.Tool, toolgate.Canary+r.Parting); ok {
		q.Server, q.Name = toolgate.Canary, name
		return
	}
	server, name, ok := strings.Cut(q.Tool, r.Parting)
	if !ok || server == "" || name == "" || slices.Contains(r.Own, server) {
		return
	}
	q.Server, q.Name = server, name
	q.Unsure = strings.Contains(name, r.Parting) || strings.HasPrefix(name, r.Parting[:1])
}

// Write returns a question in the runtime's form, as [Row.Read] reads it.
func (r *Row) Write(q *toolgate.Question) ([]byte, error) {
	event := &r.Events[0]
	whole := make(map[string]any)
	put := func(path string, value any) {
		if path == "" || value == "" {
			return
		}
		into := whole
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			next, ok := into[name].(map[string]any)
			if !ok {
				next = make(map[string]any)
				into[name] = next
			}
			into = next
		}
		into[names[len(names)-1]] = value
	}
	tool := q.Tool
	if q.Server != "" && r.Parting != "" {
		tool = q.Server + r.Parting + q.Name
	}
	for _, one := range []struct{ path, value string }{
		{r.Input.When, event.Name}, {r.Input.Tool, tool}, {r.Input.Folder, q.Folder}, {r.Input.Session, q.Session},
		{r.Input.Call, q.Call}, {r.Input.Server, q.Server}, {r.Input.Name, q.Name}, {r.Input.Source, q.Source},
	} {
		put(one.path, one.value)
	}
	put(r.Input.Arguments, q.Input)
	return json.Marshal(whole, json.Deterministic(true))
}

// Said is an answer as it is given: the output, the text for standard error, and the exit code.
type Said struct {
	Out, Err []byte
	Exit     int
}

// Say puts a verdict into the runtime's form. Without an event it uses the form of the first one.
func (r *Row) Say(event *Event, v toolgate.Verdict) Said {
	if event == nil {
		event = &r.Events[0]
	}
	a, ok := event.Answers[v.Decision]
	if !ok {
		a = event.Answers[toolgate.Deny]
	}
	reason, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(v.Reason, "\uFFFD"))
	s := Said{Exit: a.Exit}
	if a.Out != "" {
		s.Out = append(bytes.ReplaceAll([]byte(a.Out), []byte(`"$reason"`), reason), '\n')
	}
	if a.Say {
		s.Err = []byte(v.Reason + "\n")
	}
	return s
}

// Refused reports whether an answer refuses the call.
func (r *Row) Refused(out []byte, exit int) bool {
	for i := range r.Events {
		a := r.Events[i].Answers[toolgate.Deny]
		parts := strings.Split(a.Out, `"$reason"`)
		before, after := parts[0], parts[len(parts)-1]
		got := strings.TrimSpace(string(out))
		if exit == a.Exit && len(got) > len(before)+len(after) && strings.HasPrefix(got, before) && strings.HasSuffix(got, after) {
			return true
		}
	}
	return false
}
