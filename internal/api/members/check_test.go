package members_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/audit/gate"
)

const someID = "01890000-0000-7000-8000-000000000000"

type sample struct {
	embedded
	Text   string            `json:"text" is:"required max=4"`
	Word   string            `json:"word" is:"words=a|b"`
	Must   string            `json:"must" is:"required words=a|b"`
	Title  *string           `json:"title" is:"nonempty max=4"`
	Whole  *string           `json:"whole" is:"required max=4"`
	Said   gate.Text         `json:"said" is:"required"`
	At     time.Time         `json:"at" is:"required"`
	Count  int               `json:"count" is:"range=1..3"`
	Run    int64             `json:"run" is:"required range=1.."`
	Least  *int              `json:"least" is:"range=..3"`
	Names  []string          `json:"names" is:"names"`
	Some   []string          `json:"some" is:"required nonempty max=2" each:"id=tsk_"`
	Kept   []string          `json:"kept" is:"keeps=2" each:"max=1"`
	Raw    jsontext.Value    `json:"raw" is:"required object max=9"`
	Status jsontext.Value    `json:"status" is:"object null"`
	Digest jsontext.Value    `json:"digested" is:"exact"`
	Env    map[string]string `json:"env" is:"required max=1"`
	Inner  inner             `json:"inner"`
	Maybe  *inner            `json:"maybe" is:"required"`
	Each   []inner           `json:"each" is:"max=2"`
	Free   string            `json:"free"`
	Flag   bool              `json:"flag"`
}

type embedded struct {
	Session string `json:"session" is:"max=6 form=session"`
}

type inner struct {
	Digest string `json:"digest" is:"form=digest"`
}

// Rules reports faults between members.
func (p *sample) Rules() (f api.Fields) {
	if p.Flag && p.Free == "" {
		f.Add("free", "required with flag")
	}
	return f
}

const good = `{"text":"x","must":"a","whole":"","said":"x","at":"2026-01-01T00:00:00Z","count":1,"run":1,"some":["tsk_' + someID + '"],"raw":{},"env":{},"maybe":{}}`

// TestCheck gives each kind of bound a value that breaks it.
func TestCheck(t *testing.T) {
	base := strings.ReplaceAll(good, "' + someID + '", someID)
	for _, tc := range []struct{ change, want string }{
		{`{}`, ``},
		{`{"text":""}`, `text: required`},
		{`{"text":"abcde"}`, `text: longer than 4 bytes`},
		{`{"text":"ééé"}`, `text: longer than 4 bytes`},
		{`{"word":"","session":""}`, ``},
		{`{"word":"c"}`, `word: "c" is not one of a, b`},
		{`{"must":""}`, `must: required: one of a, b`},
		{`{"must":"A"}`, `must: "A" is not one of a, b`},
		{`{"title":""}`, `title: required`},
		{`{"title":"abcde"}`, `title: longer than 4 bytes`},
		{`{"whole":null}`, `whole: required`},
		{`{"said":"","at":"0001-01-01T00:00:00Z"}`, `said: required; at: required`},
		{`{"count":0}`, `count: 0 is not between 1 and 3`},
		{`{"run":0}`, `run: required`},
		{`{"run":-1,"least":4}`, `run: -1 is less than 1; least: 4 is more than 3`},
		{`{"names":["a",""]}`, `names[1]: required`},
		{`{"some":null}`, `some: required`},
		{`{"some":[]}`, `some: required`},
		{`{"some":["","tsk_1","x"]}`, `some: more than 2 items`},
		{`{"some":["","tsk_1"]}`, `some[1]: want tsk_ and a UUID`},
		{`{"kept":["ab","a","cd"]}`, `kept: more than 2 items; kept[0]: longer than 1 bytes`},
		{`{"raw":[]}`, `raw: not an object`},
		{`{"raw":null,"status":null}`, `raw: not an object`},
		{`{"raw":{"a":1234}}`, `raw: longer than 9 bytes`},
		{`{"status":7}`, `status: not an object`},
		{`{"status":{"a":9007199254740993},"digested":{"a":[1.0,1e2,0.1,-0]}}`, ``},
		{`{"digested":{"a":[1,9007199254740993]}}`, `digested.a.1: the number 9007199254740993 is another one in RFC 8785: write it as a string`},
		{`{"digested":1e400}`, `digested: the number 1e400 is another one in RFC 8785: write it as a string`},
		{`{"env":{"a":"1","b":"2"}}`, `env: more than 1 items`},
		{`{"env":null}`, `env: required`},
		{`{"session":"a:"}`, `session: "a:" is not {channelId}:{target} or agent:{agentId}:{rest}`},
		{`{"session":"abcdefg"}`, `session: longer than 6 bytes; session: "abcdefg" is not {channelId}:{target} or agent:{agentId}:{rest}`},
		{`{"inner":{"digest":"x"},"maybe":{"digest":"y"}}`, `inner.digest: want sha256: and 64 digits; maybe.digest: want sha256: and 64 digits`},
		{`{"maybe":null}`, `maybe: required`},
		{`{"each":[{},{"digest":"x"}]}`, `each[1].digest: want sha256: and 64 digits`},
		{`{"each":[{},{},{"digest":"x"}]}`, `each: more than 2 items`},
		{`{"flag":true}`, `free: required with flag`},
	} {
		var p sample
		for _, text := range []string{base, tc.change} {
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		var got []string
		for _, f := range members.Check(&p) {
			got = append(got, f.Path+": "+f.Message)
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: got %q, want %q", tc.change, strings.Join(got, "; "), tc.want)
		}
	}
}

// TestTags wants a panic for a tag that says nothing.
func TestTags(t *testing.T) {
	for _, tag := range []string{`is:"requird"`, `is:"max=x"`, `is:"range=a..b"`, `is:"form=none"`, `each:"x"`} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "members: Name: ") {
					t.Errorf("%s: %s", tag, said)
				}
			}()
			members.Of(reflect.StructField{Name: "Name", Tag: reflect.StructTag(tag)})
		}()
	}
}

