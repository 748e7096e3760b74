package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// marker stands for a secret. It looks like a word, so that its form does not mask it.
const marker = "plainmarker"

// open are the keys that are shown unmasked: they are names, places and choices, and give
// nobody access.
func open() []string {
	return []string{
		"ipc.socket", "default_agent", "directory_file", "fleet.roster", "fleet.host", "fleet.operators", "routes.session", "routes.agent",
		"agents.id", "agents.app", "agents.exe", "agents.instance_id", "agents.user_id", "agents.org_unit", "agents.tenant_id",
		"agents.max_classification_shared", "agents.min_classification", "agents.supported_exchange_types",
		"agents.max_classification_unknown", "agents.keywords", "agents.media", "agents.tools", "agents.disclosure_text", "tools", "directory.members",
		"access.apps.channels", "access.apps.intercepts", "access.apps.observes", "access.apps.tenants", "access.apps.carries",
		"access.channels.address", "access.channels.case", "access.channels.rendering",
		"ocip.unknown.commitments", "ocip.unknown.first_contact", "ocip.person.commitments", "ocip.person.first_contact", "ocip.look_alike", "ocip.same_owner", "ocip.judge.url", "ocip.judge.model", "ocip.judge.may", "ocip.unknown.keywords", "ocip.person.keywords", "ocip.inbound.unannotated",
		"directory.kind", "directory.instance_id", "directory.user_id", "directory.org_unit", "directory.tenant_id", "directory.accepts", "directory.sessions",
		"ocip.default_classification", "ocip.default_exchange_type", "ocip.disclosure", "ocip.disclosure_text", "ocip.commitment.match", "ocip.commitment.enforcement",
		"ocip.commitment.families", "ocip.commitment.keywords", "ocip.content.patterns.name", "ocip.content.patterns.regexp", "ocip.content.patterns.level", "ocip.content.personal", "ocip.chain.enforcement",
		"tasks.actors.name", "tasks.actors.role", "tasks.actors.app", "tasks.actors.tenant_id", "tasks.actors.max_classification", "tasks.actors.exe",
		"tasks.effects.late", "tasks.run.executor", "tasks.run.escalation", "tasks.run.spec_reviewer", "tasks.run.quality_reviewer", "tasks.run.lobster",
		"approvals.allowed_signers", "approvals.origins", "console.decide", "policy.path", "policy.data.allowed_exchange_types", "policy.data.max_classification_shared",
		// A difference is useless without the policy's data.
		"policy.data.*",
		"store.url", "audit.mirror", "audit.checkpoints", "audit.content", "audit.recipients", "audit.keys", "audit.redact.members", "audit.redact.patterns",
		"audit.sinks.name", "audit.sinks.type", "audit.sinks.path", "audit.sinks.endpoint", "audit.sinks.network", "audit.sinks.address",
		"audit.sinks.tls.ca", "audit.sinks.tls.cert", "audit.sinks.tls.key", "audit.sinks.tls.server_name", "audit.sinks.from",
		"audit.sinks.filter",
		"metrics.socket", "metrics.listen", "log.level", "log.format",
	}
}

