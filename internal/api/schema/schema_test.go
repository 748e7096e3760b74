package schema

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

type inner struct {
	Level ocip.Level     `json:"level"`
	Any   jsontext.Value `json:"any,omitzero"`
}

type sample struct {
	*inner
	At    time.Time         `json:"at"`
	Names []string          `json:"names"`
	Maybe *inner            `json:"maybe"`
	Left  *inner            `json:"left,omitzero"`
	Data  []byte            `json:"data,omitzero"`
	Env   map[string]string `json:"env,omitzero"`
	Count uint              `json:"count"`
	None  string            `json:"-"`
}

type sampleEmpty struct{}

// TestSchemas describes types as they are written: lists are never null in results, and an
// embedded pointer is there as a whole or not at all.
func TestSchemas(t *testing.T) {
	for _, tc := range []struct {
		of             reflect.Type
		params, strict bool
		want           string
	}{
		{reflect.TypeFor[inner](), false, false, `{"type":"object","properties":{"level":{"type":"string"},"any":true},"required":["level"]}`},
		{reflect.TypeFor[sample](), false, false, `{"type":"object","properties":{"level":{"type":"string"},"any":true,"at":{"type":"string","format":"date-time"},"names":{"type":"array","items":{"type":"string"}},` +
			`"maybe":{"anyOf":[{"type":"object","properties":{"level":{"type":"string"},"any":true},"required":["level"]},{"type":"null"}]},` +
			`"left":{"type":"object","properties":{"level":{"type":"string"},"any":true},"required":["level"]},"data":{"type":"string","contentEncoding":"base64"},` +
			`"env":{"type":"object","additionalProperties":{"type":"string"}},"count":{"type":"integer","minimum":0}},"required":["at","names","maybe","count"]}`},
		{reflect.TypeFor[sampleEmpty](), true, true, `{"type":"object","properties":{},"additionalProperties":false}`},
	} {
		s, err := Of(tc.of, tc.params, tc.strict)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(s); err != nil || string(text) != tc.want {
			t.Errorf("%s is %s, %v, want %s", tc.of, text, err, tc.want)
		}
	}
	for _, bad := range []reflect.Type{reflect.TypeFor[func()](), reflect.TypeFor[struct {
		C chan int `json:"c"`
	}]()} {
		if s, err := Of(bad, false, false); err == nil {
			t.Errorf("%s is %v", bad, s)
		}
	}
}

// TestTypeScript writes what a schema of two methods says as declarations.
func TestTypeScript(t *testing.T) {
	s, err := Protocol([]Method{
		{Name: "a.get", Access: "app", Pace: "quick", Params: reflect.TypeFor[sampleEmpty](), Result: reflect.TypeFor[sample](), Strict: true},
		{Name: "a.watch", Access: "app", Pace: "streaming", Params: reflect.TypeFor[inner](), Result: reflect.TypeFor[inner](), Opening: reflect.TypeFor[api.Watching]()},
		{Name: "a.get", Access: "operator", Pace: "quick", Params: reflect.TypeFor[api.Empty](), Result: reflect.TypeFor[sample](), Strict: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := string(TypeScript(s))
	for _, want := range []string{
		"export type SampleEmpty = Record<string, never>;\n",
		"export interface Sample {\n  level?: string;\n  any?: unknown;\n  at: string;\n  names: string[];\n  maybe: Inner | null;\n  left?: Inner;\n  data?: string;\n  env?: Record<string, string>;\n  count: number;\n}\n",
		"export interface InnerInput {\n",
		"  \"a.get\": {\n    params: SampleEmpty | EmptyInput;\n    result: Sample;\n  };\n  \"a.watch\": {\n    params: InnerInput;\n    result: Inner;\n    opening: Watching;\n    stream: true;\n  };\n",
		"  method: keyof Methods;\n", "  event: keyof Events;\n", "  \"app:lost\": AppEvent;\n", "  \"hook:message_sending\": HookEvent & {\n    data: Message;\n  };\n", "  \"hook:before_tool_call\": HookEvent & {\n    data: ToolUse;\n  };\n", "  code: ErrorCode;\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

type undocumented struct {
	A string `json:"a"`
}

// TestReference writes the page of two methods, and refuses a member without a meaning.
func TestReference(t *testing.T) {
	type part struct {
		Level string `json:"level" is:"required words=a|b" doc:"The level."`
	}
	type params struct {
		Names []string `json:"names" is:"required names" doc:"Names."`
		Part  part     `json:"part,omitzero" doc:"A part."`
		Left  *int     `json:"left,omitzero" is:"range=1..3" doc:"Left."`
	}
	about := About()
	maps.DeleteFunc(about, func(name, _ string) bool { return !strings.Contains(name, ":") })
	about["a.watch"], about["b.get"] = "Watches.", "Gets."
	page, err := Reference([]Method{
		{Name: "b.get", Access: "app", Pace: "quick", Params: reflect.TypeFor[params](), Result: reflect.TypeFor[sample](), Errors: []api.Code{api.NotFound}},
		{Name: "a.watch", Access: "task", Roles: "executor", Pace: "streaming", Params: reflect.TypeFor[params](), Result: reflect.TypeFor[inner](), Opening: reflect.TypeFor[api.Watching]()},
		{Name: "b.get", Access: "operator", Pace: "quick", Signing: api.Signed, Params: reflect.TypeFor[params](), Result: reflect.TypeFor[sample]()},
	}, about)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## a.watch\n\nWatches.\n\nAccess: task (executor); streaming.\n\n| member | form | meaning |\n| --- | --- | --- |\n| `names` | list, up to 256 items: text, up to 256 | Names. |\n" +
			"| `part?` | [part](#part) | A part. |\n| `left?` | number, 1–3 | Left. |\n\nFirst answer: `watching`.\n\nChunks: `level, any?`.\n",
		"\n## b.get\n\nGets.\n\nAccess: app, operator; quick; signed by operators. Errors: `NOT_FOUND`.\n\nParameters: those of [a.watch](#awatch).\n\n",
		"Result: `level, any?, at, names[], maybe {level, any?}, left? {level, any?}, data?, env?, count`.\n",
		"\n### part\n\n| member | form | meaning |\n| --- | --- | --- |\n| `level` | `a`, `b` | The level. |\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if _, err := Reference([]Method{{Name: "c", Access: "app", Pace: "quick", Params: reflect.TypeFor[undocumented](), Result: reflect.TypeFor[inner]()}}, about); err == nil {
		t.Error("a member has no meaning, and there is a page")
	}
}
