package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
)

// processName names a process as the daemon does.
func processName(t testing.TB, pid int) string {
	t.Helper()
	name, err := peer.NameOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// sleeps starts a process that ends with the test.
func sleeps(t testing.TB, as *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep here")
	}
	// Another user may not enter a folder of links.
	if real, err := os.Readlink(path); err == nil {
		path = real
	}
	cmd := exec.Command(path, "600")
	cmd.SysProcAttr = as
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// appWithChild starts this test in another process, which has to call [playsApp], and returns the
// names of that process and of a child of it.
func appWithChild(t *testing.T, h *harness) (app, child string) {
	t.Helper()
	cmd := plays(t, "app", h)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return processName(t, cmd.Process.Pid), name
		}
	}
	t.Fatal("the app ended")
	return "", ""
}

// playsApp registers as an app, starts a child, and waits for the end of its input. It reports
// whether this process is the app's.
func playsApp(t *testing.T) bool {
	if os.Getenv(appPart) == "" {
		return false
	}
	h := &harness{t: t, dir: os.Getenv(appHarness)}
	h.agent("@acme/alice")
	fmt.Printf("\nchild: %s\n", processName(t, sleeps(t, nil).Process.Pid))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// strictly starts a daemon that keeps apps' processes from its operator socket.
func strictly(t *testing.T, yaml string) *harness {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	h := plot(t, yaml)
	h.strict = true
	h.start()
	t.Cleanup(h.stop)
	return h
}

// refusals are the records of refused processes, by their names.
func (h *harness) refusals() map[string][]audit.Entry {
	h.t.Helper()
	all := map[string][]audit.Entry{}
	for _, r := range h.records(audit.Filter{Like: audit.Record{Event: "console_refused"}}) {
		name, _ := r.Details["process"].(string)
		all[name] = append(all[name], r)
	}
	return all
}

// A program of the operator asks whether it may answer a process. An app's process, its child, a
// process that has ended and one of another user are refused, once on record.
func TestPeerCheck(t *testing.T) {
	if playsApp(t) {
		return
	}
	h := strictly(t, acme)
	person, self := h.operates(), processName(t, os.Getpid())
	check := func(processes ...string) *consoleapi.RefusedProcess {
		t.Helper()
		var result consoleapi.PeerCheckResult
		person.must("peer.check", map[string]any{"processes": processes}, &result)
		return result.Refused
	}
	app, child := appWithChild(t, h)
	own, ended := sleeps(t, nil), sleeps(t, nil)
	endedName := processName(t, ended.Process.Pid)
	_ = ended.Process.Kill()
	_ = ended.Wait()
	if r := check(self, processName(t, own.Process.Pid)); r != nil {
		t.Errorf("a person's processes are refused: %+v", r)
	}
	refused := map[string]string{
		app: "is app @acme/alice or was started by it", child: "is app @acme/alice or was started by it (process " + app + ")",
		endedName: "has ended", fmt.Sprintf("%d@1", os.Getpid()): "has ended",
	}
	if os.Getuid() == 0 {
		other := sleeps(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64002, Gid: 64002}})
		refused[processName(t, other.Process.Pid)] = "is of user 64002, and the caller is user 0"
	}
	for range 3 {
		for name, why := range refused {
			// Each process of the list has to pass.
			if r := check(self, name); r == nil || r.Process != name || !strings.Contains(r.Why, why) {
				t.Errorf("%s is answered %+v, want %q", name, r, why)
			}
		}
	}
	found := h.refusals()
	for name, why := range refused {
		on := found[name]
		if len(on) != 1 || !strings.Contains(on[0].PolicyReason, why) || on[0].PolicyResult != "deny" || on[0].Details["pid"] != float64(os.Getpid()) {
			t.Errorf("%s has %d records: %+v", name, len(on), on)
		}
	}
	if client, _ := found[child][0].Details["client"].(map[string]any); client["exe"] == nil || client["uid"] != float64(os.Getuid()) {
		t.Errorf("the app's child is on record as %v", client)
	}
	if len(found) != len(refused) {
		t.Errorf("%d processes are on record, want %d", len(found), len(refused))
	}

	// The daemon still knows them after a restart.
	h.restart()
	person = h.operates()
	for _, name := range []string{app, child} {
		if r := check(name); r == nil || !strings.Contains(r.Why, "is app @acme/alice") {
			t.Errorf("after a restart, %s is answered %+v", name, r)
		}
	}

	for _, params := range []map[string]any{
		{}, {"processes": []string{}}, {"processes": []string{"4711"}}, {"processes": []string{"0@1"}}, {"processes": []string{""}},
		{"processes": make([]string, 65)}, {"processes": []string{self}, "process": self},
	} {
		if e := person.refuse(api.InvalidParams, "peer.check", params); !strings.Contains(e.Error()+fmt.Sprint(e.Details), "process") {
			t.Errorf("%v is answered %v", params, e)
		}
	}
}

// A console reports a closed set of events, each on record once a minute and process.
func TestConsoleReport(t *testing.T) {
	h := build(t, acme)
	person, self := h.operates(), processName(t, os.Getpid())
	digest := "sha256:" + strings.Repeat("0", 64)
	for range 3 {
		for _, params := range []map[string]any{
			{"event": "opened", "process": self}, {"event": "enrolled", "digest": digest, "fingerprint": "SHA256:abc"},
			{"event": "link_reused", "process": self}, {"event": "link_reused"}, {"event": "host_refused", "process": self, "value": "evil.example"},
			{"event": "origin_refused", "process": self, "value": "https://evil.example"}, {"event": "session_refused", "process": self},
			{"event": "peer_refused", "uid": 64002}, {"event": "peer_refused", "uid": 64003}, {"event": "peer_refused"},
		} {
			person.must("console.report", params, nil)
		}
	}
	count, denied := map[string]int{}, 0
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}) {
		if !strings.HasPrefix(r.Event, "console_") {
			continue
		}
		count[r.Event]++
		if r.PolicyResult == "deny" && r.PolicyReason != "" {
			denied++
		}
		client, _ := r.Details["client"].(map[string]any)
		if r.Details["pid"] != float64(os.Getpid()) || r.Details["process"] == self && client["pid"] != float64(os.Getpid()) {
			t.Errorf("%s has %v", r.Event, r.Details)
		}
		switch r.Event {
		case "console_enrolled":
			if r.Details["digest"] != digest || r.Details["fingerprint"] != "SHA256:abc" {
				t.Errorf("enrolled: %v", r.Details)
			}
		case "console_host_refused":
			if r.Details["value"] != "evil.example" {
				t.Errorf("host: %v", r.Details)
			}
		}
	}
	want := map[string]int{
		"console_opened": 1, "console_enrolled": 1, "console_link_reused": 2, "console_host_refused": 1, "console_origin_refused": 1,
		"console_session_refused": 1, "console_refused": 3,
	}
	if !maps.Equal(count, want) || denied != 8 {
		t.Errorf("on record are %v, %d refusals", count, denied)
	}
	for member, params := range map[string]map[string]any{
		"event": {"event": "closed"}, "process": {"event": "opened", "process": "4711"}, "uid": {"event": "opened", "uid": 1}, "value": {"event": "session_refused", "value": "x"},
		"digest": {"event": "enrolled", "fingerprint": "x"}, "fingerprint": {"event": "enrolled", "digest": digest}, "text": {"event": "opened", "text": "x"},
	} {
		if e := person.refuse(api.InvalidParams, "console.report", params); !strings.Contains(e.Message+fmt.Sprint(e.Details), member) {
			t.Errorf("%v is answered %s %v", params, e.Message, e.Details)
		}
	}
}
