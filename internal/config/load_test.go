package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
)

const alice = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme}
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("ocipd.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// same compares two configurations without the origins of values.
func same(a, b *Config) bool {
	x, y := *a, *b
	x.File, x.origins, x.listed = "", nil, nil
	y.File, y.origins, y.listed = "", nil, nil
	x.opts, y.opts = Options{}, Options{}
	return reflect.DeepEqual(x, y)
}

func TestNothingConfiguredIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}", "ipc:\nagents:\nlog: {level: }\n"} {
		if c := mustParse(t, text); !same(c, Default()) {
			t.Errorf("%q reads as %+v", text, c)
		}
	}
	c, err := Load(Options{Env: []string{"HOME=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if c.File != "" || !same(c, Default()) {
		t.Errorf("no file reads as %+v", c)
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	bad := Default()
	bad.OCIP.MaxRounds = 0
	if err := bad.Validate(); err == nil || err.Error() != "ocip.max_rounds: want at least 1, got 0" {
		t.Errorf("got %v", err)
	}
}

func TestPrecedence(t *testing.T) {
	home := t.TempDir()
	file := write(t, home, ".config/openclawos/ocipd.yaml", "ocip: {max_rounds: 5, expires_after: 1h}\nlog: {level: debug}\n")
	env := []string{"HOME=" + home, "OCIPD_OCIP_MAX_ROUNDS=6", "OCIPD_IPC_SOCKET=/run/a.sock", "OCIPD_POLICY_WATCH=false", "OCIPD_NOTICE_ID=a-1", "PATH=/bin"}
	flags := map[string]any{"ipc.socket": "/run/b.sock", "policy.timeout": "1s", "drain_timeout": time.Minute, "log.format": nil}

	c, err := Load(Options{Env: env, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key       string
		got, want any
		source    string
	}{
		{"log.format", c.Log.Format, "auto", "default"},
		{"ocip.expires_after", c.OCIP.ExpiresAfter, time.Hour, file + ":1"},
		{"log.level", c.Log.Level, "debug", file + ":2"},
		{"ocip.max_rounds", c.OCIP.MaxRounds, 6, "OCIPD_OCIP_MAX_ROUNDS"},
		{"policy.watch", c.Policy.Watch, false, "OCIPD_POLICY_WATCH"},
		{"ipc.socket", c.IPC.Socket, "/run/b.sock", "flag ipc.socket"},
		{"policy.timeout", c.Policy.Timeout, time.Second, "flag policy.timeout"},
		{"drain_timeout", c.DrainTimeout, time.Minute, "flag drain_timeout"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %v, want %v", tt.key, tt.got, tt.want)
		}
		if got := c.Source(tt.key); got != tt.source {
			t.Errorf("%s comes from %q, want %q", tt.key, got, tt.source)
		}
	}
	if c.File != file {
		t.Errorf("File is %q, want %q", c.File, file)
	}
	if got := c.Overridden(); !slices.Equal(got, []string{"ocip.max_rounds"}) {
		t.Errorf("of the file does not count %q", got)
	}
}

func TestFileIsFound(t *testing.T) {
	dir := t.TempDir()
	inXDG := write(t, dir, "xdg/openclawos/ocipd.yaml", "log: {level: warn}")
	write(t, dir, ".config/openclawos/ocipd.yaml", "log: {level: error}")
	named := write(t, dir, "named.yaml", "log: {level: debug}")
	env := []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + filepath.Join(dir, "xdg")}

	for _, tt := range []struct{ file, want, level string }{
		{"", inXDG, "warn"},
		{named, named, "debug"},
	} {
		c, err := Load(Options{File: tt.file, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if c.File != tt.want || c.Log.Level != tt.level {
			t.Errorf("read %q (%s), want %q (%s)", c.File, c.Log.Level, tt.want, tt.level)
		}
	}
	if _, err := Load(Options{File: filepath.Join(dir, "absent.yaml"), Env: env}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is absent: got %v", err)
	}
	if _, err := Load(Options{File: dir}); err == nil {
		t.Error("a directory was read as a file")
	}
}

func TestAgentsAndDirectory(t *testing.T) {
	c := mustParse(t, `
ocip: {max_rounds: 7}
agents:
  - &base
    id: alice
    app: "@acme/alice-runtime"
    uid: 0
    instance_id: agent-alice-1
    user_id: alice
    org_unit: engineering
    tenant_id: acme-corp
  - id: bob
    app: "@acme/bob-runtime"
    instance_id: agent-bob-1
    user_id: bob
    org_unit: sales
    tenant_id: acme-corp
    max_classification_shared: restricted
    min_classification: internal
    supported_exchange_types: [information_query]
    max_rounds: 2
    can_receive_queries: false
    can_auto_respond: false
default_agent: bob
routes: [{session: "chat:*", agent: alice}]
directory:
  - {instance_id: carol-1, user_id: carol, org_unit: marketing, tenant_id: acme-corp}
  - {kind: person, accepts: [public, internal], sessions: ["telegram:dave", "agent:carol:*"]}
`)
	uid := 0
	want := []Agent{{
		ID: "alice", App: "@acme/alice-runtime", UID: &uid, InstanceID: "agent-alice-1", UserID: "alice",
		OrgUnit: "engineering", TenantID: "acme-corp", MaxClassificationShared: "internal", MinClassification: "public",
		SupportedExchangeTypes: []string{"information_query", "commitment_request", "meeting_scheduling"},
		MaxRounds:              7, CanReceiveQueries: true, CanAutoRespond: true, MaxClassificationUnknown: "internal", Tools: "secrets",
		DisclosureText: "Sent by alice's assistant",
	}, {
		ID: "bob", App: "@acme/bob-runtime", InstanceID: "agent-bob-1", UserID: "bob",
		OrgUnit: "sales", TenantID: "acme-corp", MaxClassificationShared: "restricted", MinClassification: "internal",
		SupportedExchangeTypes: []string{"information_query"}, MaxRounds: 2, MaxClassificationUnknown: "internal", Tools: "secrets", DisclosureText: "Sent by bob's assistant",
	}}
	if !reflect.DeepEqual(c.Agents, want) {
		t.Errorf("agents are\n%+v\nwant\n%+v", c.Agents, want)
	}
	contacts := []Contact{
		{Kind: "agent", InstanceID: "carol-1", UserID: "carol", OrgUnit: "marketing", TenantID: "acme-corp", Accepts: []string{"public"}},
		{Kind: "person", Accepts: []string{"public", "internal"}, Sessions: []string{"telegram:dave", "agent:carol:*"}},
	}
	if !reflect.DeepEqual(c.Directory, contacts) {
		t.Errorf("directory is\n%+v\nwant\n%+v", c.Directory, contacts)
	}
	if c.DefaultAgent != "bob" || len(c.Routes) != 1 || c.Routes[0] != (Route{"chat:*", "alice"}) {
		t.Errorf("default agent %q, routes %v", c.DefaultAgent, c.Routes)
	}
}

func TestKeysAsWritten(t *testing.T) {
	c := mustParse(t, `
channels: {Telegram: {botToken: t, "a.B": [1, {Cc: null}], 7: x, when: 2024-01-02}}
apps: {"@acme/X.y": {hostName: h, big: 18446744073709551615, f: 1.5}}
hooks: {wait: 1s, apps: {"@acme/X.y": {answer: 9s}}}
policy: {data: {crossOrg: 1, Limits: {"A.b": true}, cross_org: true}}
`)
	tree := map[string]any{
		"channels": map[string]any{"Telegram": map[string]any{
			"botToken": "t", "a.B": []any{1, map[string]any{"Cc": nil}}, "7": "x", "when": "2024-01-02",
		}},
		"apps": map[string]any{"@acme/X.y": map[string]any{"hostName": "h", "big": uint64(18446744073709551615), "f": 1.5}},
	}
	if got := c.Visible(); !reflect.DeepEqual(got, tree) {
		t.Errorf("channels and apps are\n%#v\nwant\n%#v", got, tree)
	}
	if got, want := c.Hooks.For("@acme/X.y"), (HookTimes{Wait: time.Second, Answer: 9 * time.Second}); got != want {
		t.Errorf("hook times are %v, want %v", got, want)
	}
	if got, want := c.Hooks.For("@acme/x.y"), (HookTimes{Wait: time.Second, Answer: 5 * time.Second}); got != want {
		t.Errorf("hook times of another app are %v, want %v", got, want)
	}
	data := map[string]any{
		"enabled": true, "cross_org": true, "max_classification_shared": "internal",
		"allowed_exchange_types": []any{"information_query", "commitment_request", "meeting_scheduling"},
		"crossOrg":               1, "Limits": map[string]any{"A.b": true},
	}
	if got := c.Policy.Data.Map(); !reflect.DeepEqual(got, data) {
		t.Errorf("policy data is\n%#v\nwant\n%#v", got, data)
	}
}

func TestErrorsInTheFile(t *testing.T) {
	agent := func(more string) string {
		return strings.Replace(alice, "}", ", "+more+"}", 1)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "\nagnets: []", `ocipd.yaml:2:1: unknown key "agnets": did you mean "agents"?`},
		{"case counts", "IPC: {}", `ocipd.yaml:1:1: unknown key "IPC", want one of ipc, agents,`},
		{"unknown key below", "ocip:\n  comitment: {}", `ocipd.yaml:2:3: unknown key "comitment": did you mean "commitment"?`},
		{"unknown key far off", "store: {dsn: x}", `ocipd.yaml:1:9: unknown key "dsn", want one of url, commit_timeout`},
		{"key of another section", "allowed_signers: x", `ocipd.yaml:1:1: unknown key "allowed_signers": did you mean "approvals.allowed_signers"?`},
		{"origin with a path", "approvals: {allowed_signers: /x, origins: ['https://host.example/']}", `approvals.origins[0]: "https://host.example/" is no origin: write https://HOST`},
		{"origin of an address", "approvals: {allowed_signers: /x, origins: ['http://127.0.0.1:7443']}", `approvals.origins[0]: browsers offer no passkeys at "http://127.0.0.1:7443"`},
		{"an unknown proof", "console: {decide: click}", `console.decide: unknown proof "click", want one of passkey, session`},
		{"origins without signers", "approvals: {origins: ['https://host.example']}", `approvals.origins: a page's passkey counts only if approvals.allowed_signers lists it`},
		{"unknown key in a list", agent("tenant: x"), `ocipd.yaml:3:103: unknown key "tenant": did you mean "tenant_id"?`},
		{"unknown key of an app", `hooks: {apps: {"@a/b": {wiat: 1s}}}`, `unknown key "wiat": did you mean "wait"?`},
		{"duplicate key", "log: {level: info}\nlog: {level: warn}", `ocipd.yaml:2:1: duplicate key "log", first at line 1`},
		{"duplicate raw key", "channels: {a: {b: 1, b: 2}}", `ocipd.yaml:1:22: duplicate key "b", first at line 1`},
		{"text for number", "ipc: {max_line_bytes: many}", `ocipd.yaml:1:23: ipc.max_line_bytes: want a size such as 4096, 64KB or 1MiB, got "many"`},
		{"fraction", "ipc: {max_in_flight: 4096.5}", `want a whole number, got 4096.5`},
		{"number too large", "ipc: {max_in_flight: 99999999999999999999}", `want a whole number`},
		{"number for text", agent("exe: 12"), `agents[0].exe: want text, got 12: put it in quotes`},
		{"number for duration", "drain_timeout: 10", `drain_timeout: want a duration such as 250ms, 5s or 24h, got 10`},
		{"bad duration", "drain_timeout: 10 seconds", `drain_timeout: want a duration such as 250ms, 5s or 24h, got "10 seconds"`},
		{"yes for true", "policy: {watch: yes}", `policy.watch: want true or false, got "yes"`},
		{"list for section", "ipc: [1]", `ipc: want a mapping, got a list`},
		{"mapping for list", "agents: {alice: {}}", `agents: want a list, got a mapping`},
		{"text for tree", "channels: telegram", `channels: want a mapping, got text`},
		{"list for text", "log: {level: [info]}", `log.level: want text, got a list`},
		{"not a mapping", "[1, 2]", `ocipd.yaml:1:1: want a mapping, got a list`},
		{"merge key", "a: &a {level: info}\nlog: {<<: *a}", `ocipd.yaml:2:7: log["<<"]: merge keys are not read`},
		{"key that is a list", "channels: {[a]: 1}", `channels: a key must be plain text`},
		{"not JSON", "channels: {a: .nan}", `channels.a: want a number that JSON can hold`},
		{"tag", "channels: {a: !!binary aGk=}", `channels.a: cannot read a value tagged !!binary`},
		{"wrong tag", "channels: {a: !!int x}", `channels.a: cannot read this as !!int`},
		{"level that is none", agent("max_classification_shared: secret, min_classification: internal"), `unknown level "secret", want one of public, internal, confidential, restricted`},
		{"syntax", "ipc: {\nlog: [", `ocipd.yaml:2: cannot read YAML: `},
		{"tab", "ipc:\n\tsocket: /x", `ocipd.yaml:2:1: cannot read YAML: a tab indents this line, want spaces`},
		{"not UTF-8", "ipc:\n  socket: \"\xff\"", `ocipd.yaml:2:12: cannot read YAML: this is not UTF-8`},
		{"second document", "ipc: {}\n---\nlog: {}", `ocipd.yaml:2:1: a second YAML document, want one`},

		{"level", "ocip: {default_classification: secret}", `ocip.default_classification: unknown level "secret", want one of public, internal, confidential, restricted`},
		{"level of an agent", agent("max_classification_shared: Public"), `agents[0].max_classification_shared: unknown level "Public", want one of public, internal, confidential, restricted: did you mean "public"?`},
		{"floor over ceiling", agent("min_classification: restricted"), `agents[0].min_classification: want at most max_classification_shared (internal)`},
		{"exchange type", "ocip: {default_exchange_type: query}", `unknown exchange type "query", want one of information_query, commitment_request, meeting_scheduling`},
		{"exchange type twice", agent("supported_exchange_types: [information_query, information_query]"), `agents[0].supported_exchange_types[1]: "information_query" is listed twice`},
		{"no exchange type", agent("supported_exchange_types: []"), `agents[0].supported_exchange_types: want at least one`},
		{"policy exchange type", "policy: {data: {allowed_exchange_types: [x]}}", `policy.data.allowed_exchange_types[0]: unknown exchange type "x"`},
		{"policy data type", "policy: {data: {enabled: 1}}", `policy.data.enabled: want true or false, got 1`},
		{"disclosure", "ocip: {disclosure: infix}", `ocip.disclosure: unknown place "infix", want one of suffix, prefix, none`},
		{"unknown placeholder", "ocip:\n  disclosure_text: 'by {name}'\nagents: []", `ocipd.yaml:2:20: ocip.disclosure_text: unknown placeholder {name}, want {user} or {runtime}`},
		{"placeholder of an agent", agent("disclosure_text: 'by {runtime'"), `agents[0].disclosure_text: want { and } only around the name of a placeholder, {user} or {runtime}, got "by {runtime"`},
		{"no disclosure", "ocip: {disclosure_text: ''}", `ocip.disclosure_text: want a sentence that says who sends`},
		{"no disclosure of an agent", agent("disclosure_text: ''"), `agents[0].disclosure_text: want a sentence that says who sends`},
		{"two lines of disclosure", `ocip: {disclosure_text: "one\ntwo"}`, `ocip.disclosure_text: want one line of characters that show, got "one\ntwo"`},
		{"match", "ocip: {commitment: {match: exact}}", `want one of word, substring`},
		{"enforcement", "ocip: {commitment: {enforcement: warn}}", `want one of enforce, monitor`},
		{"content", "audit: {content: none}", `want one of digest, held, full`},
		{"small segments", "audit: {rotate: {bytes: 100}}", `audit.rotate.bytes: want at least 4KiB, got 100`},
		{"no age", "audit: {rotate: {age: 0s}}", `audit.rotate.age: want a duration above zero, got 0s`},
		{"full to nobody", "audit:\n  content: full", `ocipd.yaml:2:12: audit.content: full keeps texts sealed to audit.recipients, and there is none: age-keygen -o FILE`},
		{"held to nobody", "audit:\n  content: held", `ocipd.yaml:2:12: audit.content: held keeps texts sealed to audit.recipients, and there is none: age-keygen -o FILE`},
		{"recipient", "audit: {recipients: [alice]}", `ocipd.yaml:1:22: audit.recipients[0]: cannot use the recipient "alice": want a public key that begins with age1`},
		{"private key", "audit: {recipients: [AGE-SECRET-KEY-1QQ]}", `audit.recipients[0]: cannot use a recipient: it is a private key`},
		{"redacted member", "audit: {redact: {members: [sessionKey, sessionkey]}}", `ocipd.yaml:1:40: audit.redact.members[1]: cannot redact "sessionkey": want one of `},
		{"redacted proof", "audit: {redact: {members: [details.signature]}}", `cannot redact "details.signature": a decision is proved by it`},
		{"redaction pattern", "audit: {redact: {patterns: ['a', '(']}}", `ocipd.yaml:1:34: audit.redact.patterns[1]: cannot use "(": error parsing regexp: missing closing )`},
		{"pattern of all", "audit: {redact: {patterns: ['x*']}}", `audit.redact.patterns[0]: cannot use "x*": the expression matches the empty text`},
		{"log level", "log: {level: inof}", `log.level: unknown log level "inof", want one of debug, info, warn, error: did you mean "info"?`},
		{"log format", "log: {format: text}", `want one of auto, json, console`},
		{"zero rounds", "ocip: {max_rounds: 0}", `ocip.max_rounds: want at least 1, got 0`},
		{"zero rounds of an agent", agent("max_rounds: 0"), `agents[0].max_rounds: want at least 1, got 0`},
		{"negative duration", "health: {unhealthy_after: -1s}", `health.unhealthy_after: want a duration above zero, got -1s`},
		{"zero wait of an app", `hooks: {apps: {"@a/b": {wait: 0s}}}`, `hooks.apps["@a/b"].wait: want a duration above zero, got 0s`},
		{"negative drain", "drain_timeout: -1s", `drain_timeout: want a duration of zero or more, got -1s`},
		{"metrics for everybody", "metrics: {listen: '0.0.0.0:9464'}", `metrics.listen: want an address of the loopback by its number, such as 127.0.0.1:9464 or [::1]:9464, got "0.0.0.0:9464"`},
		{"metrics on every address", "metrics: {listen: ':9464'}", `metrics.listen: want an address of the loopback`},
		{"metrics by name", "metrics: {listen: 'localhost:9464'}", `metrics.listen: want an address of the loopback`},
		{"metrics that only look local", "metrics: {listen: '127.0.0.1.example.org:9464'}", `metrics.listen: want an address of the loopback`},
		{"metrics on no address", "metrics: {listen: '127.0.0.256:9464'}", `metrics.listen: want an address of the loopback`},
		{"metrics on no port", "metrics: {listen: '127.0.0.1:65536'}", `metrics.listen: want a port of 1 to 65535, got "127.0.0.1:65536"`},
		{"relative metrics socket", "metrics: {socket: m.sock}", `metrics.socket: want an absolute path, got "m.sock"`},
		{"long metrics socket", "metrics: {socket: /" + strings.Repeat("x", 107) + "}", `metrics.socket: want a path of at most 107 bytes, got 108`},
		{"short line", "ipc: {max_line_bytes: 10}", `ipc.max_line_bytes: want at least 1KiB, got 10`},
		{"queue under a line", "ipc: {max_queue_bytes: 2048}", `ipc.max_queue_bytes: want at least ipc.max_line_bytes (256KiB)`},
		{"annotation over a line", "ocip: {max_annotation_bytes: 262144}", `ocip.max_annotation_bytes: want less than ipc.max_line_bytes (256KiB)`},
		{"negative uid", "ipc: {allow_uids: [1000, -1]}", `ocipd.yaml:1:26: ipc.allow_uids[1]: want at least 0, got -1`},
		{"negative agent uid", agent("uid: -1"), `agents[0].uid: want at least 0, got -1`},
		{"relative exe", agent("exe: bin/a"), `agents[0].exe: want an absolute path, got "bin/a"`},
		{"long socket", "ipc: {socket: /" + strings.Repeat("x", 100) + "/k}", `ipc.socket: want a path that leaves room for operator.sock within 107 bytes`},
		{"operator socket", "ipc: {socket: /run/x/../operator.sock}", `ipc.socket: operator.sock is the name of`},

		{"value that is a comment", "agents:\n  - id: alice\n    user_id: #book-club\n", `ocipd.yaml:3:13: agents[0].user_id: what begins with # is a comment, so that there is no value here: put a text that begins so in quotes`},
		{"item that is a comment", "directory:\n  - kind: person\n    sessions:\n      - #book-club\n", `directory[0].sessions[0]: what begins with # is a comment`},
		{"address in a list", "directory:\n  - sessions: [@dave, \"irc:*x\"]\n", `ocipd.yaml:2:16: cannot read YAML: no text begins with @ unless it is in quotes`},
		{"alias that is a star", "routes:\n  - session: telegram:*\n    agent: me\ndefault_agent: *me\n", `ocipd.yaml:4:16: cannot read YAML: unknown anchor referenced: put a text that begins with * in quotes`},
		{"tag", alice + "default_agent: !me", `ocipd.yaml:4:16: default_agent: cannot read a value with a tag: put it in quotes`},
		{"second colon", "default_agent: a: b", `ocipd.yaml:1: cannot read YAML: a second colon with a blank behind it is on this line: put a text that has one in quotes`},
		{"open quote", "default_agent: \"me\nlog:\n  level: info\n", `a quote or a bracket that was opened is not closed by the end of the file`},

		{"missing", "agents:\n  - {id: alice, app: a, user_id: u, org_unit: o, tenant_id: t}", `ocipd.yaml:2:5: agents[0].instance_id: is required`},
		{"blank", strings.Replace(alice, "tenant_id: acme", "tenant_id: ' '", 1), `agents[0].tenant_id: is required`},
		{"id that hides", strings.Replace(alice, "id: alice", "id: \"al\\u200bice\"", 1), `agents[0].id: U+200B`},
		{"tenant with a blank", strings.Replace(alice, "tenant_id: acme", "tenant_id: 'acme '", 1), `agents[0].tenant_id: `},
		{"session that hides", "directory: [{kind: person, sessions: [\"telegram:4711\\u200b\"]}]", `directory[0].sessions[0]: U+200B`},
		{"session with a blank", "directory: [{kind: person, sessions: ['telegram:rival ']}]", `directory[0].sessions[0]: `},
		{"id with colon", strings.Replace(alice, "id: alice", "id: 'a:b'", 1), `agents[0].id: want no colon, star or space, because session keys hold the id, got "a:b"`},
		{"app with a space", agent("exe: /x") + "hooks: {apps: {'bad id': {wait: 1s}}}", `hooks.apps["bad id"]: want the id of an app, which is a package name such as @acme/telegram, got "bad id"`},
		{"app of an agent", strings.Replace(alice, "app: \"@acme/alice\"", "app: '@Acme/alice'", 1), `agents[0].app: want the id of an app, which is a package name such as @acme/telegram, got "@Acme/alice"`},
		{"same agent id", alice + "  - {id: alice, app: b, instance_id: a-2, user_id: u, org_unit: o, tenant_id: t}", `ocipd.yaml:4:10: agents[1].id: "alice" is taken by agents[0].id`},
		{"id of another's instance", alice + "  - {id: a-1, app: b, instance_id: b-1, user_id: u, org_unit: o, tenant_id: t}", `ocipd.yaml:4:10: agents[1].id: "a-1" is taken by agents[0].instance_id`},
		{"instance of another's id", alice + "  - {id: bob, app: b, instance_id: alice, user_id: u, org_unit: o, tenant_id: t}", `agents[0].id: "alice" is taken by agents[1].instance_id`},
		{"same instance", alice + "  - {id: bob, app: b, instance_id: a-1, user_id: u, org_unit: o, tenant_id: t}", `agents[1].instance_id: "a-1" is taken by agents[0].instance_id`},
		{"instance of an agent", alice + "directory: [{instance_id: a-1, user_id: u, org_unit: o, tenant_id: t}]", `directory[0].instance_id: "a-1" is taken by agents[0].instance_id`},
		{"default agent", alice + "default_agent: alise", `ocipd.yaml:4:16: default_agent: no agent has the id "alise", there are: alice: did you mean "alice"?`},
		{"route", alice + "routes: [{session: 'a:b', agent: x}]", `routes[0].agent: no agent has the id "x", there are: alice`},
		{"no agents", "default_agent: x", `no agent has the id "x", there are: none`},
		{"route twice", alice + "routes: [{session: 'a:b', agent: alice}, {session: 'a:b', agent: alice}]", `routes[1].session: "a:b" is taken by routes[0].session`},
		{"session", alice + "routes: [{session: telegram, agent: alice}]", `routes[0].session: want a session key such as telegram:123, agent:bob:* or chat:*, got "telegram"`},
		{"star", alice + "routes: [{session: 'a:*:b', agent: alice}]", `routes[0].session: want a star at the end only`},
		{"star for channel", alice + "routes: [{session: '*:b', agent: alice}]", `routes[0].session: want a star at the end only`},
		{"session twice", "directory: [{kind: person, sessions: ['a:b']}, {kind: person, sessions: ['c:d', 'a:b']}]", `directory[1].sessions[1]: "a:b" is taken by directory[0].sessions[0]`},
		{"session of an agent here", alice + "directory: [{instance_id: g-1, user_id: u, org_unit: o, tenant_id: globex, sessions: ['agent:zoe:main', 'agent:alice:main']}]", `directory[0].sessions[1]: sessions that begin with agent:alice: are agent alice's own`},
		{"sessions of an agent here", alice + "directory: [{kind: person, sessions: ['agent:alice:*']}]", `directory[0].sessions[0]: sessions that begin with agent:alice: are agent alice's own`},
		{"kind", "directory: [{kind: robot, sessions: ['a:b']}]", `directory[0].kind: unknown kind "robot", want one of agent, person, group`},
		{"contact identity", "directory: [{instance_id: i, user_id: u, org_unit: o}]", `directory[0].tenant_id: is required`},
		{"person", "directory: [{kind: person}]", `directory[0].sessions: a person is known by sessions alone`},
		{"accepts", "directory: [{kind: person, sessions: ['a:b'], accepts: [internal, all]}]", `directory[0].accepts[1]: unknown level "all"`},
		{"accepts nothing", "directory: [{kind: person, sessions: ['a:b'], accepts: []}]", `directory[0].accepts: want at least one level`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("ocipd.yaml", []byte(tt.text))
			if err == nil {
				t.Fatalf("read without an error: %+v", c)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
			var first *Error
			if !errors.As(err, &first) || first.File != "ocipd.yaml" {
				t.Errorf("no *Error with a file in %#v", err)
			}
		})
	}
}

func TestErrorsOutsideTheFile(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   string
		flags map[string]any
		want  string
	}{
		{"unknown variable", "OCIPD_LOG_LEVLE=info", nil, `OCIPD_LOG_LEVLE: the variable names no key that holds one value: did you mean "OCIPD_LOG_LEVEL"?`},
		{"variable of a list", "OCIPD_AGENTS=alice", nil, `OCIPD_AGENTS: the variable cannot set agents, which is a list or a mapping: only the file can`},
		{"variable of nothing", "OCIPD_GADGETS=alice", nil, "OCIPD_GADGETS: the variable names no key that holds one value"},
		{"flag of a mapping", "", map[string]any{"audit.sinks": "x"}, "flag audit.sinks: the flag cannot set audit.sinks, which is a list or a mapping"},
		{"bad number", "OCIPD_OCIP_MAX_ROUNDS=lots", nil, `OCIPD_OCIP_MAX_ROUNDS: ocip.max_rounds: want a whole number, got "lots"`},
		{"empty number", "OCIPD_OCIP_MAX_ROUNDS=", nil, `OCIPD_OCIP_MAX_ROUNDS: ocip.max_rounds: want a whole number, got ""`},
		{"bad bool", "OCIPD_POLICY_WATCH=maybe", nil, `OCIPD_POLICY_WATCH: policy.watch: want true or false`},
		{"bad value", "OCIPD_LOG_LEVEL=loud", nil, `OCIPD_LOG_LEVEL: log.level: unknown log level "loud", want one of debug, info, warn, error`},
		{"out of range", "OCIPD_STORE_COMMIT_TIMEOUT=0s", nil, `OCIPD_STORE_COMMIT_TIMEOUT: store.commit_timeout: want a duration above zero, got 0s`},
		{"unknown flag", "", map[string]any{"log.levle": "info"}, `flag log.levle: the flag names no key that holds one value: did you mean "log.level"?`},
		{"flag of another type", "", map[string]any{"ocip.max_rounds": true}, `flag ocip.max_rounds: ocip.max_rounds: want a whole number, got true`},
		{"bad flag", "", map[string]any{"log.format": "xml"}, `flag log.format: log.format: unknown format "xml", want one of auto, json, console`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(Options{Env: []string{tt.env}, Flags: tt.flags})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "did you mean") != strings.Contains(tt.want, "did you mean") {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	file := write(t, t.TempDir(), "ocipd.yaml", "log: {level: loud}\nagnets: []\nipc: {max_line_bytes: x}\n")
	_, err := Load(Options{File: file, Env: []string{"OCIPD_NO=1"}})
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var keys []string
	for _, e := range all {
		keys = append(keys, fmt.Sprintf("%s:%d", e.Key, e.Line))
	}
	want := []string{"log.level:1", "agnets:2", "ipc.max_line_bytes:3", "OCIPD_NO:0"}
	if !reflect.DeepEqual(keys, want) {
		t.Errorf("got %v, want %v\n%v", keys, want, err)
	}
	if lines := strings.Count(err.Error(), "\n"); lines != 3 {
		t.Errorf("want four lines, got\n%v", err)
	}

	// Consequences of a fault are not reported.
	_, err = Parse("", []byte("ipc: {max_line_bytes: -1}"))
	if errors.As(err, &all); len(all) != 1 {
		t.Errorf("one bad size is reported as\n%v", err)
	}
	_, err = Parse("", []byte("x"+strings.Repeat(": 1\nx", 1000)+": 1\n"))
	if errors.As(err, &all); len(all) != 1 {
		t.Errorf("one key was reported %d times", len(all))
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "x%d: 1\n", i)
	}
	_, err = Parse("", []byte(many.String()))
	if errors.As(err, &all); len(all) != maxErrors {
		t.Errorf("got %d errors, want %d", len(all), maxErrors)
	}
}

func TestBounds(t *testing.T) {
	bomb := "channels:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		alias := fmt.Sprintf("*a%d, ", i)
		bomb += fmt.Sprintf("  a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(alias, 9))
	}
	for _, tt := range []struct{ name, text, want string }{
		{"size", "# " + strings.Repeat("x", yamltext.MaxBytes), "more than 1048576 bytes"},
		{"bomb", bomb, "more than 100000 values"},
		{"many values", "channels: {a: [" + strings.Repeat("1,", maxValues) + "]}", "more than 100000 values"},
		{"depth", "channels: {a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}", "64 levels"},
		{"extreme depth", "channels: {a: " + strings.Repeat("[", 20000), "cannot read YAML"},
		{"circle", "channels: &a {b: *a}", "64 levels"},
		{"circle of agents", "agents: &a [*a]", "want a mapping, got a list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse("x.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.200v, want %s", err, tt.want)
			}
		})
	}
	file := write(t, t.TempDir(), "large.yaml", "# "+strings.Repeat("x", 2*yamltext.MaxBytes))
	if _, err := Load(Options{File: file}); err == nil || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("a large file: got %v", err)
	}
}

