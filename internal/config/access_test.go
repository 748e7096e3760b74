package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAccess(t *testing.T) {
	c := mustParse(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme, max_per_hour: 20, media: [/srv/pictures]}
  - {id: bob, app: "@acme/bob", instance_id: b-1, user_id: bob, org_unit: o, tenant_id: globex, max_classification_shared: public}
  - {id: carol, app: "@acme/carol", instance_id: c-1, user_id: carol, org_unit: o, tenant_id: globex, max_classification_shared: restricted, max_classification_unknown: confidential}
  - {id: dave, app: "@acme/dave", instance_id: d-1, user_id: dave, org_unit: o, tenant_id: globex, max_classification_shared: restricted}
access:
  apps:
    "@acme/x.y": {}
    "@acme/telegram": {channels: [telegram, Signal], tenants: [acme, globex], carries: [far-1]}
    "@acme/filter": {intercepts: ["*"], observes: [alice, bob]}
  channels:
    telegram: {address: [chatId], case: ascii, rendering: [html, markdown]}
directory:
  - {kind: person, sessions: ["telegram:1"]}
  - {kind: group, sessions: ["telegram:-100"], members: [a-1, b-1, "telegram:1", "telegram:2"]}
ocip:
  unknown: {commitments: record, keywords: weigh, policy: false, first_contact: hold, max_messages: 5}
  person: {window: 10m}
  look_alike: deny
  inbound: {unannotated: refuse}
`)
	want := Access{
		Apps: map[string]AppAccess{
			"@acme/x.y":      {},
			"@acme/telegram": {Channels: []string{"telegram", "Signal"}, Tenants: []string{"acme", "globex"}, Carries: []string{"far-1"}},
			"@acme/filter":   {Intercepts: []string{"*"}, Observes: []string{"alice", "bob"}},
		},
		Channels: map[string]ChannelAccess{"telegram": {Address: []string{"chatId"}, Case: "ascii", Rendering: []string{"html", "markdown"}}},
	}
	if !reflect.DeepEqual(c.Access, want) {
		t.Errorf("access is\n%+v\nwant\n%+v", c.Access, want)
	}
	var unknown []string
	for _, a := range c.Agents {
		unknown = append(unknown, a.MaxClassificationUnknown)
	}
	if want := []string{"internal", "public", "confidential", "internal"}; !reflect.DeepEqual(unknown, want) {
		t.Errorf("levels for strangers are %v, want %v", unknown, want)
	}
	if a := c.Agents[0]; a.MaxPerHour != 20 || !reflect.DeepEqual(a.Media, []string{"/srv/pictures"}) {
		t.Errorf("alice is %+v", a)
	}
	if want := (People{"record", "weigh", false, "hold", 5, time.Hour}); c.OCIP.Unknown != want {
		t.Errorf("unknown is %+v, want %+v", c.OCIP.Unknown, want)
	}
	if want := (People{"hold", "", true, "allow", 60, 10 * time.Minute}); c.OCIP.Person != want {
		t.Errorf("person is %+v, want %+v", c.OCIP.Person, want)
	}
	if c.OCIP.LookAlike != "deny" || c.OCIP.Inbound.Unannotated != "refuse" {
		t.Errorf("look_alike %q, unannotated %q", c.OCIP.LookAlike, c.OCIP.Inbound.Unannotated)
	}
	again := mustParse(t, string(mustRedact(t, c)))
	if !same(again, c) {
		t.Errorf("what is shown reads as\n%+v\nwant\n%+v", again, c)
	}
	changed := *c
	changed.Access.Apps = map[string]AppAccess{"@acme/telegram": {Channels: []string{"telegram"}}}
	if d := changed.Since(c); len(d.Keys) != 1 || d.Keys[0] != "access.apps" {
		t.Errorf("the difference is %+v", d)
	}
}

func mustRedact(t *testing.T, c *Config) []byte {
	t.Helper()
	text, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Apps may read the sections channels and apps of the file, and access is neither.
func TestAccessIsNotServedToApps(t *testing.T) {
	c := mustParse(t, `access: {apps: {"@acme/telegram": {channels: [telegram]}}, channels: {telegram: {case: ascii}}}`)
	if tree := c.Visible(); len(tree) != 2 || len(tree["channels"].(map[string]any)) != 0 || len(tree["apps"].(map[string]any)) != 0 {
		t.Errorf("apps see %v", tree)
	}
}

func TestAccessErrors(t *testing.T) {
	agent := func(more string) string { return strings.Replace(alice, "}", ", "+more+"}", 1) }
	app := func(grant string) string { return alice + "access:\n  apps:\n    \"@a/b\": {" + grant + "}" }
	channel := func(profile string) string { return "access: {channels: {irc: {" + profile + "}}}" }
	two := strings.Replace(alice, "agents:\n", "agents:\n  - {id: gina, app: \"@g/g\", instance_id: g-1, user_id: g, org_unit: o, tenant_id: globex}\n", 1)
	group := func(more string) string {
		return alice + "directory:\n  - {kind: group, sessions: ['irc:#x'], " + more + "}"
	}
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "access: {aps: {}}", `ocipd.yaml:1:10: unknown key "aps": did you mean "apps"?`},
		{"unknown grant", app("chanels: [irc]"), `ocipd.yaml:6:14: unknown key "chanels": did you mean "channels"?`},
		{"unknown profile", channel("adress: [x]"), `unknown key "adress": did you mean "address"?`},
		{"app", `access: {apps: {"Bad App": {}}}`, `access.apps["Bad App"]: want the id of an app`},
		{"channel of an app", app("channels: ['irc:x']"), `ocipd.yaml:6:25: access.apps["@a/b"].channels[0]: want the id of a channel such as telegram, got "irc:x"`},
		{"agents' keys", app("channels: [agent]"), `want the id of a channel`},
		{"channel twice", app("channels: [irc, irc]"), `"irc" is listed twice`},
		{"intercepts", app("intercepts: [alise]"), `access.apps["@a/b"].intercepts[0]: no agent has the id "alise", there are: alice: did you mean "alice"?`},
		{"observes", app("observes: [x]"), `observes[0]: no agent has the id "x"`},
		{"tenants", app("tenants: [acne]"), `no agent has the tenant "acne", there are: acme: did you mean "acme"?`},
		{
			"one channel of two tenants' apps",
			two + `access: {apps: {"@a/irc": {channels: [irc], tenants: [acme]}, "@b/irc": {channels: [irc], tenants: [acme, globex]}, "@c/irc": {channels: [chat, irc], tenants: [globex]}}}`,
			`access.apps["@c/irc"].channels[1]: channel irc is app @a/irc's, which serves other tenants (acme); want a channel of its own for each, or the same tenants`,
		},
		{
			"one channel of apps whose tenants differ",
			two + `access: {apps: {"@a/irc": {channels: [irc], tenants: [globex, acme]}, "@b/irc": {channels: [irc], tenants: [acme, globex]}, "@c/irc": {channels: [irc], tenants: [acme]}}}`,
			`access.apps["@c/irc"].channels[0]: channel irc is app @a/irc's, which serves other tenants (globex, acme)`,
		},
		{"carries nobody", app("carries: ['']"), `carries[0]: is required`},
		{"channel", `access: {channels: {"a b": {}}}`, `access.channels["a b"]: want the id of a channel`},
		{"address", channel("address: [' x']"), `access.channels.irc.address[0]: want the name of a member of metadata such as chatId, got " x"`},
		{"case", channel("case: asci"), `unknown case rule "asci", want one of none, ascii, rfc1459, unicode: did you mean "ascii"?`},
		{"rendering", channel("rendering: [htm]"), `rendering[0]: unknown rendering "htm", want one of irc, html, markdown: did you mean "html"?`},
		{"level for strangers", agent("max_classification_unknown: secret"), `agents[0].max_classification_unknown: unknown level "secret"`},
		{"more to strangers", agent("max_classification_unknown: restricted"), `agents[0].max_classification_unknown: want at most max_classification_shared (internal), got restricted`},
		{"budget of an agent", agent("max_per_hour: -1"), `agents[0].max_per_hour: want at least 0, got -1`},
		{"relative media", agent("media: [pictures]"), `agents[0].media[0]: want the absolute path of a folder`},
		{"media that leads back", agent("media: [/srv/../etc]"), `with nothing in it that leads back, got "/srv/../etc"`},
		{"the whole machine", agent("media: [/]"), `agents[0].media[0]: want a folder that holds nothing but what may be sent`},
		{"commitments", "ocip: {unknown: {commitments: ask}}", `ocip.unknown.commitments: unknown enforcement "ask", want one of hold, record`},
		{"first contact", "ocip: {person: {first_contact: refuse}}", `ocip.person.first_contact: unknown answer "refuse", want one of allow, hold, deny`},
		{"budget", "ocip: {unknown: {max_messages: 0}}", `ocip.unknown.max_messages: want at least 1, got 0`},
		{"window", "ocip: {person: {window: 0s}}", `ocip.person.window: want a duration above zero, got 0s`},
		{"keywords", "ocip: {commitment: {keywords: off}}", `ocip.commitment.keywords: unknown treatment "off", want one of enforce, weigh`},
		{"keywords to people", "ocip: {person: {keywords: way}}", `ocip.person.keywords: unknown treatment "way", want one of enforce, weigh`},
		{"keywords of an agent", agent("keywords: none"), `agents[0].keywords: unknown treatment "none", want one of enforce, weigh`},
		{"same owner", "ocip: {same_owner: hold}", `ocip.same_owner: unknown enforcement "hold", want one of enforce, record`},
		{"look-alike", "ocip: {look_alike: held}", `ocip.look_alike: unknown answer "held", want one of hold, deny, allow: did you mean "hold"?`},
		{"unannotated", "ocip: {inbound: {unannotated: drop}}", `ocip.inbound.unannotated: unknown way "drop", want one of bind, human, refuse`},
		{"members of a person", "directory: [{kind: person, sessions: ['a:b'], members: [x]}]", `directory[0].members: are for a group, and this one is of the kind person`},
		{"group at no session", "directory: [{kind: group}]", `directory[0].sessions: a group is known by sessions alone`},
		{"group of a tenant", group("tenant_id: acme"), `directory[0].tenant_id: a group has none: its members say who is there`},
		{"nobody", group("members: [a-2]"), `directory[0].members[0]: no agent and no entry has the instance_id "a-2"; a person is named by a session key`},
		{"member twice", group("members: [a-1, a-1]"), `directory[0].members[1]: "a-1" is listed twice`},
		{"many members", group("members: ['irc:*']"), `directory[0].members[0]: want one session, got "irc:*"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse("ocipd.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// Finding D18 of a trial by new users: errors for first mistakes say what to do.
func TestFirstMistakesSayWhatToDo(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"app without quotes", "agents:\n  - id: a\n    app: @tour/shell\n", `f:3:10: cannot read YAML: no text begins with @ unless it is in quotes: write app: "@tour/shell"`},
		{"app in braces", "agents:\n  - {id: a, app: @tour/shell}\n", `f:2:18: cannot read YAML: no text begins with @ unless it is in quotes: write app: "@tour/shell"`},
		{"app as a key", "access:\n  apps:\n    @acme/x: {}\n", `f:3:5: cannot read YAML: no text begins with @ unless it is in quotes: write "@acme/x":`},
		{"what may be secret", "store:\n  url: @hunter2\n", `f:2:8: cannot read YAML: no text begins with @ unless it is in quotes: put what follows url: in quotes`},
		{"star", "routes:\n  - session: *\n", `f:2:14: cannot read YAML: no text begins with * unless it is in quotes`},
		{"between two", "ipc:\n  socket: /x\n log: x\n", `f:3:2: cannot read YAML: this line is indented by 1 space, and those that it may belong to by 0, 2`},
		{"too deep", "ipc:\n  socket: /x\nlog:\n  level: info\n   format: json\n", `f:5:4: cannot read YAML: this line is indented by 3 spaces, and those that it may belong to by 0, 2`},
		{"at the beginning", "# mine\n ipc:\n  socket: /x\nlog:\n  level: info\n", `f:2:2: cannot read YAML: this line is indented by 1 space, and those that it may belong to by 0`},
		{"in an item", "agents:\n  - id: a\n   app: x\n", `f:3:4: cannot read YAML: this line is indented by 3 spaces, and those that it may belong to by 0, 2, 4`},
		{"two on a line", "log: level: info\n", `f:1: cannot read YAML: a second colon with a blank behind it is on this line: put a text that has one in quotes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if err == nil || err.Error() != tt.want && !strings.HasPrefix(err.Error(), tt.want+": put") {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// Attack 25: a character that ends a comment for YAML but not in an editor hides a key.
func TestHiddenLineEndsAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"U+2028", "log: {}\n# was 3\u2028ipc: {apps_may_operate: true}\n", "f:2:8: cannot read this file: U+2028 (line separator) ends a line here"},
		{"U+2029", "# was 3\u2029ipc: {apps_may_operate: true}\n", "f:1:8: cannot read this file: U+2029 (paragraph separator) ends a line here"},
		{"U+0085", "# ä 3\u0085ipc: {apps_may_operate: true}\n", "f:1:6: cannot read this file: U+0085 (next line) ends a line here"},
		{"carriage return", "log: {}\r\n# was 3\ripc: {apps_may_operate: true}\r\n", "f:2:8: cannot read this file: a carriage return without a line feed ends a line here"},
		{"in a text", "channels: {a: \"x\u2028y\"}\n", "f:1:17: cannot read this file: U+2028"},
		{"at the end", "log: {}\r", "f:1:8: cannot read this file: a carriage return"},
		{"the first of several", "log: {}\n#\r\u2028\n", "f:2:2: cannot read this file: a carriage return"},
		{"UTF-16", "\xff\xfel\x00o\x00g\x00:\x00 \x00{\x00}\x00", "f:1:1: cannot read this file: this is UTF-16, want UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := Parse("f", []byte(tt.text)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got\n%v\n%v\nwant\n%s", c, err, tt.want)
			}
		})
	}
	mustParse(t, "log: {}\r\nchannels: {a: \"x\\u2028y\"}\r\n")
}
