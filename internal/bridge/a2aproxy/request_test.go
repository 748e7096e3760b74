package a2aproxy

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/openclawos/ocipd/internal/api"
)

func never([32]byte) bool { return false }

// Every method has two names and a route, and a route leads to its method.
func TestMethods(t *testing.T) {
	t.Parallel()
	for _, m := range methods {
		if named(m.name).name != m.name || m.old != "" && named(m.old).name != m.name {
			t.Errorf("%s is not found by its names", m.name)
		}
		if m.params == nil || m.result == nil {
			t.Errorf("%s is not described", m.name)
		}
		path := strings.NewReplacer("{id}", "i-1", "{taskId}", "t-1").Replace(m.path)
		for prefix, tenant := range map[string]string{"": "", "/acme": "acme"} {
			got, found, err := route(m.verb, prefix+path)
			if err != nil || got.name != m.name || found["tenant"] != tenant {
				t.Errorf("%s %s leads to %+v, %v", m.verb, prefix+path, got, err)
			}
		}
	}
	for _, path := range []string{"/", "/message:sent", "/tasks/", "/tasks/a/b", "/tasks/a%2fb", "/tasks/a:b", "/a/b/tasks", "/v1/tasks"} {
		if m, _, err := route(http.MethodGet, path); err == nil {
			t.Errorf("GET %s leads to %s", path, m.name)
		}
	}
}

// FuzzRequest holds that a request which is read is written so that the standard library
// reads the same in it, and that no text of it escapes the decision.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"},{"data":{"a":[1.50,"x"]}},{"raw":"aGk="}]}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"message/send","params":{"message":{"kind":"message","messageId":"m","parts":[{"kind":"file","file":{"bytes":"aGk=","name":"n"}}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t","historyLength":1}}`, `[]`, `{"a":1,"A":2}`, `{"a":1,"a":2}`, "\xff", `{"jsonrpc":"2.0","id":1,"method":"ListTasks"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parseRPC(body)
		if err != nil {
			return
		}
		var given, written any
		var frame struct {
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(body, &frame); err != nil {
			t.Fatalf("the standard library does not read %s: %v", body, err)
		}
		if frame.Params == nil {
			frame.Params = json.RawMessage("{}")
		}
		text := q.params.write(nil)
		if json.Unmarshal(frame.Params, &given) != nil || json.Unmarshal(text, &written) != nil || !reflect.DeepEqual(given, written) {
			t.Fatalf("%s was written as %s", frame.Params, text)
		}
		s, err := say(q.method.name, q.method.params, q.params, true, never, func(string) bool { return true })
		if err != nil {
			return
		}
		metadata, err := s.metadata(q.method.name, "")
		if err != nil {
			t.Fatal(err)
		}
		all := s.content + string(metadata.Append(nil))
		_ = (&visitor{leaf: func(at string, _ leaf, n *node) error {
			if n.kind == '"' && len(n.text) > 3 && isPlain(n.text) && !strings.Contains(all, n.text) {
				t.Errorf("%s is not decided: %s", at, n.text)
			}
			return nil
		}}).walk("", q.method.params, q.params)
		d, err := readDecided(api.EmittedMessage{SessionKey: "a2a:x", Content: api.Said(s.content), Metadata: metadata}.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		_, again, err := d.request()
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if s.envelope == nil && string(again.write(nil)) != string(text) {
			t.Errorf("%s came back as %s", text, again.write(nil))
		}
	})
}

// Two programs read the same place in the address of a webhook, or it is refused.
func TestWebhookPath(t *testing.T) {
	t.Parallel()
	push := &Push{Webhooks: []Webhook{{URL: &url.URL{Scheme: "https", Host: "h.example", Path: "/hooks"}}}}
	for given, want := range map[string]bool{
		"/hooks": true, "/hooks/": true, "/hooks/a;v=1/b?c=d": true, "/hooks/%C3%A9": true, "/hooks/a%20b": true, "/hooks/a..b": true, "/hooks/..a": true, "/hooks/100%25": true,
		"/hooks/..;/admin": false, "/hooks/..;x=1/admin": false, "/hooks/.;/a": false, "/hooks/;/../admin": false, "/hooks/;x/a": false, "/hooks/..%3B/admin": false, "/hooks/..%5Cadmin": false, "/hooks/%5c..%5cadmin": false,
		"/hooks/a%00b": false, "/hooks/%09": false, "/hooks/%7F": false, "/hooks/%C2%85": false, "/hooks/%252e%252e/admin": false, "/hooks/..%255Cadmin": false, "/hooks/a%2500": false, "/hooks/%25252e%25252e/admin": false,
	} {
		if got := push.forbids("a2a:h.example", true, "https://h.example"+given) == ""; got != want {
			t.Errorf("%s passes: %v, want %v", given, got, want)
		}
	}
}

