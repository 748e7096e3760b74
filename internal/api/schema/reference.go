package schema

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
)

// aboutText has a sentence on each method, and on each event.
//
//go:embed methods.txt
var aboutText string

// methodPage is the page of all methods, as far as it is written.
type methodPage struct {
	strings.Builder
	// shown maps the types of parameters to the first method with them, and parts the names of
	// types in parameters to these types.
	shown map[reflect.Type]string
	parts map[string]reflect.Type
}

const referenceHead = `# Methods

<!-- Made by "make reference" from the table of methods. Do not edit. -->

All methods and [events](#events) of this version, with the bounds that the daemon checks. [README.md](README.md#tables-of-methods) explains *access*. Bounds of
texts and of JSON are in bytes. ` + "`?`" + ` marks an optional member; a result member with it can be absent. *Errors* omits the codes that any method can answer: those for
lines and access, ` + "`INVALID_PARAMS`, `INTERNAL_ERROR`, `CONNECTION_CLOSED` and `UNKNOWN_ERROR`" + `.
`

// Part is a type of JSON that no method names, such as the caller's wishes in the metadata of a message.
type Part struct {
	Name string
	Type reflect.Type
}

const eventsHead = `
## Events

An event of a hook needs a [subscription](hooks.md), and the daemon sends the others without one. An event about an app goes to the apps that
share a tenant with it; in the [simple case](apps.md#rights-of-apps) to all. It contains nothing that the app chose, except its id. The payload
of a hook's event is ` + "`{eventId, hookName, data, context}`, and the last column lists the members of `data`" + `.

| event | raised | payload |
| --- | --- | --- |
`

// About has a description of each method and each event.
func About() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(aboutText) {
		if name, sentence, ok := strings.Cut(strings.TrimSpace(line), " | "); ok {
			all[name] = sentence
		}
	}
	return all
}

// Reference writes the page of all methods and events as Markdown, and of parts. A member of
// parameters without a meaning is an error, and so is a difference between the names and the
// descriptions.
func Reference(methods []Method, about map[string]string, parts ...Part) ([]byte, error) {
	w := &methodPage{shown: map[reflect.Type]string{}, parts: map[string]reflect.Type{}}
	w.WriteString(referenceHead)
	names := api.Events()
	for _, group := range grouped(methods) {
		m := group[0]
		names = append(names, m.Name)
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n%s", m.Name, about[m.Name], access(group))
		if err := w.params(m); err != nil {
			return nil, fmt.Errorf("cannot describe %s: %w", m.Name, err)
		}
		w.results(m)
	}
	if err := same(slices.Collect(maps.Keys(about)), names); err != nil {
		return nil, err
	}
	w.events(about)
	for _, p := range parts {
		fmt.Fprintf(w, "\n## %s\n", p.Name)
		if err := w.table(p.Type); err != nil {
			return nil, fmt.Errorf("cannot describe %s: %w", p.Name, err)
		}
	}
	w.WriteString("\n## Types of parameters\n")
	for done := 0; done < len(w.parts); { // a type can have parts of its own
		done = len(w.parts)
		for _, name := range slices.Sorted(maps.Keys(w.parts)) {
			if t := w.parts[name]; w.shown[t] == "" {
				w.shown[t] = name
				fmt.Fprintf(w, "\n### %s\n", name)
				if err := w.table(t); err != nil {
					return nil, fmt.Errorf("cannot describe %s: %w", name, err)
				}
			}
		}
	}
	return []byte(w.String()), nil
}

// grouped sorts methods by name. One name has a method for each of two sockets at most.
func grouped(methods []Method) (groups [][]*Method) {
	byName := map[string][]*Method{}
	for i := range methods {
		byName[methods[i].Name] = append(byName[methods[i].Name], &methods[i])
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		groups = append(groups, byName[name])
	}
	return groups
}

// access names the callers, the pace and the errors of a method.
func access(group []*Method) string {
	m := group[0]
	var callers, codes []string
	for _, one := range group {
		callers = append(callers, one.Access)
		for _, code := range one.Errors {
			if !slices.Contains(codes, "`"+string(code)+"`") {
				codes = append(codes, "`"+string(code)+"`")
			}
		}
	}
	text := "Access: " + strings.Join(callers, ", ")
	if m.Roles != "" {
		text += " (" + m.Roles + ")"
	}
	if m.Pace != "patient" {
		text += "; " + m.Pace
	}
	if signing := group[len(group)-1].Signing; signing == api.Signed || signing == api.SignedParams {
		text += map[api.Signing]string{api.Signed: "; signed by operators", api.SignedParams: "; parameters signed by operators"}[signing]
	}
	if text += "."; len(codes) > 0 {
		text += " Errors: " + strings.Join(codes, ", ") + "."
	}
	return text + "\n"
}

// params writes the parameters of a method.
func (w *methodPage) params(m *Method) error {
	switch before := w.shown[m.Params]; {
	case len(fieldsOf(m.Params)) == 0:
		w.WriteString("\nNo parameters.\n")
		return nil
	case before != "":
		fmt.Fprintf(w, "\nParameters: those of [%s](#%s).\n", before, anchor(before))
		return nil
	}
	w.shown[m.Params] = m.Name
	return w.table(m.Params)
}

// table writes the members of a struct in parameters.
func (w *methodPage) table(t reflect.Type) error {
	w.WriteString("\n| member | form | meaning |\n| --- | --- | --- |\n")
	for _, f := range fieldsOf(t) {
		b := members.Of(f.StructField)
		if b.Doc == "" {
			return fmt.Errorf("member %s has no meaning", f.name)
		}
		optional := "?"
		if b.Required || b.Nonempty && f.Type.Kind() == reflect.Slice {
			optional = ""
		}
		fmt.Fprintf(w, "| `%s%s` | %s | %s |\n", f.name, optional, w.form(f.Type, &b), strings.ReplaceAll(b.Doc, "|", "\\|"))
	}
	return nil
}