// plant visits every place of the schema that can hold text; set puts a text there.
func plant(v reflect.Value, at string, visit func(at string, set func(text string))) {
	below := func(key string) string { return strings.TrimPrefix(at+"."+key, ".") }
	switch {
	case v.Type() == treeType:
		for _, shape := range []struct {
			name string
			make func(any) map[string]any
		}{
			{"", func(x any) map[string]any { return map[string]any{"name": x} }},
			{" deep", func(x any) map[string]any { return map[string]any{"@a/b": map[string]any{"name": x}} }},
			{" in a list", func(x any) map[string]any {
				return map[string]any{"name": []any{x, map[string]any{"other": x}, []any{x}}}
			}},
		} {
			visit(at+shape.name, func(text string) { v.Set(reflect.ValueOf(shape.make(text))) })
		}
	case v.Kind() == reflect.String:
		visit(at, v.SetString)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if key := keyOf(v.Type().Field(i)); key != "" {
				plant(v.Field(i), below(key), visit)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		list := reflect.MakeSlice(v.Type(), 1, 1)
		plant(list.Index(0), at, func(at string, set func(string)) {
			visit(at, func(text string) { set(text); v.Set(list) })
		})
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		visit(at, func(text string) {
			list := []string{text, text}
			if at == "approvals.notify.command" {
				list[0] = "/bin/x " + text
			}
			v.Set(reflect.ValueOf(list))
		})
	case v.Kind() == reflect.Map:
		item := reflect.New(v.Type().Elem()).Elem()
		plant(item, at, func(at string, set func(string)) {
			visit(at, func(text string) {
				set(text)
				m := reflect.MakeMap(v.Type())
				m.SetMapIndex(reflect.ValueOf("name"), item)
				v.Set(m)
			})
		})
	}
}

// everything is everything shown of a configuration: as a whole, and as an addition, a
// removal and a change.
func everything(t *testing.T, c *Config) string {
	t.Helper()
	text, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	all := string(text)
	for _, d := range []Delta{c.Since(Default()), Default().Since(c)} {
		if d.Count == 0 {
			t.Error("a value that was set is no difference")
		}
		all += fmt.Sprint(d.Changes)
	}
	return all
}

// A secret in any place of the schema is not shown. A key that is not in open masks
// everything; one in open still masks text that has the form of a secret.
func TestNoSecretIsShown(t *testing.T) {
	places := map[string]bool{}
	plant(reflect.ValueOf(Default()).Elem(), "", func(at string, _ func(string)) { places[at] = true })
	if len(places) < len(open()) {
		t.Fatalf("%d places", len(places))
	}
	for _, at := range open() {
		if !places[at] {
			t.Errorf("%s is no place of the schema", at)
		}
	}
	for place := range places {
		t.Run(place, func(t *testing.T) {
			with := func(text string) *Config {
				c := Default()
				plant(reflect.ValueOf(c).Elem(), "", func(at string, set func(string)) {
					if at == place {
						set(text)
					}
				})
				return c
			}
			key, _, _ := strings.Cut(place, " ")
			if shown := strings.Contains(everything(t, with(marker)), marker); shown != slices.Contains(open(), key) {
				t.Errorf("shown: %t", shown)
			}
			texts := []string{"-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----", "AGE-SECRET-KEY-1" + marker}
			if key != "ocip.content.patterns.regexp" && key != "audit.redact.patterns" {
				texts = append(texts,
					"Bearer "+marker, "x authorization: bearer "+marker, "https://u:"+marker+"@h/x", "https://h/x?token="+marker, "https://h/x#"+marker,
					"postgres://u:p@"+marker+"@db/x?y", "host=db password="+marker+" user=me")
			}
			for _, text := range texts {
				if before, _, shown := strings.Cut(everything(t, with(text)), marker); shown {
					t.Errorf("%q is shown after %q", text, before[max(0, len(before)-40):])
				}
			}
		})
	}
}

// A change of a masked value is always reported.
func TestMaskedChangesAreTold(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{`channels: {c: {pwd: a}}`, `channels: {c: {pwd: b}}`, `channels.c.pwd: *** -> ***`},
		{`channels: {c: {pin: 1234}}`, `channels: {c: {pin: 4321}}`, `channels.c.pin: *** -> ***`},
		{`channels: {c: {on: true, x: ""}}`, `channels: {c: {on: false, x: y}}`, "channels.c.on: true -> false\nchannels.c.x:  -> ***"},
		{`apps: {"@a/b": {header: "Authorization: Bearer x"}}`, `apps: {"@a/b": {header: "Authorization: Bearer y"}}`, `apps["@a/b"].header: *** -> ***`},
		{`apps: {a: {list: [{auth: x}]}}`, `apps: {a: {list: [{auth: y}, z]}}`, `apps.a.list: [map[auth:***]] -> [map[auth:***] ***]`},
		{`apps: {"https://u:pw@h": 1}`, `{}`, `apps["***"]: *** -> <nil>`},
		{`policy: {data: {salt: a, own: a}}`, `policy: {data: {salt: b, own: b}}`, "policy.data.own: a -> b\npolicy.data.salt: *** -> ***"},
		{`policy: {data: {deep: {clientPin: [1, 2]}}}`, `policy: {data: {deep: {clientPin: [2]}}}`, "policy.data.deep.clientPin: *** -> ***"},
		{`policy: {data: {keywords: [a], cost_center: x}}`, `policy: {data: {keywords: [b], cost_center: y}}`,
			"policy.data.cost_center: x -> y\npolicy.data.keywords: [a] -> [b]"},
		{`policy: {data: {x: 5f4dcc3b5aa765d61d8327deb882cf99}}`, `policy: {data: {x: "Zm9vYmFyMTIzNDU2Nzg5MA=="}}`, `policy.data.x: *** -> ***`},
		{`policy: {data: {x: "Cookie: a=b"}}`, `policy: {data: {x: "agent-alice-2026-11-21-production"}}`, `policy.data.x: Cookie: *** -> agent-alice-2026-11-21-production`},
		{`approvals: {notify: {command: [/bin/curl, -H, one]}}`, `approvals: {notify: {command: [/bin/curl, -H, two]}}`,
			`approvals.notify.command: [/bin/curl *** ***] -> [/bin/curl *** ***]`},
		{`audit: {sinks: [{name: c, type: otlp, endpoint: "https://c/v1?api_key=a"}]}`, `audit: {sinks: [{name: c, type: otlp, endpoint: "https://c/v1?api_key=b"}]}`,
			`audit.sinks.c.endpoint: https://c/v1?*** -> https://c/v1?***`},
		{`audit: {redact: {patterns: ["5f4dcc3b5aa765d61d8327deb882cf99"]}}`, `audit: {redact: {patterns: ['Bearer \S+']}}`, `audit.redact.patterns: [[*]{3}] -> [Bearer \S+]`},
	} {
		var got []string
		for _, c := range mustParse(t, tt.after).Since(mustParse(t, tt.before)).Changes {
			got = append(got, fmt.Sprintf("%s: %v -> %v", c.Path, c.Old, c.New))
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s and %s: got\n%s\nwant\n%s", tt.before, tt.after, strings.Join(got, "\n"), tt.want)
		}
	}
}

