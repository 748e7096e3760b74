package daemon_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// appPart tells the test that it runs as an app's process or its child, and which part it
// plays; appHarness is the daemon's place, and appApproval the request to decide.
const (
	appPart     = "OCIPD_DAEMON_TEST_APP_PART"
	appHarness  = "OCIPD_DAEMON_TEST_APP_HOUSE"
	appApproval = "OCIPD_DAEMON_TEST_APP_APPROVAL"
)

// An app cannot decide on the operator socket: not from its own process, nor from its
// children or theirs, nor on a connection that it opened before it was an app.
func TestAppProcessesDecideNothing(t *testing.T) {
	if part := os.Getenv(appPart); part != "" {
		playApp(t, part)
		return
	}
	h := strictly(t, acme)

	app := exec.CommandContext(t.Context(), self(t), "-test.v", "-test.run=^"+t.Name()+"$")
	app.Env = append(os.Environ(), appPart+"=app", appHarness+"="+h.dir, "GORACE=atexit_sleep_ms=0")
	out, err := app.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%s (%v)", out, err)
	}
	// All attempts were made.
	for _, part := range []string{"app itself", "early", "child", "grandchild", "app that has left"} {
		if !strings.Contains(string(out), "refused: "+part+"\n") {
			t.Errorf("the part of %s was not played: %s", part, out)
		}
	}

	// Nothing was decided, and a person whose process is no app decides.
	var list api.ApprovalListResult
	h.operator("approval.list", map[string]any{"state": "all"}, &list)
	if len(list.Approvals) != 1 {
		t.Fatalf("%d approvals: %s", list.Total, list.Approvals)
	}
	var waits api.ApprovalSummary
	person := h.operates()
	person.decode(list.Approvals[0], &waits)
	if waits.State != api.ApprovalPending {
		t.Errorf("it is %+v", waits)
	}
	if r := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval}}); len(r) != 0 {
		t.Errorf("on record: %+v", r)
	}
	h.decides(api.DecideDeny, waits.ApprovalID)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// playApp runs in the app's process and in its children.
func playApp(t *testing.T, part string) {
	h := &harness{t: t, dir: os.Getenv(appHarness)}
	if part != "app" {
		knock(t, h, part, os.Getenv(appApproval))
		if part == "child" {
			t.Log(start(t, h, "grandchild", os.Getenv(appApproval)))
		}
		return
	}
	// A process that is not yet an app is admitted and not disconnected later; but each
	// decision checks it again.
	early := h.operates()
	early.must("approval.list", map[string]any{}, nil)
	alice := h.agent("@acme/alice")
	held := alice.held(ocip.CommitmentRequiresHuman, "telegram:dave", promise, fresh(nil))
	var saw api.Approval
	alice.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &saw)
	for _, what := range api.DecisionsOf(api.ApprovalOfMessage) {
		e := early.refuse(api.Forbidden, "approval.resolve", decision(what, &saw))
		contains(t, e.Message, "@acme/alice", fmt.Sprintf("process %d", os.Getpid()))
	}
	early.refuse(api.Forbidden, "exchange.resolve", map[string]any{"exchangeId": held.OCIP.ExchangeID, "outcome": "resolved"})
	early.refuse(api.Forbidden, "policy.reload", map[string]any{})
	t.Log("\nrefused: early\n")

	knock(t, h, "app itself", held.ApprovalID)
	t.Log(start(t, h, "child", held.ApprovalID))
	// The app continues as before.
	alice.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &saw)
	if saw.State != api.ApprovalPending {
		t.Errorf("it is %+v", saw)
	}
	// Ending its connection does not make it a person either.
	alice.Close()
	<-alice.Done()
	knock(t, h, "app that has left", held.ApprovalID)
}

// knock tries every operator method that shows or decides something, each on its own connection.
func knock(t *testing.T, h *harness, part, id string) {
	t.Helper()
	for method, params := range map[string]map[string]any{
		"approval.resolve": {"approvalId": id, "decision": api.DecideDeny},
		"exchange.resolve": {"exchangeId": "any", "outcome": "resolved"},
		"approval.get":     {"approvalId": id},
		"approval.judge":   {"approvalId": id, "digest": "d", "model": "m", "promptDigest": "p", "answer": "a"},
		"approval.list":    {},
		"audit.query":      {},
		"kernel.status":    {},
		"policy.reload":    {},
	} {
		c, err := client.Dial(t.Context(), h.path("run/operator.sock"))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Call(t.Context(), method, params, nil)
		c.Close()
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.Forbidden && e.Code != api.ConnectionClosed || !strings.Contains(e.Message, "is app @acme/alice or was started by it") {
			t.Errorf("%s calls %s: %v", part, method, err)
		}
	}
	t.Logf("\nrefused: %s\n", part)
}

// start plays a part in a separate process, with a shell in between, and returns its output.
func start(t *testing.T, h *harness, part, id string) string {
	t.Helper()
	// The shell has more to do afterwards, so that it does not exec the command.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `"$0" "$@"; exit $?`, self(t), "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), appPart+"="+part, appHarness+"="+h.dir, appApproval+"="+id)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %s (%v)", part, out, err)
	}
	return "\n" + string(out)
}