// form describes the values of a member.
func (w *methodPage) form(t reflect.Type, b *members.Bounds) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if filter, _ := api.FilterForm(); t == filter {
		return "[filter](operators.md#the-log)"
	}
	most := ""
	if n := b.Max + b.Keeps; n > 0 {
		most = fmt.Sprintf(", up to %d", n)
	}
	switch {
	case b.Words != nil:
		return "`" + strings.Join(b.Words, "`, `") + "`"
	case b.Prefix != "":
		return "id `" + b.Prefix + "…`"
	case t == reflect.TypeFor[jsontext.Value]() && b.Object:
		return "object" + most
	case t == reflect.TypeFor[jsontext.Value]():
		return "JSON" + most
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == api.TextForm():
		return "text"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		each := cmp.Or(b.Each, new(members.Bounds))
		return "list" + most + items(most) + ": " + w.form(t.Elem(), each)
	case reflect.Map:
		return "object" + most + items(most)
	case reflect.Struct:
		w.parts[t.Name()] = t
		return fmt.Sprintf("[%s](#%s)", t.Name(), anchor(t.Name()))
	case reflect.String:
		if b.Form != nil {
			return b.Form.Name + most
		}
		return "text" + most
	}
	return "number" + between(b)
}

// items is the unit of a bound of a list.
func items(most string) string {
	if most == "" {
		return ""
	}
	return " items"
}

// between is the range of a number.
func between(b *members.Bounds) string {
	switch {
	case !b.Ranged:
		return ""
	case b.High == math.MaxInt64:
		return fmt.Sprintf(", from %d", b.Low)
	}
	return fmt.Sprintf(", %d–%d", b.Low, b.High)
}

// results writes the members of a method's result, and the meanings of some.
func (w *methodPage) results(m *Method) {
	what := "Result"
	if m.Streams() {
		what = "Chunks"
	}
	if m.Opening != nil {
		fmt.Fprintf(w, "\nFirst answer: %s.\n", outline(m.Opening, 1))
	}
	fmt.Fprintf(w, "\n%s: %s.\n", what, outline(m.Result, 1))
	rows := meanings(m.Result, "", 1)
	if before := w.shown[m.Result]; before != "" && len(rows) > 0 {
		fmt.Fprintf(w, "[%s](#%s) explains the members.\n", before, anchor(before))
	} else if w.shown[m.Result] = m.Name; len(rows) > 0 {
		w.WriteString("\n| member | meaning |\n| --- | --- |\n" + strings.Join(rows, ""))
	}
}

// meanings are the rows of the members of a result that have a meaning.
func meanings(t reflect.Type, at string, depth int) (rows []string) {
	for _, f := range fieldsOf(t) {
		if doc := f.Tag.Get("doc"); doc != "" {
			rows = append(rows, fmt.Sprintf("| `%s%s` | %s |\n", at, f.name, doc))
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if depth > 0 {
			rows = append(rows, meanings(inner, at+f.name+".", depth-1)...)
		}
	}
	return rows
}

// events writes the table of events.
func (w *methodPage) events(about map[string]string) {
	w.WriteString(eventsHead)
	hooks := hookEvents()
	for _, name := range api.Events() {
		payload, names := payloads()[name], "`"+name+"`"
		if hook, ok := hooks[name]; ok {
			payload = hook.Data()
			if alias := hook.Alias(); alias != "" {
				names += ", `hook:" + alias + "`"
			}
		}
		members := outline(payload, 0)
		if payload == reflect.TypeFor[api.Object]() {
			members = "any"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", names, about[name], members)
	}
}

// outline lists the members of a type, with those of nested types to a depth.
func outline(t reflect.Type, depth int) string {
	if t.Kind() != reflect.Struct {
		return "JSON"
	}
	names := outlined(t, depth)
	if len(names) == 0 {
		return "none"
	}
	return "`" + strings.Join(names, ", ") + "`"
}

func outlined(t reflect.Type, depth int) (names []string) {
	for _, f := range fieldsOf(t) {
		name, inner := f.name, f.Type
		for list := inner.Kind(); list == reflect.Pointer || list == reflect.Slice; list = inner.Kind() {
			if list == reflect.Slice && inner != reflect.TypeFor[jsontext.Value]() && inner.Elem().Kind() != reflect.Uint8 {
				name += "[]"
			} else if list == reflect.Slice {
				break
			}
			inner = inner.Elem()
		}
		if form := replaced(inner); form != nil {
			inner = form
		}
		if f.optional {
			name += "?"
		}
		if nested := fieldsOf(inner); depth > 0 && len(nested) > 0 && len(nested) <= 16 && known(inner) == nil {
			name += " {" + strings.Join(outlined(inner, depth-1), ", ") + "}"
		}
		names = append(names, name)
	}
	return names
}

// field is a member of a struct in JSON.
type field struct {
	reflect.StructField
	name     string
	optional bool
}

// fieldsOf lists the members of a struct, with those of embedded ones; none of another type.
func fieldsOf(t reflect.Type) (list []field) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			list = append(list, fieldsOf(f.Type)...)
		case name != "-" && f.IsExported():
			list = append(list, field{f, name, strings.HasPrefix(options, "omit")})
		}
	}
	return list
}

// anchor is the address of a title on its page.
func anchor(title string) string {
	return strings.ToLower(strings.NewReplacer(".", "", " ", "-").Replace(title))
}
