//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What an attempt at a task takes of a specification.
const spec = "## Goal\nInvoices as CSV.\n## Scope\n- GET /invoices.csv\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- out.txt\n## Acceptance criteria\n- `go test ./export` exits with 0\n## Risks\n- quotes in names\n"

// agents has actors run agents, which the bridges read from the configuration.
func (r *trial) agents(how map[string]string) {
	r.t.Helper()
	config := team
	for actor, acp := range how {
		before, rest, ok := strings.Cut(config, "{name: "+actor+", ")
		line, after, ends := strings.Cut(rest, "}")
		if !ok || !ends {
			r.t.Fatalf("there is no actor %s", actor)
		}
		config = before + "{name: " + actor + ", " + line + ", acp: " + acp + "}" + after
	}
	r.write("ocipd.yaml", config)
}

// task makes a task by the lead's token, for whoever writes a specification does not review it.
func (r *trial) task(more string) (id string) {
	r.t.Helper()
	r.write("work/README.md", "x")
	r.write("spec.md", "---\ntitle: Export\nworkspace: "+r.at("work")+"\ninitial_phase: spec_review\n"+more+"---\n"+spec)
	r.operate("task", "grant", "lead", "--out", r.at("lead.token"))
	var made struct {
		ID string `json:"task_id"`
	}
	if err := json.Unmarshal([]byte(r.operate("task", "create", "--json", "-f", r.at("spec.md"), "--token-file", r.at("lead.token"))), &made); err != nil {
		r.t.Fatal(err)
	}
	return made.ID
}

// attempt starts an attempt of the builder's, and has its agent make it.
func (r *trial) attempt() (ended chan error) {
	r.t.Helper()
	id := r.task("")
	r.operate("task", "review", id, "--as", "checker", "--verdict", "approved")
	r.operate("task", "transition", id, "execution_ready")
	r.operate("task", "start-attempt", id, "--runtime", "acp", "--worker", "builder")
	r.operate("task", "transition", id, "executing")
	r.operate("task", "grant", "builder", "--task", id, "--out", r.at("attempt.token"))
	ended = make(chan error, 1)
	go func() {
		_, err := r.run(r.env(), r.ocipd, "acp", "run", "--config", r.at("ocipd.yaml"), "--socket", r.socket, "--token-file", r.at("attempt.token"))
		ended <- err
	}()
	return ended
}

type question struct {
	ID      string `json:"approvalId"`
	Summary string `json:"summary"`
	Content string `json:"content"`
}

