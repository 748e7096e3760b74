package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/configs"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// another changes the value of a key to a different one.
func another(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == treeType:
		v.Set(reflect.ValueOf(map[string]any{"changed": true}))
	case v.Type() == durationType:
		v.SetInt(v.Int() + int64(time.Minute))
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.Int:
		v.SetInt(v.Int() + 1)
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Slice:
		item := reflect.New(v.Type().Elem()).Elem()
		if item.Kind() != reflect.Struct {
			another(t, item)
		}
		v.Set(reflect.Append(v, item))
	case v.Kind() == reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("changed"), reflect.Zero(v.Type().Elem()))
		v.Set(m)
	default:
		t.Fatalf("cannot change a %s", v.Type())
	}
}

// Every key says whether it takes effect live. Another value of it is noticed, and is in
// force or kept back accordingly.
func TestEveryKeyIsLiveOrNot(t *testing.T) {
	seen := 0
	walk(reflect.ValueOf(Default()).Elem(), reflect.ValueOf(Default()).Elem(), nil, "", func(at keypath.Path, how string, _, _ reflect.Value) {
		seen++
		t.Run(at.String(), func(t *testing.T) {
			if how != reloadLive && how != reloadRestart {
				t.Fatalf("its tag reload is %q, want live or restart", how)
			}
			running, edited := Default(), Default()
			for key, value := range leaves(edited) {
				if key == joined(at) {
					another(t, value)
				}
			}
			key := strings.TrimSuffix(joined(at), ".*")
			if d := edited.Since(running); d.Count == 0 || !slices.Equal(d.Keys, []string{key}) || len(d.Changes) != d.Count {
				t.Fatalf("the difference is %+v", d)
			}
			kept, pending := edited.Keep(running)
			live := kept.Since(running).Count > 0
			if live != (how == reloadLive) || live == (pending.Count > 0) {
				t.Errorf("%s, and another value is in force: %t; pending is %+v", how, live, pending)
			}
			if how == reloadRestart && !slices.Equal(pending.Keys, []string{key}) {
				t.Errorf("pending are %q", pending.Keys)
			}
			if edited.Since(running).Count == 0 {
				t.Error("the configuration itself was changed")
			}
		})
	})
	all := 0
	for range leaves(Default()) {
		all++
	}
	if seen != all || all < 40 {
		t.Errorf("%d keys of %d were looked at", seen, all)
	}
}

// joined formats a path as leaves does.
func joined(at keypath.Path) string {
	names := make([]string, len(at))
	for i, s := range at {
		names[i] = s.Key
	}
	return strings.Join(names, ".")
}

const before = `
agents:
  - {id: alice, app: "@acme/a", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme, max_rounds: 3}
  - {id: bob, app: "@acme/b", instance_id: b-1, user_id: bob, org_unit: eng, tenant_id: acme}
directory:
  - {instance_id: carol-1, user_id: carol, org_unit: eng, tenant_id: acme, sessions: ["telegram:carol"]}
  - {kind: person, sessions: ["telegram:dave"]}
hooks: {apps: {"@acme/dlp": {wait: 1s}}}
channels: {telegram: {botToken: "123:first", name: bot, hosts: ["https://me:one@a.example"]}}
apps: {"@acme/a": {api: {password: one}}}
policy: {data: {secretWord: one, own: 1}}
audit:
  sinks:
    - {name: c, type: otlp, endpoint: "https://u:p@c.example/v1/logs", headers: {Authorization: "Bearer one"}}
`