// A refusal names the fault and its place, and quotes nothing of a masked value.
func TestNoSecretInARefusal(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"channels: MARKER", "ocipd.yaml:1:11: channels: want a mapping, got text"},
		{"apps: MARKER", "apps: want a mapping, got text"},
		{"policy: {data: MARKER}", "policy.data: want a mapping, got text"},
		{"policy: MARKER", "policy: want a mapping, got text"},
		{"audit: MARKER", "audit: want a mapping, got text"},
		{"approvals: {notify: MARKER}", "approvals.notify: want a mapping, got text"},
		{`audit: {sinks: [{name: a, type: otlp, endpoint: "http://x", headers: "Bearer MARKER"}]}`, "audit.sinks[0].headers: want a mapping, got text"},
		{`audit: {sinks: [{name: a, type: otlp, endpoint: "http://x", headers: {A: [MARKER]}}]}`, "headers.A: want text, got a list"},
		{`audit: {sinks: [{name: a, type: otlp, endpoint: "http://x", headers: {A: 123454321}}]}`, "headers.A: want text, got a number: put it in quotes"},
		{`audit: {sinks: [{name: a, type: otlp, endpoint: "ftp://u:MARKER@h/x?k=MARKER"}]}`, `got "ftp://***@h/x?***"`},
		{`audit: {sinks: [MARKER]}`, "audit.sinks[0]: want a mapping, got text"},
		{"approvals: {notify: {command: curl -H MARKER}}", "approvals.notify.command: want a list, got text"},
		{"approvals: {notify: {command: [MARKER]}}", "approvals.notify.command: want the program by its absolute path"},
		{"approvals: {notify: {command: [MARKER/curl -H MARKER, MARKER]}}", "approvals.notify.command: want the program by its absolute path"},
		{"approvals: {notify: {command: [/bin/curl -H MARKER]}}", "approvals.notify.command: want the program and each of its arguments as items of their own"},
		{"approvals: {notify: {command: [/bin/x, \"MARKER\\0\"]}}", "approvals.notify.command[1]: no argument can hold a NUL"},
		{"approvals: {notify: {command: [/bin/x, 123454321]}}", "approvals.notify.command[1]: want text, got a number: put it in quotes"},
		{`apps: {"@a/b": {k: !!int MARKER}}`, `apps["@a/b"].k: cannot read this as !!int`},
		{"apps:\n  k: !MARKER", "apps.k: cannot read a value with a tag: put it in quotes"},
		{"apps: {k: *MARKER}", "cannot read YAML: unknown anchor referenced: put a text that begins with * in quotes"},
		{"policy: {data: {k: !!float MARKER}}", "policy.data.k: cannot read this as !!float"},
		{`apps: {"https://u:MARKER@h": .nan}`, `apps["***"]: want a number`},
		{`store: {url: "postgres://u:MARKER@h/db?x=MARKER"}`, `got "postgres://***@h/db?***"`},
		{`store: {url: "u:MARKER@tcp(h)/db"}`, `got "***@tcp(h)/db"`},
		{"store: {url: [MARKER]}", "store.url: want text, got a list"},
		{"log: {level: Bearer MARKER}", `unknown log level "Bearer ***"`},
		{"ipc: {max_in_flight: Bearer MARKER}", `want a whole number, got "Bearer ***"`},
		{`"https://u:MARKER@h": 1`, `unknown key "https://***@h"`},
		{`audit: {redact: {patterns: ['AGE-SECRET-KEY-1MARKER(']}}`, `cannot use "[*]{3}": missing closing )`},
		{"audit: {recipients: [AGE-SECRET-KEY-1MARKER]}", "it is a private key"},
	} {
		_, err := Parse("ocipd.yaml", []byte(strings.ReplaceAll(tt.text, "MARKER", marker)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
			continue
		}
		if strings.Contains(err.Error(), marker) || strings.Contains(err.Error(), "123454321") {
			t.Errorf("%s: the value is in %v", tt.text, err)
		}
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("not a list of problems: %v", err)
		}
		for _, e := range all {
			if strings.Contains(e.Key, marker) {
				t.Errorf("%s: the value is in the key %s", tt.text, e.Key)
			}
		}
	}
}