func TestAgentSendParams(t *testing.T) {
	for _, c := range []struct {
		name string
		p    api.AgentSendParams
		want string
	}{
		{"an agent's id", api.AgentSendParams{To: "bob", Text: gate.NewText("hi")}, ""},
		{"a session", api.AgentSendParams{To: "telegram:dave", Text: gate.NewText("hi")}, ""},
		{"to nobody", api.AgentSendParams{Text: gate.NewText("hi")}, "to"},
		{"nothing", api.AgentSendParams{To: "bob"}, "text"},
		{"a type", api.AgentSendParams{To: "bob", Text: gate.NewText("hi"), ExchangeType: "chat"}, "exchange_type"},
		{"a level", api.AgentSendParams{To: "bob", Text: gate.NewText("hi"), Classification: "top"}, "classification"},
		{"a policy", api.AgentSendParams{To: "bob", Text: gate.NewText("hi"), ReplyPolicy: "any"}, "reply_policy"},
		{"an attempt alone", api.AgentSendParams{To: "bob", Text: gate.NewText("hi"), AttemptID: "att_" + someID}, "task_id"},
		{"no task", api.AgentSendParams{To: "bob", Text: gate.NewText("hi"), TaskID: "tsk_1"}, "task_id"},
	} {
		found := members.Check(&c.p)
		if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(f api.FieldError) bool { return f.Path == c.want }) {
			t.Errorf("%s: %v", c.name, found)
		}
	}
}

func TestAgentReadParams(t *testing.T) {
	for cursor, good := range map[string]bool{
		"": true, "17." + someID: true, "AbZ-_09": true, "a b": false, "\x00": false, "é": false, strings.Repeat("a", 2000): true, strings.Repeat("a", 2001): false,
	} {
		p := api.AgentReadParams{Cursor: cursor}
		if found := members.Check(&p); (len(found) == 0) != good {
			t.Errorf("%q: %v", cursor, found)
		}
	}
}

func TestSessionKeys(t *testing.T) {
	for key, good := range map[string]bool{
		"telegram:123": true, "agent:bob:main": true, "irc:direct:bob": true, "a:b": true, "a: ": true,
		"": false, "telegram": false, ":": false, "a:": false, ":b": false,
		"a:" + strings.Repeat("x", api.MaxSessionKey): false,
	} {
		if wrong := members.Check(&api.SessionGetParams{Key: key}); (len(wrong) == 0) != good {
			t.Errorf("%q: %v", key, wrong)
		}
	}
}