// Differences are named by entry and not by position, and a changed secret shows only that it changed.
func TestSince(t *testing.T) {
	parse := func(text string) *Config {
		t.Helper()
		c, err := Parse("ocipd.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(before) }
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", before + "# a comment\n", nil},
		{"moved entries", edit(
			"  - {id: alice, app: \"@acme/a\", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme, max_rounds: 3}\n", "",
			"directory:\n", "  - {id: alice, app: \"@acme/a\", instance_id: a-1, user_id: alice, org_unit: eng, tenant_id: acme, max_rounds: 3}\ndirectory:\n"), nil},
		{"a value of an agent", edit("max_rounds: 3", "max_rounds: 5"), []string{"agents.alice.max_rounds: 3 -> 5"}},
		{"what agents inherit", before + "ocip: {max_rounds: 7}\n", []string{"agents.bob.max_rounds: 3 -> 7", "ocip.max_rounds: 3 -> 7"}},
		{"a binding", edit(`app: "@acme/b"`, `app: "@acme/b", uid: 1000`), []string{"agents.bob.uid: <nil> -> 1000"}},
		{"an entry is gone", edit(`  - {kind: person, sessions: ["telegram:dave"]}`+"\n", ""), []string{
			`directory["telegram:dave"]: map[accepts:[public] kind:person sessions:[telegram:dave]] -> <nil>`}},
		{"a tenant", edit("user_id: carol, org_unit: eng, tenant_id: acme", "user_id: carol, org_unit: eng, tenant_id: globex"), []string{
			"directory.carol-1.tenant_id: acme -> globex"}},
		{"an interceptor", edit("wait: 1s", "wait: 2s, required: true"), []string{
			`hooks.apps["@acme/dlp"].wait: 1s -> 2s`, `hooks.apps["@acme/dlp"].required: false -> true`}},
		{"another interceptor", edit(`{"@acme/dlp": {wait: 1s}}`, `{"@acme/dlp": {wait: 1s}, two: {wait: 3s, answer: 4s}}`), []string{
			`hooks.apps.two: <nil> -> map[answer:4s wait:3s]`}},
		{"secrets", edit("123:first", "123:second", "password: one", "password: two", "secretWord: one", "secretWord: two", "Bearer one", "Bearer two", "me:one", "me:two", "u:p@", "u:q@"), []string{
			"policy.data.secretWord: *** -> ***",
			"audit.sinks.c.endpoint: https://***@c.example/v1/logs -> https://***@c.example/v1/logs",
			"audit.sinks.c.headers.Authorization: *** -> ***",
			"channels.telegram.botToken: *** -> ***",
			"channels.telegram.hosts: [***] -> [***]",
			`apps["@acme/a"].api.password: *** -> ***`}},
		{"a secret is taken out", edit(`botToken: "123:first", `, ""), []string{"channels.telegram.botToken: *** -> <nil>"}},
		{"a sink is gone", before[:strings.Index(before, "audit:")], []string{
			"audit.sinks.c: map[endpoint:https://***@c.example/v1/logs from:start headers:map[Authorization:***] max_bytes:8KB name:c timeout:10s type:otlp] -> <nil>"}},
		{"own data", edit("own: 1", "own: {deep: [1, 2]}"), []string{"policy.data.own: 1 -> <nil>", "policy.data.own.deep: <nil> -> [1 2]"}},
		{"a text that is long", edit("own: 1", "own: "+strings.Repeat("é", 200)), []string{
			"policy.data.own: 1 -> " + strings.Repeat("é", 126) + "…"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := parse(tt.text).Since(parse(before))
			var got []string
			for _, c := range d.Changes {
				got = append(got, fmt.Sprintf("%s: %v -> %v", c.Path, c.Old, c.New))
			}
			if !slices.Equal(got, tt.want) || d.Count != len(tt.want) || (len(d.Keys) == 0) != (len(tt.want) == 0) {
				t.Errorf("got %d in %q:\n%s\nwant\n%s", d.Count, d.Keys, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// Every value of an entry counts, including those compared by hand.
func TestSameItem(t *testing.T) {
	for _, item := range []any{&Agent{}, &Contact{}, &Route{}, &Pattern{}, &Sink{}} {
		was := reflect.ValueOf(item).Elem()
		for i := range was.NumField() {
			is := reflect.New(was.Type()).Elem()
			if !sameItem(was, is) {
				t.Fatalf("two times %+v differ", item)
			}
			if field := is.Field(i); field.Kind() == reflect.Pointer {
				field.Set(reflect.New(field.Type().Elem()))
			} else if field.Kind() == reflect.Struct {
				another(t, field.Field(0))
			} else {
				another(t, field)
			}
			if sameItem(was, is) {
				t.Errorf("another %s.%s is not seen", was.Type(), was.Type().Field(i).Name)
			}
		}
	}
}

// The listed differences are bounded, however many there are.
func TestSinceIsBounded(t *testing.T) {
	was, now := Default(), Default()
	for n := range 1000 {
		now.Directory = append(now.Directory, Contact{Kind: "agent", InstanceID: fmt.Sprint(n), UserID: strings.Repeat("x", 5000)})
	}
	d := now.Since(was)
	if d.Count != 1000 || len(d.Changes) != 64 || !slices.Equal(d.Keys, []string{"directory"}) {
		t.Errorf("%d differences, %d listed, in %q", d.Count, len(d.Changes), d.Keys)
	}
	for _, c := range d.Changes {
		if text, ok := c.New.(string); !ok || len(text) > 256 {
			t.Fatalf("%s is shown as %v", c.Path, c.New)
		}
	}
}

// The comment in the default file lists every kind of personal data.
func TestPersonalDataIsListed(t *testing.T) {
	words := strings.FieldsFunc(string(configs.Default()), func(r rune) bool { return strings.ContainsRune(" \n#,.:", r) })
	for _, name := range content.Personal() {
		if !slices.Contains(words, name) {
			t.Errorf("configs/ocipd.yaml does not have %s", name)
		}
	}
}

// An invalid regular expression and an unknown cue are reported with their position.
func TestRulesAreChecked(t *testing.T) {
	_, err := Parse("ocipd.yaml", []byte("ocip:\n  commitment:\n    families: {mony: off, money: of}\n  content:\n    patterns:\n"+
		"      - {name: ok, regexp: falcon, level: internal}\n      - {name: bad, regexp: \"fal(con\", level: internal}\n"+
		"      - {name: ok, regexp: osprey, level: intern}\n    personal: {emial: off, email: secret, phone: internal}\n"))
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`ocipd.yaml:3:22: ocip.commitment.families.mony: unknown family of cues "mony"`, `did you mean "money"?`,
		`ocipd.yaml:3:34: ocip.commitment.families.money: unknown mode "of"`,
		"ocipd.yaml:7:29: ocip.content.patterns[1].regexp:", "missing closing )",
		`ocipd.yaml:8:16: ocip.content.patterns[2].name: "ok" is taken by ocip.content.patterns[0].name`,
		`unknown level "intern"`,
		`ocipd.yaml:9:23: ocip.content.personal.emial: unknown kind of personal data "emial"`, `did you mean "email"?`,
		`ocip.content.personal.email: unknown mode "secret"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "ocipd.yaml", "ocip: {max_rounds: 4, max_annotation_bytes: 2000}\npolicy: {data: {cross_org: true}}\n")
	flags := map[string]any{"ocip.max_rounds": 7}
	first, err := Load(Options{File: file, Env: []string{"OCIPD_POLICY_DATA_CROSS_ORG=false"}, Flags: flags})
	must(t, err)
	clear(flags)

	write(t, dir, "ocipd.yaml", "ocip: {max_rounds: 5, max_annotation_bytes: 3000}\npolicy: {data: {cross_org: true, enabled: false}}\n")
	second, err := first.Reload()
	must(t, err)
	if second.OCIP.MaxRounds != 7 || second.OCIP.MaxAnnotationBytes != 3000 || second.Policy.Data.CrossOrg || second.Policy.Data.Enabled {
		t.Errorf("the file alone may change what it says: got %+v, %+v", second.OCIP, second.Policy.Data)
	}
	if first.OCIP.MaxAnnotationBytes != 2000 || !first.Policy.Data.Enabled {
		t.Error("the configuration in use was changed")
	}
	write(t, dir, "ocipd.yaml", "ocip: {max_rounds: 0}\nagnets: []\n")
	if _, err = second.Reload(); err == nil || !strings.Contains(err.Error(), file+":2:1: unknown key") {
		t.Errorf("got %v", err)
	}
	write(t, dir, "ocipd.yaml", " \n")
	if _, err = second.Reload(); err == nil || !strings.Contains(err.Error(), file+" has become empty") {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(file))
	if _, err = second.Reload(); err == nil {
		t.Error("a file that is gone reads as one")
	}

	// A file that was empty from the start may stay so.
	blank, err := Load(Options{File: write(t, dir, "blank.yaml", "")})
	must(t, err)
	if _, err := blank.Reload(); err != nil {
		t.Error(err)
	}

	// If there was no file, one that has appeared since is read.
	none, err := Load(Options{Env: []string{"XDG_CONFIG_HOME=" + dir}})
	must(t, err)
	if again, err := none.Reload(); err != nil || again != none {
		t.Errorf("got %+v, %v", again, err)
	}
	file = write(t, dir, "openclawos/ocipd.yaml", "ocip: {max_rounds: 9}\n")
	came, err := none.Reload()
	if err != nil || came.OCIP.MaxRounds != 9 || came.File != file {
		t.Fatalf("got %+v, %v", came, err)
	}
	if again, err := came.Reload(); err != nil || again != came {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
