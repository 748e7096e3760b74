package acp

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

func TestReadVerdict(t *testing.T) {
	tests := []struct {
		text, verdict, summary string
		findings               int
	}{
		{`{"verdict":"approved","summary":"good","findings":[]}`, "approved", "good", 0},
		{"text\n```json\n{\"verdict\": \"blocked\"}\n```\nbye", "blocked", "", 0},
		{`{"verdict":"approved"} then {"verdict":"changes_requested","findings":[{"message":"a {b}"},{"severity":"wild","message":"c"},{"message":""}]}`, "changes_requested", "", 2},
		{`{"verdict":"fine"}`, "", "", 0},
		{`{"a":{"verdict":"approved"}}`, "approved", "", 0},
		{"", "", "", 0},
		{strings.Repeat("{", 5000), "", "", 0},
		{`{"verdict":"approved"}` + strings.Repeat(" ", searched), "", "", 0},
	}
	for _, tt := range tests {
		got, ok := readVerdict(tt.text)
		if ok != (tt.verdict != "") || ok && (got.Verdict != tt.verdict || got.Summary != tt.summary || len(got.Findings) != tt.findings) {
			t.Errorf("%.60q: %+v, %v", tt.text, got, ok)
		}
	}
}

func FuzzReadVerdict(f *testing.F) {
	f.Add(`ok {"verdict":"approved","summary":"x","findings":[{"severity":"minor","message":"m","file":"f","line":1}]}`)
	f.Add(`{{"verdict":"blocked","findings":[{"line":-1,"message":"\ud800"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := readVerdict(text)
		if !ok {
			return
		}
		p := taskapi.ReviewParams{
			Write: taskapi.Write{Ref: taskapi.Ref{TaskID: taskID}}, ReviewType: task.ReviewSpec, ReviewerRef: "checker", Verdict: v.Verdict, Findings: v.Findings, Summary: cut(v.Summary, task.MaxText),
		}
		if wrong := members.Check(&p); len(wrong) > 0 {
			t.Errorf("%q: the daemon would refuse it: %v", text, wrong)
		}
	})
}

func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.go", "b.txt", "in/c.go", "in/deep/d.go", ".git/e.go", "build/x.tar"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.go", filepath.Join(dir, "link.go")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		entries, want string
	}{
		{"a.go", "a.go"},
		{"*.go", "a.go"},
		{"**/*.go", "a.go in/c.go in/deep/d.go"},
		{"in/**", "in/c.go in/deep/d.go"},
		{"in/", "in/c.go in/deep/d.go"},
		{"./b.txt|build/x.tar", "b.txt build/x.tar"},
		{"the archive `build/x.tar`", "build/x.tar"},
		{"../a.go|/etc/passwd|in/../../a.go|a report about it|[|none", ""},
		{strings.Repeat("**/", 40) + "*.go", "a.go in/c.go in/deep/d.go"},
		{strings.Repeat("**/a/", 5) + "*.go", ""},
		{"", ""},
	}
	for _, tt := range tests {
		got, err := outputs(dir, strings.Split(tt.entries, "|"))
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%q: %q, %v, want %q", tt.entries, got, err, tt.want)
		}
	}
	if _, err := outputs("/nowhere", []string{"a"}); err == nil {
		t.Error("a workspace that is not there has outputs")
	}
}

func TestWithin(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out": "/etc", "fresh": "/nowhere/new", "in": "sub/deep", "self": "/proc/self/cwd"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := &bridge{dir: dir, o: &Options{Attached: taskapi.Attached{Tools: []string{"task_get"}}}}
	tests := []struct {
		name   string
		call   toolCall
		want   bool
		server string
	}{
		{"a file", toolCall{Kind: "read", Locations: []location{{dir + "/a.go"}}}, true, ""},
		{"a new file", toolCall{Kind: "edit", Locations: []location{{dir + "/new/b.go"}}}, true, ""},
		{"by a relative path", toolCall{Kind: "read", Locations: []location{{"a.go"}}}, true, ""},
		{"outside", toolCall{Kind: "read", Locations: []location{{"/etc/passwd"}}}, false, ""},
		{"out by dots", toolCall{Kind: "read", Locations: []location{{dir + "/../x"}}}, false, ""},
		{"out by a link", toolCall{Kind: "read", Locations: []location{{dir + "/out/passwd"}}}, false, ""},
		{"back out of a link", toolCall{Kind: "read", Locations: []location{{dir + "/out/../a.go"}}}, false, ""},
		{"back out of a link, by a relative path", toolCall{Kind: "read", Locations: []location{{"out/../a.go"}}}, false, ""},
		{"back into the workspace", toolCall{Kind: "read", Locations: []location{{"in/../a.go"}}}, true, ""},
		{"a link to what is not there yet", toolCall{Kind: "edit", Locations: []location{{dir + "/fresh"}}}, false, ""},
		{"back out of what is not there yet", toolCall{Kind: "edit", Locations: []location{{dir + "/later/../a.go"}}}, false, ""},
		{"the folder of a process", toolCall{Kind: "read", Locations: []location{{"self/a.go"}}}, false, ""},
		{"an address", toolCall{Kind: "read", Locations: []location{{"file://" + dir + "/a.go"}}}, true, ""},
		{"an address on this machine", toolCall{Kind: "read", Locations: []location{{"file://localhost/etc/passwd"}}}, false, ""},
		{"an address in signs", toolCall{Kind: "read", Locations: []location{{"file://" + dir + "/%2e%2e/x"}}}, false, ""},
		{"an address of another kind", toolCall{Kind: "read", Locations: []location{{"https://example.com/a"}}}, false, ""},
		{"a home", toolCall{Kind: "read", Locations: []location{{"~/.ssh/id"}}}, false, ""},
		{"a sibling", toolCall{Kind: "read", Locations: []location{{dir + "x"}}}, false, ""},
		{"one of two outside", toolCall{Kind: "read", Locations: []location{{dir + "/a"}, {"/b"}}}, false, ""},
		{"a diff outside", toolCall{Kind: "edit", Locations: []location{{dir + "/a"}}, Content: jsontext.Value(`[{"type":"diff","path":"/b"}]`)}, false, ""},
		{"an input outside", toolCall{Kind: "read", Locations: []location{{dir + "/a"}}, Input: jsontext.Value(`{"file_path":"/etc/shadow"}`)}, false, ""},
		{"says nothing", toolCall{Kind: "search"}, false, ""},
		{"thinks", toolCall{Kind: "think"}, true, ""},
		{"our own tool", toolCall{Kind: "other", Input: jsontext.Value(`{"server":"ocipd","tool":"task_get"}`)}, false, "ocipd"},
		{"one that the grant has not", toolCall{Kind: "other", Input: jsontext.Value(`{"server":"ocipd","tool":"task_transition"}`)}, false, ""},
		{"another server", toolCall{Kind: "other", Input: jsontext.Value(`{"server":"files","tool":"task_get"}`)}, false, ""},
		{"a command that says so", toolCall{Kind: "execute", Input: jsontext.Value(`{"server":"ocipd","tool":"task_get"}`)}, false, ""},
	}
	for _, tt := range tests {
		if got, server := b.within(&tt.call), b.server(&tt.call); got != tt.want || server != tt.server {
			t.Errorf("%s: %v, %q", tt.name, got, server)
		}
	}
	claude := toolCall{Kind: "other"}
	if claude.Meta.Claude.Tool = "mcp__ocipd__task_get"; b.server(&claude) != "ocipd" {
		t.Error("Claude Code's name of our tool is not known")
	}
}

// A call that is too long to be shown is refused.
func TestLongCall(t *testing.T) {
	var d told
	d.init(begin(t, "works").o.Now())
	long := jsontext.Value(`"` + strings.Repeat("x", task.MaxArgvBytes) + `"`)
	if c := d.call(&toolCall{ID: "1", Input: long}); !c.long() {
		t.Error("it can be shown")
	}
	if kept := d.calls["1"]; len(kept.Input) > 0 {
		t.Error("it is kept")
	}
	if c := d.call(&toolCall{ID: "1", Title: "again"}); !c.long() {
		t.Error("it can be shown by being named again")
	}
	for i := range maxCalls + 10 {
		d.call(&toolCall{ID: strings.Repeat("y", i)})
	}
	if len(d.calls) > maxCalls || len(d.changed) > maxCalls {
		t.Errorf("%d calls are kept", len(d.calls))
	}
	d.opened("session-1", "", "")
	if n := d.news(); n.kind != task.CheckpointSession {
		t.Errorf("got %+v", n)
	}
	// News that the daemon has not accepted is sent again; calls that are never reported are counted.
	if n := d.news(); n.kind != task.CheckpointSession {
		t.Errorf("the session is told once, and then %+v", n)
	}
	d.taken(d.news())
	told, dropped := 0, 0
	for n := d.news(); n != nil; n = d.news() {
		if len(n.payload) > task.MaxPayloadBytes {
			t.Fatalf("a checkpoint of %d bytes", len(n.payload))
		}
		if again := d.news(); !maps.Equal(again.calls, n.calls) {
			t.Fatalf("told %v, and then %v", n.calls, again.calls)
		}
		told, dropped = told+len(n.calls), dropped+n.dropped
		d.taken(n)
	}
	if told != maxCalls || dropped != 11 {
		t.Errorf("%d calls were told of, and %d not", told, dropped)
	}
	// A call that the daemon knows makes room, so that none is dropped.
	d.call(&toolCall{ID: "new"})
	n := d.news()
	if n == nil || len(n.calls) != 1 || n.dropped != 0 {
		t.Fatalf("told %+v", n)
	}
	// An update during the report is reported too.
	d.call(&toolCall{ID: "new", Status: "completed"})
	d.taken(n)
	if n = d.news(); n == nil || !strings.Contains(string(n.payload), "completed") {
		t.Fatalf("told %+v", n)
	}
	// News that the daemon refuses for good does not block later news, and is counted.
	d.refused(n)
	if n = d.news(); n == nil || string(n.payload) != `{"calls":[],"dropped":1}` {
		t.Errorf("told %+v", n)
	}
}

func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"1","rawInput":{"a":1}}}}`))
	f.Add([]byte(`{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var d told
		d.init(begin(t, "works").o.Now())
		d.update(line)
		if n := d.news(); n != nil && !n.payload.IsValid(jsontext.AllowInvalidUTF8(true)) {
			t.Errorf("%q: %q is no JSON", line, n.payload)
		}
	})
}