func TestAliases(t *testing.T) {
	c := mustParse(t, `
channels: {a: &a {k: 1}, b: *a}
ocip: {default_classification: &l public}
policy: {data: {max_classification_shared: *l}}
`)
	if !reflect.DeepEqual(c.Channels["a"], c.Channels["b"]) || c.Policy.Data.MaxClassificationShared != "public" {
		t.Errorf("aliases read as %v, %q", c.Channels, c.Policy.Data.MaxClassificationShared)
	}
}

func TestEnvNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, key := range Keys() {
		name := EnvName(key)
		if seen[name] != "" {
			t.Errorf("%s sets both %s and %s", name, seen[name], key)
		}
		seen[name] = key
		if _, err := keypath.Compile(key); err != nil {
			t.Error(err)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d keys", len(seen))
	}
}

func TestRedacted(t *testing.T) {
	c := mustParse(t, `
channels: {telegram: {botToken: abc123, API_KEY: 42, token: "", hosts: ["http://me:pw@h/", plain], credentials: {user: hidden}}}
apps: {"@a/b": [{Password: hunter2}, {note: other, running: true}]}
policy: {data: {clientSecret: xyzzy, cross_org: true, note: shown, credentials: {user: hidden}}}
`)
	c.Store.URL = "postgres://u:p@ss@db/ocip"
	out, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"abc123", "42", "p@ss", "pw", "hidden", "hunter2", "xyzzy", "other"} {
		if strings.Contains(string(out), secret) {
			t.Errorf("%q is shown in\n%s", secret, out)
		}
	}
	for _, shown := range []string{`token: ""`, "postgres://***@db/ocip", "note: shown", "running: true", "cross_org: true", "credentials: '***'"} {
		if !strings.Contains(string(out), shown) {
			t.Errorf("%q is missing in\n%s", shown, out)
		}
	}
	if c.Channels["telegram"].(map[string]any)["botToken"] != "abc123" || c.Store.URL != "postgres://u:p@ss@db/ocip" {
		t.Error("the configuration itself was changed")
	}
}

