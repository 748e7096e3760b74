package daemon_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	bounds "github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// kept is a member of a method's parameters of which a task keeps so much only.
type kept struct {
	// path has "0" for an item of a list.
	path []string
	of   reflect.Type
	bounds.Bounds
}

// keptIn finds the members that have a limit, at any depth.
func keptIn(t reflect.Type, path []string) (found []kept) {
	switch t.Kind() {
	case reflect.Pointer:
		return keptIn(t.Elem(), path)
	case reflect.Slice:
		return keptIn(t.Elem(), append(slices.Clone(path), "0"))
	case reflect.Struct:
	default:
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := path
		if !f.Anonymous {
			at = append(slices.Clone(path), name)
		}
		if b := bounds.Of(f); b.Keeps > 0 {
			found = append(found, kept{at, f.Type, b})
		}
		found = append(found, keptIn(f.Type, at)...)
	}
	return found
}

// sized is a value of the member with a size.
func (k *kept) sized(n int) any {
	of := k.of
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[jsontext.Value]():
		return m{"a": strings.Repeat("x", n-len(`{"a":""}`))}
	case of.Kind() == reflect.String:
		return strings.Repeat("x", n)
	case k.Each != nil:
		return slices.Repeat([]any{k.Each.Prefix + "01a1fe46-d68f-77d6-9611-d5a7674802c7"}, n)
	default:
		return slices.Repeat([]any{m{"idempotency_key": "k", "side_effect_kind": "deployment", "params": m{}}}, n)
	}
}

// within puts a value into parameters, with what its neighbours have to be.
func within(params m, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		switch name {
		case "0":
			continue
		case "effects":
			effect := m{"idempotency_key": "k", "side_effect_kind": "deployment", "params": m{}}
			params[name], params = []any{effect}, effect
		case "command", "compensation":
			command := m{"argv": []any{"x"}}
			params[name] = command
			if name == "command" {
				delete(params, "params")
			}
			params = command
		default:
			inner, _ := params[name].(m)
			if inner == nil {
				inner = m{}
			}
			params[name], params = inner, inner
		}
	}
	last := path[len(path)-1]
	if last == "params" {
		delete(params, "command")
	}
	params[last] = value
}

// Each method refuses more of a member than a task keeps as LIMIT, by the member's name, and takes
// as much as the limit.
func TestEveryKeptMemberIsLimited(t *testing.T) {
	tried := make(map[string]bool)
	for _, method := range daemon.MethodTable() {
		for _, k := range keptIn(method.Params, nil) {
			name := strings.ReplaceAll(strings.Join(k.path, "."), ".0.", "[0].")
			t.Run(method.Name+" "+name, func(t *testing.T) {
				decoded := func(size int) error {
					params := m{}
					if err := json.Unmarshal([]byte(taskSamples()[method.Name].good[0]), &params); err != nil {
						t.Fatal(err)
					}
					within(params, k.path, k.sized(size))
					text, err := json.Marshal(params)
					if err != nil {
						t.Fatal(err)
					}
					_, err = method.Decode(text, method.Strict)
					return err
				}
				if err := decoded(k.Keeps); err != nil {
					t.Errorf("as much as the limit is refused: %v", err)
				}
				wantLimit(t, decoded(k.Keeps+1), name+": more than")
			})
			tried[name] = true
		}
	}
	for _, name := range []string{"depends_on", "effects", "effects[0].params", "command.stdin", "compensation.stdin", "params", "payload", "receipt", "options", "tool_call.input"} {
		if !tried[name] {
			t.Errorf("%s has no limit in any method", name)
		}
	}
}

// wantLimit wants a conflict with the code LIMIT and this text.
func wantLimit(t *testing.T, err error, says string) {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	var d taskapi.Details
	if text, err := json.Marshal(e.Details); err != nil || json.Unmarshal(text, &d) != nil {
		t.Fatalf("details are %+v", e.Details)
	}
	if e.Code != api.Conflict || d.Task.Code != task.Limit || !strings.Contains(e.Message, says) {
		t.Errorf("got %s %s: %s, want LIMIT with %q", e.Code, d.Task.Code, e.Message, says)
	}
}

// Each method that takes a specification refuses one that is too large, and a list with too many
// entries, as LIMIT, and changes nothing.
func TestEverySpecificationIsLimited(t *testing.T) {
	h := build(t, taskTeam)
	operator := h.taskOperator()
	specs := map[string]m{"the spec is larger than": {"spec_markdown": strings.Repeat("x", task.MaxSpecBytes+1)}}
	for f := range reflect.TypeFor[task.Fields]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Type.Kind() == reflect.Slice {
			specs[name+" has more than"] = m{"spec": m{name: slices.Repeat([]any{"an entry of the list"}, task.MaxEntries+1)}}
		}
	}
	id := str(operator.must("task.create", m{"title": "Export", "workspace": t.TempDir(), "initial_phase": "spec_draft", "spec_markdown": goodTaskSpec, "tenant_id": "acme-corp"}), "task_id")
	before := fmt.Sprint(operator.must("task.get", m{"task_id": id}))
	tried := 0
	for method, params := range map[string]m{
		"task.create": {"title": "t", "workspace": t.TempDir(), "initial_phase": "spec_draft", "tenant_id": "acme-corp"},
		"task.update": {"task_id": id, "expected_revision": 1},
		"task.import": {"origin": "old/1", "title": "t", "phase": "spec_draft", "workspace": t.TempDir(), "tenant_id": "acme-corp"},
	} {
		for says, spec := range specs {
			given := maps.Clone(params)
			maps.Copy(given, spec)
			_, err := operator.call(method, given)
			wantLimit(t, err, says)
			tried++
		}
	}
	if after := fmt.Sprint(operator.must("task.get", m{"task_id": id})); tried != 21 || after != before {
		t.Errorf("%d were tried; before %s\nafter %s", tried, before, after)
	}
}
