package daemon_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ipc"
)

// sampleParams holds, for every method, parameters it must take and some it
// must refuse.
func sampleParams() map[string]struct{ good, bad []string } {
	return map[string]struct{ good, bad []string }{
		"app.register": {
			good: []string{`{"manifest":{"id":"@openclawos/telegram","name":"Telegram","version":"1.0.0","type":"app","main":"dist/index.js","protocol":{"version":"1.0"},"capabilities":{"channels":{"provides":["telegram"]}}}}`},
			bad: []string{`{}`, `{"manifest":null}`, `{"manifest":{"id":"","version":"1","type":"thing","protocol":{"version":"2.0"}}}`,
				`{"manifest":{"capabilities":{"channels":{"provides":["",{}]}}}}`, `{"manifest":[]}`},
		},
		"app.heartbeat":         {good: []string{`{}`, `null`, ``, `{"status":{"load":0.5}}`, `{"status":null}`}, bad: []string{`{"status":[]}`, `{"status":1}`, `[]`, `"x"`, `{"status":{"x":"` + strings.Repeat("x", 5000) + `"}}`}},
		"app.ready":             {good: []string{`{}`, `{"metadata":{"a":1}}`}, bad: []string{`[]`, `7`}},
		"app.acknowledge":       {good: []string{`{"id":"e"}`}, bad: []string{`{}`, `{"id":""}`, `{"id":7}`}},
		"app.shutdown":          {good: []string{`{}`, `{"reason":"done","timeout":1000}`}, bad: []string{`{"timeout":-1}`, `{"timeout":1.5}`, `{"timeout":1e99}`, `{"reason":7}`}},
		"capability.register":   {good: []string{`{"type":"channel","config":{"channelId":"telegram"}}`, `{"type":"hook","config":{"event":"message_sending","intercept":true}}`, `{}`, `{"type":"cable","config":{}}`, `{"type":"tool","config":null}`, `{"type":"tool","config":{"toolId":7}}`}, bad: []string{`{"type":7}`}},
		"capability.unregister": {good: []string{`{"capabilityId":"x"}`}, bad: []string{`{}`, `{"capabilityId":7}`}},
		"hook.subscribe":        {good: []string{`{"events":["message_sending"]}`, `{"events":[]}`}, bad: []string{`{}`, `{"events":null}`, `{"events":"x"}`, `{"events":[""]}`, `{"events":[1]}`}},
		"hook.unsubscribe":      {good: []string{`{"events":["message_sending"]}`}, bad: []string{`{}`, `{"events":{}}`}},
		"hook.result":           {good: []string{`{"eventId":"e","result":{"content":"x"}}`, `{"eventId":"e","result":null}`, `{"eventId":"e"}`}, bad: []string{`{}`, `{"eventId":7}`}},
		"config.get":            {good: []string{`{}`, `{"path":"channels.telegram"}`, `{"path":""}`}, bad: []string{`{"path":7}`, `{"path":"` + strings.Repeat("x", 5000) + `"}`}},
		"config.watch":          {good: []string{`{}`, `{"paths":["channels"]}`, `{"paths":null}`}, bad: []string{`{"paths":"x"}`, `{"paths":[1]}`}},
		"session.get":           {good: []string{`{"key":"telegram:1"}`}, bad: []string{`{}`, `{"key":"telegram"}`, `{"key":":x"}`, `{"key":"x:"}`, `{"key":7}`}},
		"session.list":          {good: []string{`{}`, `{"filter":{"agentId":"a","channelId":"c","accountId":"x","active":true},"limit":10,"offset":5}`, `{"filter":null,"limit":0}`}, bad: []string{`{"limit":-1}`, `{"limit":1001}`, `{"offset":-1}`, `{"limit":1.5}`, `{"filter":{"active":"yes"}}`, `{"filter":[]}`}},
		"message.dispatch":      {good: []string{`{"sessionKey":"telegram:1","content":"hi","metadata":{"a":[1]}}`, `{"sessionKey":"agent:bob:main","content":"hi"}`}, bad: []string{`{}`, `{"sessionKey":"telegram:1"}`, `{"sessionKey":"x","content":"y"}`, `{"sessionKey":"telegram:1","content":"hi","metadata":7}`}},
		"agent.queue":           {good: []string{`{"sessionKey":"telegram:1","text":"hi"}`}, bad: []string{`{}`, `{"sessionKey":"telegram:1","text":""}`, `{"sessionKey":"telegram:1","text":["x"]}`}},
		"agent.send":            {good: []string{`{"to":"bob","text":"hi"}`, `{"to":"telegram:1","text":"hi","exchange_id":"e","request_key":"k"}`}, bad: []string{`{}`, `{"to":"bob"}`, `{"to":7,"text":"hi"}`, `{"to":"bob","text":"hi","more":1}`}},
		"agent.read":            {good: []string{`{}`, `{"cursor":"","limit":7,"wait_s":1}`}, bad: []string{`{"limit":0}`, `{"limit":101}`, `{"wait_s":-1}`, `{"more":1}`}},
		"agent.contacts":        {good: []string{`{}`}, bad: []string{`{"more":1}`, `[]`}},
		"agent.exchange":        {good: []string{`{"exchange_id":"e"}`}, bad: []string{`{}`, `{"exchange_id":7}`}},
		"agent.approval":        {good: []string{`{"approval_id":"a"}`}, bad: []string{`{}`, `{"approval_id":7}`}},
		"exchange.get": {
			good: []string{`{"exchangeId":"exch-1"}`}, bad: []string{`{}`, `{"exchangeId":7}`},
		},
		"sending.message": {good: []string{`{"sessionKey":"telegram:1","content":"hi"}`, `{"agent":"alice","sessionKey":"telegram:1","content":"hi","metadata":{"a":1}}`}, bad: []string{`{}`, `{"agent":7,"sessionKey":"telegram:1","content":"hi"}`, `{"sessionKey":"x","content":"y"}`}},
		"sending.check":   {good: []string{`{"sessionKey":"telegram:1","content":"hi"}`}, bad: []string{`{}`, `{"sessionKey":"telegram:1"}`, `{"sessionKey":"telegram:1","content":"hi","metadata":7}`}},
		"sending.pause":   {good: []string{`{}`, `{"agent":"alice","note":"why"}`, `{"channel":"irc"}`}, bad: []string{`{"agent":"a","channel":"b"}`, `{"agent":7}`, `{"channel":"` + strings.Repeat("x", 300) + `"}`}},
		"sending.resume":  {good: []string{`{}`, `{"agent":"alice"}`}, bad: []string{`{"agent":"a","channel":"b"}`, `{"note":"` + strings.Repeat("x", 2000) + `"}`}},
		"contact.list":    {good: []string{`{}`, `{"agent":"a","channel":"irc","limit":7,"offset":7}`}, bad: []string{`{"limit":0}`, `{"offset":-1}`, `{"agent":7}`}},
		"contact.forget":  {good: []string{`{"sessionKey":"irc:a","note":"why"}`}, bad: []string{`{}`, `{"sessionKey":"irc"}`, `{"sessionKey":"irc:a","note":"` + strings.Repeat("x", 2000) + `"}`}},
		"backup.note":     {good: []string{`{"directory":"/mnt/backup"}`}, bad: []string{`{}`, `{"directory":7}`, `{"directory":"` + strings.Repeat("x", 5000) + `"}`}},
		"queue.list":      {good: []string{`{}`, `{"queue":"channel:irc","agent":"a","channel":"irc","limit":7,"after":"channel:irc#7"}`}, bad: []string{`{"limit":0}`, `{"limit":1001}`, `{"queue":7}`}},
		"queue.drop":      {good: []string{`{"dispatchIds":["d"],"queue":"channel:irc","note":"why"}`}, bad: []string{`{}`, `{"dispatchIds":[]}`, `{"dispatchIds":[""]}`, `{"dispatchIds":"d"}`}},
		"grant.list":      {good: []string{`{}`, `{"agent":"alice","kind":"exchange","all":true,"limit":7,"after":"1#g"}`}, bad: []string{`{"limit":0}`, `{"limit":1001}`, `{"kind":"x"}`, `{"all":7}`, `{"agent":"` + strings.Repeat("x", 300) + `"}`}},
		"grant.add": {
			good: []string{`{"grantId":"g","agent":"a","receiver":"b","words":["schedule"],"classification":"public","until":1,"maxUses":1,"signature":"x"}`},
			bad: []string{
				`{}`, `{"grantId":"g","agent":"a","receiver":"b","words":["money"],"classification":"public","until":1,"maxUses":1,"signature":"x"}`,
				`{"grantId":"g","agent":"a","receiver":"b","words":["prefixed"],"classification":"public","until":1,"maxUses":1,"signature":"x"}`,
				`{"grantId":"g","agent":"a","receiver":"b","words":["schedule"],"classification":"x","until":1,"maxUses":1,"signature":"x"}`,
				`{"grantId":"g","agent":"a","receiver":"b","words":["schedule"],"classification":"public","until":1,"maxUses":10001,"signature":"x"}`,
				`{"grantId":"g","agent":"a","receiver":"b","words":["schedule"],"classification":"public","maxRound":2,"until":1,"maxUses":1,"signature":"x"}`,
			},
		},
		"grant.revoke": {good: []string{`{"grantId":"g","note":"n"}`}, bad: []string{`{}`, `{"grantId":7}`, `{"grantId":"g","note":"` + strings.Repeat("x", 2000) + `"}`}},
		"exchange.list": {
			good: []string{`{}`, `{"agent":"a","outcome":"escalated","limit":5}`}, bad: []string{`{"limit":0}`, `{"limit":"5"}`},
		},
		"exchange.resolve": {
			good: []string{`{"exchangeId":"exch-1","outcome":"resolved","note":"done"}`}, bad: []string{`{}`, `{"exchangeId":"exch-1","outcome":"denied"}`},
		},
		"approval.get": {good: []string{`{"approvalId":"a"}`}, bad: []string{`{}`, `{"approvalId":7}`}},
		"approval.judge": {
			good: []string{`{"approvalId":"a","digest":"d","model":"m","promptDigest":"sha256:0","answer":"{}"}`},
			bad:  []string{`{}`, `{"approvalId":"a","digest":"d","model":"m","promptDigest":"sha256:0"}`, `{"approvalId":"a","digest":"d","model":"m","promptDigest":"sha256:0","answer":true}`},
		},
		"peer.check": {good: []string{`{"processes":["7@1"]}`}, bad: []string{`{}`, `{"processes":[]}`, `{"processes":["7"]}`, `{"processes":"7@1"}`}},
		"console.report": {
			good: []string{`{"event":"opened"}`, `{"event":"peer_refused","uid":7}`, `{"event":"host_refused","process":"7@1","value":"x"}`},
			bad:  []string{`{}`, `{"event":"closed"}`, `{"event":"opened","process":"7"}`, `{"event":"peer_refused","uid":-1}`, `{"event":"enrolled","digest":7}`},
		},
		"fleet.attach":  {good: []string{`{}`}, bad: []string{`[]`}},
		"fleet.bring":   {good: []string{`{"frame":"AAAA"}`}, bad: []string{`{}`, `{"frame":7}`, `{"frame":"` + strings.Repeat("A", 700_000) + `"}`}},
		"fleet.status":  {good: []string{`{}`}, bad: []string{`[]`}},
		"approval.list": {good: []string{`{}`, `{"state":"all","agent":"alice","limit":10000,"after":"x"}`}, bad: []string{`{"state":"open"}`, `{"limit":0}`, `{"limit":10001}`}},
		"approval.resolve": {
			good: []string{`{"approvalId":"a","decision":"deny"}`, `{"approvalId":"a","decision":"approve","digest":"sha256:0"}`, `{"approvalId":"a","decision":"takeover","digest":"d","content":"mine"}`},
			bad:  []string{`{}`, `{"approvalId":"a"}`, `{"approvalId":"a","decision":"approve"}`, `{"approvalId":"a","decision":"maybe"}`, `{"approvalId":"a","decision":"deny","content":"x"}`},
		},
		"approval.redeem":     {good: []string{`{"approvalId":"a"}`, `{"approvalId":"a","requestKey":"k"}`}, bad: []string{`{}`, `{"approvalId":7}`, `{"approvalId":"a","requestKey":"` + strings.Repeat("x", 300) + `"}`}},
		"approval.confirm":    {good: []string{`{"claim":"c","outcome":"sent"}`, `{"dispatchId":"d","outcome":"not_sent","note":"n"}`}, bad: []string{`{}`, `{"claim":"c"}`, `{"claim":"c","outcome":"lost"}`, `{"claim":"c","dispatchId":"d","outcome":"sent"}`, `{"outcome":"sent"}`}},
		"approval.withdraw":   {good: []string{`{"approvalId":"a","note":"n"}`}, bad: []string{`{}`, `{"approvalId":7}`, `{"approvalId":"a","note":"` + strings.Repeat("x", 2000) + `"}`}},
		"approval.redeemable": {good: []string{`{}`}, bad: []string{`[]`}},
		"agent.redeem":        {good: []string{`{"approvalId":"a"}`, `{"approvalId":"a","requestKey":"k"}`}, bad: []string{`{}`, `{"approvalId":7}`, `{"approvalId":"a","requestKey":"` + strings.Repeat("x", 300) + `"}`}},
		"agent.confirm":       {good: []string{`{"claim":"c","outcome":"sent"}`, `{"dispatchId":"d","outcome":"not_sent","note":"n"}`}, bad: []string{`{}`, `{"claim":"c"}`, `{"claim":"c","outcome":"lost"}`, `{"claim":"c","dispatchId":"d","outcome":"sent"}`, `{"outcome":"sent"}`}},
		"agent.withdraw":      {good: []string{`{"approvalId":"a","note":"n"}`}, bad: []string{`{}`, `{"approvalId":7}`, `{"approvalId":"a","note":"` + strings.Repeat("x", 2000) + `"}`}},
		"agent.redeemable":    {good: []string{`{}`}, bad: []string{`[]`}},
		"agent.watch":         {good: []string{`{}`}, bad: []string{`[]`}},
		"agent.emit":          {good: []string{`{"hookName":"message_sending","data":{"sessionKey":"a:b","content":"x"},"requestKey":"k"}`}, bad: []string{`{}`, `{"hookName":"x","data":7}`, `{"hookName":"x","data":{},"requestKey":7}`}},
		"approval.watch":      {good: []string{`{}`}, bad: []string{`[]`}},
		"hook.emit":           {good: []string{`{"hookName":"message_sending","data":{"sessionKey":"a:b","content":"x"}}`, `{"hookName":"session_end","data":{},"context":{"agentId":"alice"}}`}, bad: []string{`{}`, `{"hookName":"x"}`, `{"hookName":"x","data":7}`, `{"hookName":"x","data":{},"context":{"sessionKey":"x"}}`, `{"hookName":7,"data":{}}`}},
		"agent.complete":      {good: []string{`{"runId":"r","success":true}`}, bad: []string{`{}`, `{"runId":"r","success":"yes"}`}},
		"stream.cancel":       {good: []string{`{"requestId":"r"}`}, bad: []string{`{}`, `{"requestId":[]}`}},
		"kernel.describe":     {good: []string{`{}`, `{"x":1}`}, bad: []string{`[]`}},
		"operator.challenge":  {good: []string{`{"method":"audit.forget"}`}, bad: []string{`{}`, `{"method":7}`}},
		"kernel.methods":      {good: []string{`{}`}, bad: []string{`[]`}},
		"kernel.status":       {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.query":         {good: []string{`{}`, `{"limit":1}`}, bad: []string{`{"limit":0}`, `{"limit":1001}`, `{"before":-1}`, `{"filter":7}`}},
		"audit.stats":         {good: []string{`{}`, `{"since":"2026-03-13T10:00:00Z","bucket":3600}`}, bad: []string{`{"bucket":-60}`, `{"bucket":90}`, `{"since":7}`, `{"since":"2026-03-13T10:00:00Z","until":"2026-03-12T10:00:00Z"}`}},
		"policy.reload":       {good: []string{`{}`}, bad: []string{`[]`}},
		"config.diff":         {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.forget": {
			good: []string{`{"tenant":"acme-corp"}`, `{"tenant":""}`},
			bad:  []string{`{}`, `{"tenant":null}`, `{"tenant":7}`, `{"tenant":"` + strings.Repeat("x", 10_000) + `"}`},
		},
		"audit.rotate_key": {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.tail":       {good: []string{`{}`, `{"last":10,"follow":true,"gatherMs":40}`}, bad: []string{`{"last":-1}`, `{"gatherMs":-1}`, `{"gatherMs":1001}`, `{"after":"x"}`}},
		"audit.inspect":    {good: []string{`{}`, `{"seq":1,"size":2}`}, bad: []string{`{"seq":-1}`, `{"size":"x"}`}},
		"store.snapshot":   {good: []string{`{}`}, bad: []string{`[]`}},
		"audit.verify":     {good: []string{`{}`}, bad: []string{`[]`}},
		"debug.profile":    {good: []string{`{"name":"heap"}`, `{"name":"cpu","seconds":3}`}, bad: []string{`{}`, `{"name":"x"}`, `{"name":"cpu","seconds":301}`, `{"name":"cpu","seconds":-1}`}},
		"audit.retire":     {good: []string{`{"before":"2026-03-13T10:00:00Z"}`}, bad: []string{`{}`, `{"before":7}`}},
	}
}

// refusedParams checks that an error names the invalid fields.
func refusedParams(t *testing.T, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidParams || e.Message == "" {
		t.Fatalf("refused with %v", err)
	}
	fields, ok := e.Details.([]api.FieldError)
	if !ok || len(fields) == 0 {
		t.Fatalf("details are %#v", e.Details)
	}
	for _, f := range fields {
		if f.Path == "" || f.Message == "" {
			t.Fatalf("details are %+v", fields)
		}
	}
}

// Every method of the table has samples, so that a new one cannot be forgotten.
func TestParamsOfEveryMethod(t *testing.T) {
	samples, used := sampleParams(), make(map[string]bool)
	maps.Copy(samples, taskSamples())
	for _, m := range daemon.MethodTable() {
		s, ok := samples[m.Name]
		if !ok {
			t.Errorf("%s has no sample of its params; add one", m.Name)
		}
		for _, good := range s.good {
			if _, err := m.Decode(jsontext.Value(good), m.Strict); err != nil {
				t.Errorf("%s %s: %v", m.Name, good, err)
			}
		}
		for _, bad := range s.bad {
			p, err := m.Decode(jsontext.Value(bad), m.Strict)
			if err == nil {
				t.Errorf("%s %s: accepted as %+v", m.Name, bad, p)
				continue
			}
			refusedParams(t, err)
		}
		used[m.Name] = true
	}
	for name := range samples {
		if !used[name] {
			t.Errorf("there is no method %s", name)
		}
	}
}

// An unknown member of a method for operators, tasks or agents is refused by name, at any
// depth. Apps may send members of a later version.
func TestMembersThatNoMethodHas(t *testing.T) {
	h := build(t, acme)
	person := h.operates()
	named := func(method string, params m, want string) {
		t.Helper()
		if err := api.AsError(person.call(method, params, nil)); err.Code != api.InvalidParams || err.Message != "cannot read params: "+want {
			t.Errorf("%s %v: %v", method, params, err)
		}
	}
	var list api.MethodList
	h.operator("kernel.methods", nil, &list)
	tried := 0
	for _, method := range list.Methods {
		switch method.Access {
		case "operator", "task", "any":
			named(method.Name, m{"foo": "bar"}, `there is no member "foo"`)
			tried++
		}
	}
	if tried < 60 {
		t.Errorf("%d methods of operators were tried", tried)
	}
	named("audit.query", m{"filter": m{"foo": 1}}, `there is no member "foo" in filter`)
	named("sending.pause", m{"agent": "alice", "signature": "y"}, `there is no member "signature"`)
	named("sending.pause", m{strings.Repeat("x", 5000): 1}, `there is no member "`+strings.Repeat("x", 64)+`"`)
	for _, row := range daemon.MethodTable() {
		if strict := !slices.Contains([]ipc.Access{ipc.AccessApp, ipc.AccessOpen, ipc.AccessAny}, row.Access) || row.Name == "task.attach"; row.Strict != strict {
			t.Errorf("%s (%s) refuses members that it does not have: %v", row.Name, row.Access, row.Strict)
		}
	}
	h.agent("@acme/alice").must("session.list", m{"foo": 1}, nil)
	h.agent("@acme/bob").must("kernel.describe", m{"foo": 1}, nil)
}

// FuzzParams decodes every method's parameters through the method table. Accepted
// parameters can be encoded and are accepted again.
func FuzzParams(f *testing.F) {
	table := daemon.MethodTable()
	for i, m := range table {
		s := sampleParams()[m.Name]
		for _, params := range append(s.good, s.bad...) {
			f.Add(uint8(i), []byte(params))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		m := table[int(which)%len(table)]
		p, err := m.Decode(raw, m.Strict)
		if err != nil {
			refusedParams(t, err)
			return
		}
		if got := reflect.TypeOf(p).Elem(); got != m.Params {
			t.Fatalf("%s decodes a %s, its schema is of %s", m.Name, got, m.Params)
		}
		if len(raw) > 0 && !jsontext.Value(raw).IsValid() {
			return // no request that holds it is accepted
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%s: cannot write what was accepted: %v", m.Name, err)
		}
		if _, err := m.Decode(written, m.Strict); err != nil {
			t.Fatalf("%s takes %q and not %s: %v", m.Name, raw, written, err)
		}
	})
}