// FuzzParse checks that a configuration equals its own printed form.
func FuzzParse(f *testing.F) {
	f.Add([]byte(alice + "channels: {a: &x [1, 0x1F, 1e3, ~, 'y'], b: *x, \"c.D\": {e: 2024-01-01}}\n"))
	f.Add([]byte("hooks: {wait: 1s, apps: {\"@a/b.c\": {wait: 2s}}}\npolicy: {data: {Own: {k: v}, \"*\": 1}}\n"))
	f.Add([]byte("directory: [{kind: person, sessions: ['a:b', 'agent:c:*']}]\n"))
	f.Add([]byte("channels: &a {b: *a}\nlog: {<<: *a}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err != nil {
			var all Errors
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("not a list of problems: %#v", err)
			}
			return
		}
		printed, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("f", printed)
		if err != nil {
			t.Fatalf("cannot read back what was printed: %v\n%s", err, printed)
		}
		second, err := again.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		if string(second) != string(printed) {
			t.Fatalf("printed as\n%s\nthen as\n%s", printed, second)
		}
		for _, change := range keypath.Diff(c.Visible(), again.Visible()) {
			if _, err := keypath.Compile(change.Path); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The entry of an agent has its label, by the common text or its own. The runtime is that of its app.
func TestDisclosureText(t *testing.T) {
	agents := `
agents:
  - {id: a, app: "@openclaw/gateway", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme}
  - {id: b, app: "@me/bot", instance_id: b-1, user_id: alice, org_unit: eng, tenant_id: acme}
  - {id: c, app: codex, instance_id: c-1, user_id: alice, org_unit: eng, tenant_id: acme, disclosure_text: "{runtime}, for {user}"}
  - {id: d, instance_id: d-1, user_id: "a{b", org_unit: eng, tenant_id: acme}
`
	for common, want := range map[string][]string{
		"": {"Sent by alice's OpenClaw assistant", "Sent by alice's assistant", "Codex, for alice", "Sent by user's OpenClaw assistant"},
		"ocip: {disclosure_text: 'AI of {user}'}":           {"AI of alice", "AI of alice", "Codex, for alice", "Sent by user's OpenClaw assistant"},
		"ocip: {disclosure_text: 'Ein Assistent schreibt'}": {"Ein Assistent schreibt", "Ein Assistent schreibt", "Codex, for alice", "Ein Assistent schreibt"},
	} {
		c := mustParse(t, common+agents)
		for i, label := range want {
			if got := c.Agents[i].DisclosureText; got != label {
				t.Errorf("%q: agent %s has %q, want %q", common, c.Agents[i].ID, got, label)
			}
		}
		shown, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		for _, label := range want {
			if !strings.Contains(string(shown), "disclosure_text: "+label) {
				t.Errorf("%q: %q is not shown in\n%s", common, label, shown)
			}
		}
		if again := mustParse(t, string(shown)); !reflect.DeepEqual(again.Agents, c.Agents) {
			t.Errorf("%q reads as\n%+v\nwant\n%+v", shown, again.Agents, c.Agents)
		}
	}
}