// A peer that calls has webhooks of its own host, or those that name it, and no other peer's.
func TestWebhookIsOfItsPeer(t *testing.T) {
	t.Parallel()
	push := new(Push)
	for _, given := range []string{"https://ann.example/hooks", "https://127.0.0.2/hooks", "ben.example=https://hooks.example/ben", "a2a:unverified:10.0.0.7=https://hooks.example/seven"} {
		w, err := ParseWebhook(given)
		if err != nil {
			t.Fatal(err)
		}
		push.Webhooks = append(push.Webhooks, w)
	}
	for _, tc := range []struct {
		session, given string
		want           bool
	}{
		{"a2a:ann.example", "https://ann.example/hooks/a", true},
		{"a2a:ann.example", "https://ANN.example/hooks/a", true},
		{"a2a:unverified:127.0.0.2", "https://127.0.0.2/hooks", true},
		{"a2a:ben.example", "https://hooks.example/ben/a", true},
		{"a2a:unverified:10.0.0.7", "https://hooks.example/seven", true},
		{"a2a:ben.example", "https://ann.example/hooks/a", false},
		{"a2a:ann.example", "https://hooks.example/ben/a", false},
		{"a2a:unverified:ben.example", "https://hooks.example/ben/a", false},
		{"a2a:10.0.0.7", "https://hooks.example/seven", false},
		{"a2a:hooks.example", "https://hooks.example/ben/a", false},
		{"a2a:sub.ann.example", "https://ann.example/hooks/a", false},
	} {
		if got := push.forbids(tc.session, true, tc.given) == ""; got != tc.want {
			t.Errorf("%s at %s passes: %v, want %v", tc.session, tc.given, got, tc.want)
		}
	}
	for _, given := range []string{"=https://ann.example/", "a2a:=https://ann.example/", "ann.example=", "ann.example=ftp://ann.example/"} {
		if _, err := ParseWebhook(given); err == nil {
			t.Errorf("%q is a webhook", given)
		}
	}
}

// FuzzWebhook holds that the standard library sends only to the host and below the path that the
// user has named.
func FuzzWebhook(f *testing.F) {
	allowed := &url.URL{Scheme: "https", Host: "hooks.example", Path: "/a/"}
	for _, seed := range []string{"https://hooks.example/a", "https://hooks.example:443/a/b?c=d", "https://hooks.example/a/../b", "https://hooks.example@evil.example/a", `https://evil.example\@hooks.example/a`, "https://hooks.example/a/%2e%2e/b", "//hooks.example/a", "https://HOOKS.example/a/./b", "https://hooks.example/a/..;/b", "https://hooks.example/a/..%5Cb", "https://hooks.example/a/b%00c", "https://hooks.example/a/%09", "https://hooks.example/a/%252e%252e/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		if (&Push{Webhooks: []Webhook{{URL: allowed}}}).forbids("", false, given) != "" {
			return
		}
		r, err := http.NewRequest(http.MethodPost, given, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		at := allowed.ResolveReference(r.URL)
		if r.URL.Scheme != "https" || !strings.EqualFold(r.URL.Hostname(), "hooks.example") || r.URL.Port() != "" && r.URL.Port() != "443" || at.EscapedPath() != "/a" && !strings.HasPrefix(at.EscapedPath(), "/a/") {
			t.Errorf("%q goes to %s", given, at)
		}
		for _, segment := range strings.FieldsFunc(r.URL.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(r.URL.Path, `\`) {
				t.Errorf("%q could be read as another place", given)
			}
		}
	})
}

// A decided content goes back to the parts it came from, with the disclosure.
func TestSpread(t *testing.T) {
	t.Parallel()
	q, err := parseRPC([]byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","parts":[{"text":"one"},{"text":""},{"text":"two\n\nthree"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := say("SendMessage", sendShape, q.params, true, never, isPlain)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		s.content:               `[{"text":"one"},{"text":""},{"text":"two\n\nthree"}]`,
		s.content + "\n\nlabel": `[{"text":"one"},{"text":""},{"text":"two\n\nthree\n\nlabel"}]`,
		"label\n\n" + s.content: `[{"text":"label\n\none"},{"text":""},{"text":"two\n\nthree"}]`,
		"rewritten":             "",
		s.content + "\n\nmore":  "",
	} {
		metadata, err := s.metadata("SendMessage", "")
		if err != nil {
			t.Fatal(err)
		}
		metadata["aiDisclosure"] = api.String("label")
		d, err := readDecided(api.EmittedMessage{Content: api.Said(content), Metadata: metadata}.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		_, params, err := d.request()
		got := ""
		if err == nil {
			got = string(params.get("message").get("parts").write(nil))
		}
		if got != want {
			t.Errorf("%q: %s, %v", content, got, err)
		}
	}
}

// An id passes without a decision only if it can say nothing.
func TestIsBare(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"01a22339-7043-7227-811c-1c9be3df6520": true, "task-17": true, "TASK_STATE_INPUT_REQUIRED": true, "2026-11-28T17:36:15.402Z": true,
		"AKIAIOSFODNN7EXAMPLF": false, "ghp_16C7e42F292c6912E7710c838347Ae178B4a": false,
	} {
		if got := isPlain(id) && isBare(id); got != want {
			t.Errorf("%s: %t", id, got)
		}
	}
}
