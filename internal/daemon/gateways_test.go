package daemon_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// A real process with the name of OpenClaw's Gateway, but without the plugin, is an alarm
// in the status and on record, until it ends.
func TestUngatedGateway(t *testing.T) {
	t.Parallel()
	if isRuntime() {
		return
	}
	h := build(t, `
agents:
  - {id: main, app: "@openclaw/gateway", instance_id: agent-main-1, user_id: ann, org_unit: o, tenant_id: home}
`)
	gateway, in := runtimeOf(t, h, "openclaw-gateway", "TestUngatedGateway")
	ungated := func() (found bool) {
		h.daemon.LookAtGateways()
		for _, u := range h.status().Ungated {
			found = found || u.PID == gateway.Process.Pid && u.App == "@openclaw/gateway"
		}
		return found
	}
	if !ungated() {
		t.Error("a Gateway without its plugin is no alarm")
	}
	_ = in.Close()
	if err := gateway.Wait(); err != nil {
		t.Fatal(err)
	}
	if ungated() {
		t.Error("a Gateway that has ended is an alarm still")
	}
	var events []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{AppID: "@openclaw/gateway"}}) {
		if int(r.Details["pid"].(float64)) == gateway.Process.Pid {
			events = append(events, r.Event)
		}
	}
	if len(events) != 2 {
		t.Errorf("on record are %q, want the alarm and its end", events)
	}
}

// isRuntime reports whether this process plays a runtime; it returns after the test has
// ended the runtime.
func isRuntime() bool {
	if os.Getenv("OCIPD_IS_RUNTIME") == "" {
		return false
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// runtimeOf starts a process with a runtime's name.
func runtimeOf(t *testing.T, h *harness, name, test string) (*exec.Cmd, io.Closer) {
	t.Helper()
	// A process is named after its file, until it sets another name.
	program := filepath.Join(h.dir, name)
	self, err := os.Executable()
	if err == nil {
		err = os.Link(self, program)
	}
	if err != nil {
		err = exec.Command("cp", self, program).Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), "OCIPD_IS_RUNTIME=1")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, in
}

// A runtime that runs while its files differ from the entries is an alarm in the status and
// on record, with the differences, until they are repaired.
func TestLooseGate(t *testing.T) {
	t.Parallel()
	if isRuntime() {
		return
	}
	const edit = "/home/ann/.claude/settings.json: disableAllHooks is true"
	h := plot(t, "agents: [{id: main, instance_id: agent-main-1, user_id: ann, org_unit: o, tenant_id: home}]\n")
	var held atomic.Pointer[map[string][]string]
	held.Store(&map[string][]string{"claude-code": nil})
	h.gates = func() map[string][]string { return *held.Load() }
	h.start()
	t.Cleanup(h.stop)
	claude, in := runtimeOf(t, h, "claude", "TestLooseGate")
	why := func() (list []string) {
		h.daemon.LookAtGateways()
		for _, u := range h.status().Ungated {
			if u.PID == claude.Process.Pid && u.App == "claude-code" {
				list = append(list, u.Why)
			}
		}
		return list
	}
	if got := why(); len(got) != 0 {
		t.Errorf("a gate that holds is an alarm: %q", got)
	}
	held.Store(&map[string][]string{"claude-code": {edit}})
	if got := why(); len(got) != 1 || got[0] != edit {
		t.Errorf("the alarm is %q", got)
	}
	held.Store(&map[string][]string{"claude-code": nil})
	if got := why(); len(got) != 0 {
		t.Errorf("a gate that was mended is an alarm: %q", got)
	}
	_ = in.Close()
	if err := claude.Wait(); err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, r := range h.records(audit.Filter{Like: audit.Record{AppID: "claude-code"}}) {
		if int(r.Details["pid"].(float64)) == claude.Process.Pid && r.Details["why"] == edit {
			events = append(events, r.Event)
		}
	}
	if !slices.Equal(events, []string{"gateway_ungated"}) {
		t.Errorf("on record are %q with what differs, want the alarm", events)
	}
}