// asked waits for a question to a person, for as long as nothing has ended.
func (r *trial) asked(ended <-chan error) (q question) {
	r.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for q.ID == "" {
		select {
		case err := <-ended:
			r.t.Fatalf("it has ended without a question: %v", err)
		case <-r.t.Context().Done():
			r.t.Fatal("nothing is asked")
		case <-tick.C:
		}
		if line, _, ok := strings.Cut(r.operate("approvals", "list", "--json"), "\n"); ok {
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	summary := q.Summary
	if err := json.Unmarshal([]byte(r.operate("approvals", "show", q.ID, "--json")), &q); err != nil {
		r.t.Fatal(err)
	}
	q.Summary = summary
	return q
}

// The example agent of the Agent Client Protocol's Go SDK makes an attempt: a person
// allows what it asks for, outside of its workspace, and as it makes nothing the attempt fails.
func TestExampleAgent(t *testing.T) {
	r := begin(t)
	agent := r.at("agent")
	build := exec.Command("go", "build", "-o", agent, "github.com/coder/acp-go-sdk/example/agent")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.agents(map[string]string{"builder": fmt.Sprintf("{command: [%q]}", agent)})
	ended := r.attempt()
	q := r.asked(ended)
	if !strings.Contains(q.Summary, "Modifying critical configuration file") {
		t.Errorf("a person is asked %+v", q)
	}
	r.decide("approve", q.ID)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "invalid_output") {
		t.Errorf("it ended with %v", err)
	}
}

// standInConfig has Codex ask a stand-in.
func standInConfig(api *standIn) string {
	return fmt.Sprintf("model = \"standin\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\nbase_url = \"%s/v1\"\nwire_api = \"responses\"\n", api.URL)
}

// codexAgent is how an actor runs codex-acp, against a model that makes some calls of tools.
func (r *trial) codexAgent(name string, steps ...step) (acp string, api *standIn) {
	r.t.Helper()
	api = newStandIn(r.t, codexModel, steps...)
	r.write(name+"/config.toml", standInConfig(api))
	program, err := filepath.Abs("bridges/node_modules/.bin/codex-acp")
	if err != nil {
		r.t.Fatal(err)
	}
	// The agent gets the variables that are listed, by a script that sets its own.
	start := fmt.Sprintf("#!/bin/sh\nexport CODEX_HOME=%q NO_BROWSER=1 APP_SERVER_LOGS=%q\nexec %q \"$@\"\n", r.at(name), r.at(name+"/logs"), program)
	if err := os.WriteFile(r.at(name+".sh"), []byte(start), 0o700); err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf("{command: [%q], env: [PATH, HOME], mode: read-only}", r.at(name+".sh")), api
}

// outside is a command that Codex asks for, as it is to run outside of its sandbox.
func outside(command string) step {
	input, _ := json.Marshal(object{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "It writes the file."})
	return step{"exec_command", string(input)}
}

// codex-acp makes an attempt: it reads the task by the server that it was given, and runs a
// command that a person allows; where a person denies it, its turn is over.
func TestCodexACP(t *testing.T) {
	for _, decision := range []string{"approve", "deny"} {
		t.Run(decision, func(t *testing.T) {
			r := begin(t)
			acp, api := r.codexAgent("codex", step{"task_get", "{}"}, outside("echo made > out.txt"))
			r.agents(map[string]string{"builder": acp})
			ended := r.attempt()
			q := r.asked(ended)
			if !strings.Contains(q.Content, "echo made > out.txt") {
				t.Errorf("a person is asked %+v", q)
			}
			if decision == "approve" {
				r.decide("approve", q.ID)
			} else {
				r.decide("deny", q.ID)
			}
			err := <-ended
			text, _ := os.ReadFile(r.at("work/out.txt"))
			if decision == "approve" && (err != nil || string(text) != "made\n") {
				t.Errorf("it made %q, and ended with %v", text, err)
			}
			if decision == "deny" && (err == nil || !strings.Contains(err.Error(), "aborted") || len(text) > 0) {
				t.Errorf("it made %q, and ended with %v", text, err)
			}
			if results, calls := api.outcome(); calls != 2 || !strings.Contains(results[0], "tsk_") {
				t.Errorf("%d calls, answered %v", calls, results)
			}
		})
	}
}

// A task runs by itself with codex-acp for all that work on it, up to its effect, which is
// asked for and run through a workflow in Lobster.
func TestTaskRunWithCodexACP(t *testing.T) {
	r := begin(t)
	how := make(map[string]string)
	how["builder"], _ = r.codexAgent("builder", step{"task_get", "{}"}, outside("echo made > out.txt"))
	for _, reviewer := range []string{"checker", "critic"} {
		acp, api := r.codexAgent(reviewer, step{"task_get", "{}"})
		api.says, how[reviewer] = `{"verdict":"approved","summary":"It is as it was asked for.","findings":[]}`, acp
	}
	r.agents(how)
	text, err := os.ReadFile(r.at("ocipd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.write("ocipd.yaml", string(text)+"  run: {executor: builder, spec_reviewer: checker, quality_reviewer: critic, lobster: gate}\n")
	id := r.task("effects:\n  - {idempotency_key: release, side_effect_kind: deployment, requested_action: Release it, command: {argv: [/bin/sh, -c, echo released >> released.txt], inputs: [out.txt]}}\n")
	for _, actor := range []string{"checker", "critic", "gate"} {
		r.operate("task", "grant", actor, "--out", r.at(actor+".token"))
	}
	r.operate("task", "files", r.at("workflows"))
	stop := r.background("runner")
	defer stop()
	said, ended := "", make(chan error, 1)
	go func() {
		out, err := r.run(r.env(), r.ocipd, "task", "run", id, "--config", r.at("ocipd.yaml"), "--socket", r.socket, "--token-file", r.at("lead.token"), "--tokens", r.dir,
			"--lobster", r.at("workflows/ocip.lobster"), "--lobster-program", lobsterOf(t, "2026.9.13"))
		said = out
		ended <- err
	}()
	r.decide("approve", r.asked(ended).ID)
	q := r.asked(ended)
	if !strings.Contains(q.Content, "echo released") {
		t.Errorf("a person is asked %+v", q)
	}
	r.decide("approve", q.ID)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(r.at("work/released.txt")); err != nil || string(text) != "released\n" {
		t.Errorf("it was released: %q, %v", text, err)
	}
	t.Log(said)
	if !strings.Contains(said, "ends in completed\n") {
		t.Errorf("it says %s", said)
	}
	if got := r.operate("task", "show", id, "--json"); !strings.Contains(got, `"phase":"completed"`) {
		t.Errorf("it is %s", got)
	}
	if log := r.operate("task", "timeline", id); !strings.Contains(log, "gate") {
		t.Errorf("Lobster is not on record: %s", log)
	}
}

// background runs the program beside the test.
func (r *trial) background(args ...string) (stop func()) {
	r.t.Helper()
	cmd := exec.Command(r.ocipd, append(args, "--config", r.at("ocipd.yaml"), "--socket", r.socket)...)
	cmd.Env = r.env()
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
}

// claudeAgent is how an actor runs claude-agent-acp, against a model that makes some calls of tools. It is given no mode:
// in the one that it begins in it asks nobody.
func (r *trial) claudeAgent(name string, steps ...step) (acp string, api *standIn) {
	r.t.Helper()
	api = newStandIn(r.t, claudeModel, steps...)
	return r.scripted(name, "claude-agent-acp", map[string]string{
		"CLAUDE_CONFIG_DIR": r.at(name), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false",
	}), api
}

// openCode is how an actor runs opencode, which asks about shell commands where its settings say so.
func (r *trial) openCode(name string, steps ...step) (acp string, api *standIn) {
	r.t.Helper()
	api = newStandIn(r.t, claudeModel, steps...)
	r.write(name+"/opencode/opencode.json", fmt.Sprintf(`{"model": "anthropic/claude-sonnet-4-5", "small_model": "anthropic/claude-sonnet-4-5", "autoupdate": false, "share": "disabled",
		"permission": {"bash": "ask"}, "provider": {"anthropic": {"options": {"baseURL": %q, "apiKey": "none"}}}}`, api.URL+"/v1"))
	return r.scripted(name, "opencode", map[string]string{
		"XDG_CONFIG_HOME": r.at(name), "XDG_DATA_HOME": r.at(name + "/data"), "XDG_STATE_HOME": r.at(name + "/state"), "XDG_CACHE_HOME": r.at(name + "/cache"),
		"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
	}, "acp"), api
}

// scripted is how an actor runs a program of the bridges by a script that sets its variables: an agent gets
// those alone that its actor lists.
func (r *trial) scripted(name, program string, env map[string]string, args ...string) (acp string) {
	r.t.Helper()
	path, err := filepath.Abs("bridges/node_modules/.bin/" + program)
	if err != nil {
		r.t.Fatal(err)
	}
	start := "#!/bin/sh\n"
	for variable, value := range env {
		start += fmt.Sprintf("export %s=%q\n", variable, value)
	}
	start += fmt.Sprintf("exec %q %s \"$@\"\n", path, strings.Join(args, " "))
	if err := os.WriteFile(r.at(name+".sh"), []byte(start), 0o700); err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf("{command: [%q], env: [PATH, HOME]}", r.at(name+".sh"))
}

// Agents that would decide for themselves ask before they run a command: a person allows it, and it is done once, or
// denies it, and it is not.
func TestAgentsThatDecideForThemselves(t *testing.T) {
	for name, agent := range map[string]func(*trial, string, ...step) (string, *standIn){"claude-agent-acp": (*trial).claudeAgent, "opencode": (*trial).openCode} {
		for _, decision := range []string{"approve", "deny"} {
			t.Run(name+", "+decision, func(t *testing.T) {
				r := begin(t)
				run := shell("echo made >> out.txt")
				if name == "opencode" {
					run.tool = "bash"
				}
				acp, api := agent(r, "agent", run)
				r.agents(map[string]string{"builder": acp})
				ended := r.attempt()
				q := r.asked(ended)
				if !strings.Contains(q.Content, "echo made >> out.txt") {
					t.Errorf("a person is asked %+v", q)
				}
				r.decide(decision, q.ID)
				err := <-ended
				text, _ := os.ReadFile(r.at("work/out.txt"))
				if decision == "approve" && (err != nil || string(text) != "made\n") {
					t.Errorf("it made %q, and ended with %v", text, err)
				}
				if decision == "deny" && (err == nil || len(text) > 0) {
					t.Errorf("it made %q, and ended with %v", text, err)
				}
				if _, calls := api.outcome(); calls != 1 {
					t.Errorf("the model made %d calls", calls)
				}
			})
		}
	}
}

// Nobody answers an agent that asks once the daemon has stopped: what it asked about is not done, and the attempt ends.
func TestAgentsWithoutTheDaemon(t *testing.T) {
	for name, agent := range map[string]func(*trial) (string, *standIn){
		"claude-agent-acp": func(r *trial) (string, *standIn) { return r.claudeAgent("agent", shell("echo made >> out.txt")) },
		"codex-acp":        func(r *trial) (string, *standIn) { return r.codexAgent("agent", outside("echo made >> out.txt")) },
		"opencode": func(r *trial) (string, *standIn) {
			run := shell("echo made >> out.txt")
			run.tool = "bash"
			return r.openCode("agent", run)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t)
			acp, api := agent(r)
			r.agents(map[string]string{"builder": acp})
			// The model makes its call once the daemon has stopped.
			asked, stopped, answer := make(chan struct{}, 1), make(chan struct{}), api.Config.Handler
			api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Method == http.MethodPost {
					select {
					case asked <- struct{}{}:
					default:
					}
					<-stopped
				}
				answer.ServeHTTP(w, q)
			})
			ended := r.attempt()
			select {
			case <-asked:
			case err := <-ended:
				t.Fatalf("it has ended before its model was asked: %v", err)
			}
			r.stopped()
			close(stopped)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "refused: echo made >> out.txt") {
				t.Errorf("it ended with %v", err)
			}
			if text, err := os.ReadFile(r.at("work/out.txt")); err == nil {
				t.Errorf("it made %q", text)
			}
			if _, calls := api.outcome(); calls != 1 {
				t.Errorf("the model made %d calls", calls)
			}
		})
	}
}
