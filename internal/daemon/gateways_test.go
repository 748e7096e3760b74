package daemon_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

// A real process that calls itself as OpenClaw's Gateway does, and has no plugin in it,
// is an alarm in the status and on record, until it ends.
func TestUngatedGateway(t *testing.T) {
	t.Parallel()
	if os.Getenv("OCIPD_IS_GATEWAY") != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends it
		return
	}
	h := build(t, `
agents:
  - {id: main, app: "@openclaw/gateway", instance_id: agent-main-1, user_id: ann, org_unit: o, tenant_id: home}
`)
	// What a process calls itself is the name of its file, until it says another.
	program := filepath.Join(h.dir, "openclaw-gateway")
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
	gateway := exec.Command(program, "-test.run=^TestUngatedGateway$")
	gateway.Env = append(os.Environ(), "OCIPD_IS_GATEWAY=1")
	in, err := gateway.StdinPipe()
	if err == nil {
		err = gateway.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
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
