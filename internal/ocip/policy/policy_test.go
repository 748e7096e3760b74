package policy

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
)

var (
	_ ocip.Policy = (*Policy)(nil)
	_ ocip.Policy = (*Holder)(nil)
)

func settings() map[string]any {
	return map[string]any{
		"enabled":                   true,
		"cross_org":                 false,
		"allowed_exchange_types":    []any{"information_query", "commitment_request"},
		"max_classification_shared": "internal",
	}
}

func question() ocip.PolicyInput {
	return ocip.PolicyInput{
		Action:       ocip.ActionExchange,
		ExchangeType: ocip.InformationQuery,
		Level:        ocip.Internal,
		Source:       ocip.Identity{InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", TenantID: "acme-corp"},
		Target:       ocip.Identity{InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "marketing", TenantID: "acme-corp"},
		Round:        1,
	}
}

// mustCompile compiles a policy. Its answers have enough time on a busy machine, unless src says
// otherwise.
func mustCompile(t testing.TB, src Source) *Policy {
	t.Helper()
	if src.Timeout == 0 {
		src.Timeout = time.Minute
	}
	p, err := Compile(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write puts files into a new folder and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	allowAll = `decision := {"allow": true, "require_approval": false, "reason": "", "constraints": {}}` + "\n"
	crossOrg = "package ocip.cross_org\n" + allowAll
)

// exchange makes a policy folder whose agent_exchange.rego is body.
func exchange(t testing.TB, body string) string {
	t.Helper()
	return write(t, map[string]string{
		"exchange.rego": "package ocip.agent_exchange\n" + body,
		"cross.rego":    crossOrg,
	})
}

func TestDefaultPolicy(t *testing.T) {
	tests := []struct {
		name   string
		data   map[string]any // over settings
		ask    func(*ocip.PolicyInput)
		want   ocip.PolicyAnswer
		policy string
	}{
		{"allowed", nil, nil, ocip.PolicyAnswer{
			Allow: true, Reason: "policy.data allows a question at level internal",
			MaxClassification: ocip.Internal, HasMaxClassification: true,
		}, "ocip.agent_exchange"},
		{"rounds", map[string]any{"max_rounds": 2}, nil, ocip.PolicyAnswer{
			Allow: true, Reason: "policy.data allows a question at level internal",
			MaxClassification: ocip.Internal, HasMaxClassification: true, MaxRounds: 2,
		}, "ocip.agent_exchange"},
		{"off", map[string]any{"enabled": false}, nil, ocip.PolicyAnswer{
			Reason:            "agent exchanges need policy.data.enabled: true",
			MaxClassification: ocip.Internal, HasMaxClassification: true,
		}, "ocip.agent_exchange"},
		{"level", nil, func(in *ocip.PolicyInput) { in.Level = ocip.Confidential }, ocip.PolicyAnswer{
			Reason:            "confidential data needs policy.data.max_classification_shared: confidential, it is internal",
			MaxClassification: ocip.Internal, HasMaxClassification: true,
		}, "ocip.agent_exchange"},
		{"type", nil, func(in *ocip.PolicyInput) { in.ExchangeType = ocip.MeetingScheduling }, ocip.PolicyAnswer{
			Reason:            "exchange type meeting_scheduling needs to be listed in policy.data.allowed_exchange_types",
			MaxClassification: ocip.Internal, HasMaxClassification: true,
		}, "ocip.agent_exchange"},
		{"cross-org", nil, func(in *ocip.PolicyInput) { in.Action = ocip.ActionExchangeCrossOrg }, ocip.PolicyAnswer{
			Reason: "cross-org exchange from engineering to marketing needs policy.data.cross_org: true",
		}, "ocip.cross_org"},
		{"cross-org allowed", map[string]any{"cross_org": true}, func(in *ocip.PolicyInput) { in.Action = ocip.ActionExchangeCrossOrg }, ocip.PolicyAnswer{
			Allow: true, Reason: "cross-org exchange from engineering to marketing is allowed by policy.data.cross_org",
		}, "ocip.cross_org"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := settings()
			maps.Copy(data, tt.data)
			p := mustCompile(t, Source{Data: data})
			in := question()
			if tt.ask != nil {
				tt.ask(&in)
			}
			// The second answer comes from the cache.
			for range 2 {
				got, name, revision, err := p.Evaluate(t.Context(), in)
				if err != nil || got != tt.want || name != tt.policy || revision != p.Revision() {
					t.Errorf("got %+v, %q, %q, %v\nwant %+v, %q, %q", got, name, revision, err, tt.want, tt.policy, p.Revision())
				}
			}
			if p.cache.Len() != 1 {
				t.Errorf("%d answers remembered", p.cache.Len())
			}
		})
	}
}

func TestNoDataDeniesEverything(t *testing.T) {
	p := mustCompile(t, Source{})
	for _, action := range []string{ocip.ActionExchange, ocip.ActionExchangeCrossOrg} {
		in := question()
		in.Action, in.Level = action, ocip.Public
		got, _, _, err := p.Evaluate(t.Context(), in)
		if err != nil || got.Allow {
			t.Errorf("%s: got %+v, %v, want a denial", action, got, err)
		}
	}
}

// TestInput has the policy return its input.
func TestInput(t *testing.T) {
	dir := write(t, map[string]string{
		"a.rego": "package ocip.agent_exchange\n" + strings.Replace(allowAll, `""`, "json.marshal([input, data.policy])", 1),
		"c.rego": "package ocip.cross_org\n" + strings.Replace(allowAll, `""`, "json.marshal([input, data.policy])", 1),
	})
	p := mustCompile(t, Source{Path: dir, Data: map[string]any{"n": 1, "deep": map[string]any{"list": []int{1}}}})
	common := `"counterparty":{"kind":"agent"},"data_classification":"internal","exchange_type":"information_query","round":1,` +
		`"source":{"instance_id":"agent-alice-1","org_unit":"engineering","tenant_id":"acme-corp","user_id":"alice"},`
	target := `"target":{"instance_id":"agent-carol-1","org_unit":"marketing","tenant_id":"acme-corp","user_id":"carol"}`
	data := `{"deep":{"list":[1]},"n":1}`
	for action, want := range map[string]string{
		ocip.ActionExchange: `[{"action":"agent_exchange",` + common + target + `},` + data + `]`,
		ocip.ActionExchangeCrossOrg: `[{"action":"agent_exchange_cross_org",` + common +
			`"sourceOrgUnit":"engineering","source_org_unit":"engineering",` +
			target + `,"targetOrgUnit":"marketing","target_org_unit":"marketing"},` + data + `]`,
	} {
		in := question()
		in.Action = action
		got, _, _, err := p.Evaluate(t.Context(), in)
		if err != nil || got.Reason != want {
			t.Errorf("%s: %v\n got %s\nwant %s", action, err, got.Reason, want)
		}
	}
	in := question()
	in.CounterpartyKind, in.Target = ocip.KindUnknown, ocip.Identity{}
	got, _, _, err := p.Evaluate(t.Context(), in)
	if err != nil || !strings.Contains(got.Reason, `"counterparty":{"kind":"unknown"}`) || !strings.Contains(got.Reason, `"target":{"instance_id":"","org_unit":"","tenant_id":"","user_id":""}`) {
		t.Errorf("a stranger: %v, %s", err, got.Reason)
	}
}

// A policy is also tried with questions about people: a policy that gives them an answer of the
// wrong shape would deny every message to them.
func TestPolicyIsTriedOnPeople(t *testing.T) {
	for _, kind := range []string{"person", "unknown"} {
		dir := write(t, map[string]string{
			"a.rego": "package ocip.agent_exchange\ndecision := {\"allow\": true, \"require_approval\": false, \"reason\": \"\", \"constraints\": {}} if input.counterparty.kind != \"" + kind +
				"\"\nelse := {\"allow\": true}\n",
			"c.rego": "package ocip.cross_org\n" + allowAll,
		})
		if _, err := Compile(t.Context(), Source{Path: dir}); err == nil || !strings.Contains(err.Error(), "require_approval is missing") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestRegoTakesTheNamesOfTheReference compiles a policy with the names of the reference's cross-org
// context.
func TestRegoTakesTheNamesOfTheReference(t *testing.T) {
	dir := write(t, map[string]string{
		"a.rego": "package ocip.agent_exchange\n" + allowAll,
		"c.rego": "package ocip.cross_org\n" + strings.Replace(allowAll, `""`, `concat(" to ", [input.sourceOrgUnit, input.targetOrgUnit])`, 1),
	})
	in := question()
	in.Action = ocip.ActionExchangeCrossOrg
	got, _, _, err := mustCompile(t, Source{Path: dir}).Evaluate(t.Context(), in)
	if err != nil || got.Reason != "engineering to marketing" {
		t.Errorf("got %q, %v", got.Reason, err)
	}
}

func TestQuestionsWithoutAnswer(t *testing.T) {
	p := mustCompile(t, Source{Data: settings()})
	action := question()
	action.Action = "agent_delete"
	if got, name, revision, err := p.Evaluate(t.Context(), action); err == nil || got != (ocip.PolicyAnswer{}) || name != "" || revision == "" {
		t.Errorf("unknown action: got %+v, %q, %q, %v", got, name, revision, err)
	}
	level := question()
	level.Level = 9
	if got, name, _, err := p.Evaluate(t.Context(), level); err == nil || got != (ocip.PolicyAnswer{}) || name != "ocip.agent_exchange" {
		t.Errorf("unknown level: got %+v, %q, %v", got, name, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh := question()
	fresh.Round = 2
	if _, _, _, err := p.Evaluate(ctx, fresh); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

// TestFailingEvaluations asks about round 9; the policies work for every other round.
func TestFailingEvaluations(t *testing.T) {
	const works = `if input.round != 9` + "\n"
	tests := []struct{ name, body, want string }{
		{"undefined", "", "data.ocip.agent_exchange.decision: it is undefined"},
		{"conflict", `decision := {"allow": true, "require_approval": false, "reason": r, "constraints": {}} if {
			input.round == 9
			some r in ["a", "b"]
		}`, "eval_conflict_error"},
		{"built-in error", `decision := {"allow": true, "require_approval": false, "reason": "", "constraints": {}} if {
			input.round == 9
			not to_number(input.source.user_id) == 3
		}`, "to_number"},
		{"missing member", `decision := {"allow": true, "require_approval": false, "reason": ""} if input.round == 9`, "constraints is missing"},
		{"set", `decision := {true} if input.round == 9`, "the answer is an array, want an object"},
		{"ill-typed", `decision := {"allow": "yes", "require_approval": false, "reason": "", "constraints": {}} if input.round == 9`, "allow is a string, want a boolean"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustCompile(t, Source{Path: exchange(t, strings.TrimSpace(allowAll)+" "+works+tt.body)})
			in := question()
			if got, _, _, err := p.Evaluate(t.Context(), in); err != nil || !got.Allow {
				t.Fatalf("got %+v, %v", got, err)
			}
			remembered := p.cache.Len()
			in.Round = 9
			for range 2 {
				got, name, revision, err := p.Evaluate(t.Context(), in)
				if err == nil || !strings.Contains(err.Error(), tt.want) || got != (ocip.PolicyAnswer{}) {
					t.Errorf("got %+v, %v, want %q", got, err, tt.want)
				}
				if name != "ocip.agent_exchange" || revision != p.Revision() {
					t.Errorf("error of %q %q", name, revision)
				}
			}
			if p.cache.Len() != remembered {
				t.Error("an error was remembered")
			}
		})
	}
}

const burn = ` if input.round != 9
	decision := {"allow": true, "require_approval": false, "reason": "", "constraints": {}} if {
		input.round == 9
		count([1 | some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); some c in numbers.range(1, 20000); a + b + c < 0]) == 0
	}`

func TestEndlessPolicy(t *testing.T) {
	p, err := Compile(t.Context(), Source{Path: exchange(t, strings.TrimSpace(allowAll)+burn)})
	if err != nil {
		t.Fatal(err)
	}
	in := question()
	in.Round = 9
	begin := time.Now()
	got, _, _, err := p.Evaluate(t.Context(), in)
	if !errors.Is(err, ErrTimeout) || got.Allow {
		t.Errorf("got %+v, %v, want ErrTimeout", got, err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v, with a limit of %v", took, DefaultTimeout)
	}

	// The caller's deadline comes first, and has its own error.
	p = mustCompile(t, Source{Path: exchange(t, strings.TrimSpace(allowAll)+burn), Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, _, err = p.Evaluate(ctx, in); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		t.Errorf("got %v, want the caller's deadline", err)
	}
}

func TestTextFaults(t *testing.T) {
	tests := []struct {
		name, body string
		want       []string // after the folder's name
	}{
		{"syntax", "x := )\n", []string{"exchange.rego:2: "}},
		{"old syntax", "x { true }", []string{"exchange.rego:2: "}},
		{"unsafe", allowAll + "x := y", []string{"exchange.rego:3: var y is unsafe"}},
		{"two", allowAll + "x := y\n\nz := w", []string{"exchange.rego:3: var y is unsafe", "exchange.rego:5: var w is unsafe"}},
		{"input misspelled", allowAll + "x if input.sorce.user_id", []string{"exchange.rego:3: undefined ref: input.sorce.user_id, want one of ["}},
		{"input mistyped", allowAll + "x if input.round == \"1\"", []string{"exchange.rego:3: match error"}},
		{"fetching", allowAll + `x if http.send({"url": "http://localhost", "method": "GET"})`, []string{
			"exchange.rego:3: http.send is not allowed: a policy must not reach outside its question",
		}},
		{"resolving", allowAll + `x if net.lookup_ip_addr("localhost")`, []string{"exchange.rego:3: net.lookup_ip_addr is not allowed"}},
		{"environment", allowAll + `x if opa.runtime().env`, []string{"exchange.rego:3: opa.runtime is not allowed"}},
		{"by way of with", allowAll + "x if count([1]) with count as http.send", []string{"exchange.rego:3: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := exchange(t, tt.body)
			_, err := Compile(t.Context(), Source{Path: dir})
			if _, ok := errors.AsType[CompileError](err); !ok {
				t.Fatalf("got %v, want a CompileError", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) < len(tt.want) {
				t.Fatalf("got %q, want %q", lines, tt.want)
			}
			for i, want := range tt.want {
				if want = filepath.Join(dir, want); !strings.HasPrefix(lines[i], want) {
					t.Errorf("got %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestFaultsOfSeveralFiles(t *testing.T) {
	dir := write(t, map[string]string{"a.rego": "", "sub/b.rego": "package x\ny := )\n"})
	_, err := Compile(t.Context(), Source{Path: dir})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{filepath.Join(dir, "a.rego") + ": ", "\n" + filepath.Join(dir, "sub", "b.rego") + ":2: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
}

// TestSchemaNotFetched lets a policy name a schema by URL at run time.
func TestSchemaNotFetched(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Write([]byte(`{"type": "object"}`))
	}))
	defer server.Close()
	p := mustCompile(t, Source{Path: exchange(t, strings.TrimSpace(allowAll)+` if input.round != 9
		decision := {"allow": ok, "require_approval": false, "reason": "", "constraints": {}} if {
			input.round == 9
			[ok, _] := json.match_schema({}, {"$ref": "`+server.URL+`"})
		}`)})
	in := question()
	in.Round = 9
	if got, _, _, err := p.Evaluate(t.Context(), in); err == nil || got.Allow {
		t.Errorf("got %+v, %v, want an error", got, err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the policy reached the network %d times", n)
	}
}

func TestRefusedAfterTrial(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"no cross-org", map[string]string{"a.rego": "package ocip.agent_exchange\n" + allowAll}, "data.ocip.cross_org.decision: it is undefined; a policy has a decision in each of the packages ocip.agent_exchange and ocip.cross_org: ocipd policy new DIR"},
		{"no exchange", map[string]string{"c.rego": crossOrg}, "data.ocip.agent_exchange.decision: it is undefined"},
		{"always undefined", map[string]string{"c.rego": crossOrg,
			"a.rego": "package ocip.agent_exchange\n" + strings.TrimSpace(allowAll) + ` if input.round == 9`}, "data.ocip.agent_exchange.decision: it is undefined"},
		{"bare boolean", map[string]string{"c.rego": crossOrg,
			"a.rego": "package ocip.agent_exchange\ndecision := true"}, "data.ocip.agent_exchange.decision: the answer is a boolean, want an object"},
		{"missing member", map[string]string{"c.rego": crossOrg,
			"a.rego": "package ocip.agent_exchange\n" + `decision := {"allow": false, "reason": "", "constraints": {}}`}, "data.ocip.agent_exchange.decision: require_approval is missing"},
		{"ill-shaped for one unit only", map[string]string{"c.rego": crossOrg, "a.rego": "package ocip.agent_exchange\n" +
			strings.TrimSpace(allowAll) + " if input.source.org_unit != input.target.org_unit\n" +
			`decision := {} if input.source.org_unit == input.target.org_unit`}, "allow is missing"},
		{"misspelled constraint", map[string]string{"c.rego": crossOrg, "a.rego": "package ocip.agent_exchange\n" +
			strings.Replace(allowAll, "{}", `{"max_round": 1}`, 1)}, `constraints has an unknown member "max_round"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Compile(t.Context(), Source{Path: write(t, tt.files)})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "cannot use policy") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if p != nil {
				t.Error("a refused policy was returned")
			}
		})
	}
	t.Run("undefined for one unit only", func(t *testing.T) {
		mustCompile(t, Source{Path: exchange(t, strings.TrimSpace(allowAll)+" if input.source.org_unit == input.target.org_unit")})
	})
	t.Run("never answers", func(t *testing.T) {
		_, err := Compile(t.Context(), Source{
			Path: exchange(t, strings.TrimSpace(allowAll)+strings.ReplaceAll(burn, "9", "1"))})
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("got %v, want ErrTimeout", err)
		}
	})
}

func TestPaths(t *testing.T) {
	whole := "package ocip.agent_exchange\n" + allowAll
	t.Run("only the files meant", func(t *testing.T) {
		dir := write(t, map[string]string{
			"sub/exchange.rego": whole, "cross.rego": crossOrg,
			"cross_test.rego": "not rego", ".hidden.rego": "not rego", ".git/x.rego": "not rego", "README.md": "not rego", "data.json": "{",
		})
		p := mustCompile(t, Source{Path: dir})
		want := []string{filepath.Join(dir, "cross.rego"), filepath.Join(dir, "sub", "exchange.rego")}
		if !slices.Equal(p.Files(), want) {
			t.Errorf("got %q, want %q", p.Files(), want)
		}
	})
	t.Run("mounted configuration", func(t *testing.T) {
		dir := write(t, map[string]string{"..data/exchange.rego": whole, "..data/cross.rego": crossOrg})
		for _, name := range []string{"exchange.rego", "cross.rego"} {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if p := mustCompile(t, Source{Path: dir}); len(p.Files()) != 2 {
			t.Errorf("got %q", p.Files())
		}
	})
	t.Run("one file", func(t *testing.T) {
		dir := write(t, map[string]string{"all.rego": "package ocip\n" +
			strings.Replace(allowAll, "decision", "agent_exchange.decision", 1) + strings.Replace(allowAll, "decision", "cross_org.decision", 1)})
		p := mustCompile(t, Source{Path: filepath.Join(dir, "all.rego")})
		if got, _, _, err := p.Evaluate(t.Context(), question()); err != nil || !got.Allow {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for name, path := range map[string]string{
		"missing":                  filepath.Join(t.TempDir(), "nowhere"),
		"empty folder":             t.TempDir(),
		"tests only":               write(t, map[string]string{"a_test.rego": whole}),
		"no rego file":             filepath.Join(write(t, map[string]string{"a.txt": whole}), "a.txt"),
		"too large":                write(t, map[string]string{"a.rego": whole + strings.Repeat("#", maxFileBytes)}),
		"folder named like a file": write(t, map[string]string{"a.rego/x.txt": ""}),
		"dangling link": func() string {
			dir := t.TempDir()
			if err := os.Symlink("nowhere", filepath.Join(dir, "a.rego")); err != nil {
				t.Fatal(err)
			}
			return dir
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(t.Context(), Source{Path: path})
			if err == nil || !strings.HasPrefix(err.Error(), "cannot read policy.path") || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDataThatIsNotJSON(t *testing.T) {
	for _, value := range []any{math.NaN(), func() {}, map[any]any{1: 2}} {
		if _, err := Compile(t.Context(), Source{Data: map[string]any{"x": value}}); err == nil || !strings.HasPrefix(err.Error(), "cannot use policy.data") {
			t.Errorf("%T: got %v", value, err)
		}
	}
}

func TestRevision(t *testing.T) {
	files := map[string]string{"a.rego": "package ocip.agent_exchange\n" + allowAll, "c.rego": crossOrg}
	base := mustCompile(t, Source{Path: write(t, files), Data: settings()})
	if len(base.Revision()) != len("sha256:")+12 || !strings.HasPrefix(base.Digest(), base.Revision()) || len(base.Digest()) != len("sha256:")+64 {
		t.Errorf("got %q of %q", base.Revision(), base.Digest())
	}
	same := func(name string, want bool, files map[string]string, data map[string]any) {
		t.Helper()
		if got := mustCompile(t, Source{Path: write(t, files), Data: data}); (got.Digest() == base.Digest()) != want {
			t.Errorf("%s: same revision is %t, want %t", name, !want, want)
		}
	}
	same("another folder", true, files, settings())
	tested := maps.Clone(files)
	tested["a_test.rego"] = "package t"
	same("with tests", true, tested, settings())
	renamed := map[string]string{"b.rego": files["a.rego"], "c.rego": files["c.rego"]}
	same("renamed", false, renamed, settings())
	commented := maps.Clone(files)
	commented["a.rego"] += "# changed\n"
	same("commented", false, commented, settings())
	data := settings()
	data["cross_org"] = true
	same("data", false, files, data)
	same("no data", false, files, nil)

	if a, b := mustCompile(t, Source{}), mustCompile(t, Source{Data: map[string]any{}}); a.Digest() != b.Digest() {
		t.Error("no data and empty data differ")
	}
}

// Compile uses the text that was read, even if the files change.
func TestTextStaysAsItWasRead(t *testing.T) {
	dir := exchange(t, allowAll)
	text, err := Read(Source{Path: dir, Data: settings()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "exchange.rego"), []byte("no Rego"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := text.Compile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.Digest() != text.Digest() {
		t.Errorf("the policy is %s, read was %s", p.Digest(), text.Digest())
	}
	again, err := Read(Source{Path: dir, Data: settings()})
	if err != nil || again.Digest() == text.Digest() {
		t.Errorf("the edited files read as %+v, %v", again, err)
	}
	if _, err := Read(Source{Path: dir, Data: map[string]any{"x": math.NaN()}}); err == nil {
		t.Error("data that is not JSON was read")
	}
}

// A folder that is swapped during a read gives the state before or after.
func TestReadMixesNothing(t *testing.T) {
	mount := t.TempDir()
	names := []string{"a.rego", "b.rego", "c.rego"}
	known := make(map[string]bool)
	for _, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(mount, version), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(mount, version, name), []byte(version), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := Read(Source{Path: filepath.Join(mount, version)})
		if err != nil {
			t.Fatal(err)
		}
		known[text.Digest()] = true
	}
	turn := func(link, target string) error {
		if err := os.Symlink(target, link+".new"); err != nil {
			return err
		}
		return os.Rename(link+".new", link)
	}
	if err := turn(filepath.Join(mount, "..data"), "..1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := turn(filepath.Join(mount, name), "..data/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1000 {
		var swap sync.WaitGroup
		swap.Go(func() {
			if err := turn(filepath.Join(mount, "..data"), []string{"..2", "..1"}[n%2]); err != nil {
				t.Error(err)
			}
		})
		text, err := Read(Source{Path: mount})
		swap.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if !known[text.Digest()] {
			t.Fatalf("two policies were mixed: %s", text.files)
		}
	}
}

func TestDataIsCopied(t *testing.T) {
	data := settings()
	p := mustCompile(t, Source{Data: data, CacheSize: -1})
	data["enabled"] = false
	data["allowed_exchange_types"].([]any)[0] = "none"
	if got, _, _, err := p.Evaluate(t.Context(), question()); err != nil || !got.Allow {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCache(t *testing.T) {
	t.Run("only what is deterministic", func(t *testing.T) {
		tests := []struct {
			name, body string
			want       bool
		}{
			{"plain", "", true},
			{"print", "x if print(input.action)", true},
			{"clock", "x := time.now_ns()", false},
			{"random", `x := rand.intn("a", 3)`, false},
			{"random id", `x := uuid.rfc4122("a")`, false},
			{"clock inside", "x := [n | n := time.now_ns()]", false},
			{"certificate", `x := crypto.x509.parse_and_verify_certificates("")`, false},
			{"token", `x := io.jwt.decode_verify("a", {})`, false},
			{"by way of with", "f(a, b) := 1\nx := n if n := f(\"a\", 3) with f as rand.intn", false},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				p := mustCompile(t, Source{Path: exchange(t, allowAll+tt.body)})
				if (p.cache != nil) != tt.want || p.Lasts() != tt.want {
					t.Errorf("answers are remembered: %t, and last: %t, want %t", p.cache != nil, p.Lasts(), tt.want)
				}
				for range 2 {
					if got, _, _, err := p.Evaluate(t.Context(), question()); err != nil || !got.Allow {
						t.Errorf("got %+v, %v", got, err)
					}
				}
			})
		}
	})
	t.Run("varying answers vary", func(t *testing.T) {
		p := mustCompile(t, Source{Path: exchange(t, strings.Replace(allowAll, `""`, `sprintf("%d", [time.now_ns()])`, 1))})
		first, _, _, _ := p.Evaluate(t.Context(), question())
		second, _, _, _ := p.Evaluate(t.Context(), question())
		if first.Reason == second.Reason {
			t.Errorf("both at %s", first.Reason)
		}
	})
	t.Run("off", func(t *testing.T) {
		if p := mustCompile(t, Source{CacheSize: -1}); p.cache != nil {
			t.Error("answers are remembered")
		}
	})
	t.Run("bounded", func(t *testing.T) {
		p := mustCompile(t, Source{Data: settings(), CacheSize: 4})
		in := question()
		for in.Round = range 20 {
			if _, _, _, err := p.Evaluate(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		if p.cache.Len() != 4 {
			t.Errorf("%d answers remembered", p.cache.Len())
		}
		in.Target.OrgUnit = strings.Repeat("x", maxCachedInput)
		if got, _, _, err := p.Evaluate(t.Context(), in); err != nil || !got.Allow {
			t.Errorf("long input: got %+v, %v", got, err)
		}
		if p.cache.Contains(in) {
			t.Error("a long question was remembered")
		}
	})
	t.Run("every field counts", func(t *testing.T) {
		p := mustCompile(t, Source{Data: settings()})
		in := question()
		p.Evaluate(t.Context(), in)
		before := p.cache.Len()
		fields := 0
		var walk func(v reflect.Value)
		walk = func(v reflect.Value) {
			for i := range v.NumField() {
				f := v.Field(i)
				old := reflect.New(f.Type()).Elem()
				old.Set(f)
				switch f.Kind() {
				case reflect.Struct:
					walk(f)
					continue
				case reflect.String:
					f.SetString(f.String() + "x")
				case reflect.Int:
					f.SetInt(f.Int() + 1)
				case reflect.Uint8:
					f.SetUint(f.Uint() + 1)
				default:
					t.Fatalf("no way to change a %s", f.Kind())
				}
				fields++
				if p.cache.Contains(in) {
					t.Errorf("another %s is taken for the same question", v.Type().Field(i).Name)
				}
				f.Set(old)
			}
		}
		walk(reflect.ValueOf(&in).Elem())
		if fields < 12 || p.cache.Len() != before {
			t.Errorf("changed %d fields", fields)
		}
	})
	t.Run("hits do not allocate", func(t *testing.T) {
		p := mustCompile(t, Source{Data: settings()})
		ctx, in := t.Context(), question()
		p.Evaluate(ctx, in)
		if n := testing.AllocsPerRun(100, func() { p.Evaluate(ctx, in) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestHolder(t *testing.T) {
	var h Holder
	if got, _, _, err := h.Evaluate(t.Context(), question()); !errors.Is(err, ErrNotLoaded) || got.Allow {
		t.Errorf("empty: got %+v, %v", got, err)
	}
	open := mustCompile(t, Source{Data: settings()})
	closed := mustCompile(t, Source{})
	if old := h.Swap(open); old != nil || h.Load() != open {
		t.Error("first swap")
	}
	if old := h.Swap(closed); old != open || h.Load() != closed {
		t.Error("second swap")
	}
	if h := NewHolder(open); h.Load() != open {
		t.Error("NewHolder")
	}
}

// TestSwapWhileAsked checks that an answer has the revision of its policy.
func TestSwapWhileAsked(t *testing.T) {
	open := mustCompile(t, Source{Data: settings(), CacheSize: 2})
	closed := mustCompile(t, Source{CacheSize: 2})
	h := NewHolder(open)
	var askers sync.WaitGroup
	for asker := range 4 {
		askers.Go(func() {
			in := question()
			for i := range 300 {
				in.Round = (i + asker) % 5
				got, _, revision, err := h.Evaluate(t.Context(), in)
				if err != nil || got.Allow != (revision == open.Revision()) {
					t.Errorf("got %+v, %q, %v", got, revision, err)
					return
				}
			}
		})
	}
	askers.Go(func() {
		for range 500 {
			h.Swap(closed)
			h.Swap(open)
		}
	})
	askers.Wait()
}

func BenchmarkCompileDefault(b *testing.B) {
	data := settings()
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, Source{Data: data})
	}
}

func BenchmarkEvaluateCached(b *testing.B) {
	benchmarkEvaluate(b, Source{Data: settings()})
}

func BenchmarkEvaluateUncached(b *testing.B) {
	benchmarkEvaluate(b, Source{Data: settings(), CacheSize: -1})
}

func benchmarkEvaluate(b *testing.B, src Source) {
	h := NewHolder(mustCompile(b, src))
	in := question()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if answer, _, _, err := h.Evaluate(ctx, in); err != nil || !answer.Allow {
			b.Fatal(answer, err)
		}
	}
}

// The time of a question starts with its turn. A question that gets no turn is denied.
func TestTurns(t *testing.T) {
	p := mustCompile(t, Source{Path: exchange(t, strings.TrimSpace(allowAll)), Timeout: DefaultTimeout, CacheSize: -1})
	in := samples(false)[0]
	in.Action = ocip.ActionExchange
	synctest.Test(t, func(t *testing.T) {
		turns := make(turns, 1)
		p.exchange.turns = turns
		hold := func(long time.Duration) {
			if err := turns.take(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(long, turns.end)
		}
		hold(2 * DefaultTimeout)
		if got, _, _, err := p.Evaluate(t.Context(), in); err != nil || !got.Allow {
			t.Errorf("behind another question got %+v, %v", got, err)
		}
		hold(2 * turnTimeout)
		if got, _, _, err := p.Evaluate(t.Context(), in); !errors.Is(err, ErrTimeout) || got.Allow {
			t.Errorf("behind one that does not end got %+v, %v", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), DefaultTimeout)
		defer cancel()
		if _, _, _, err := p.Evaluate(ctx, in); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
			t.Errorf("with a caller that leaves got %v", err)
		}
	})
}
