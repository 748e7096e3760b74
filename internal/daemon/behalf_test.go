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
	if target, err := os.Readlink(path); err == nil {
		path = target
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
	cmd.Cancel = in.Close // the app ends its child, and then itself
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

// callFor calls a method on behalf of a process.
func (a *app) callFor(process, method string, params, result any) *api.Error {
	a.t.Helper()
	if err := a.CallFor(a.t.Context(), process, method, params, "", result); err != nil {
		return api.AsError(err)
	}
	return nil
}

// On behalf of an app's process or its child, an operator's program decides and stops nothing. On
// behalf of a person's process it stops everything, and decides if clicks are enough; the record
// names that process.
func TestBehalf(t *testing.T) {
	if playsApp(t) {
		return
	}
	h := strictly(t, acme)

	var held api.DispatchResult
	h.operator("sending.message", map[string]any{"agent": "alice", "sessionKey": "telegram:dave", "content": promise}, &held)
	app, child := appWithChild(t, h)
	person, self := h.operates(), processName(t, os.Getpid())
	decision := map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideDeny}
	for _, process := range []string{app, child, fmt.Sprintf("%d@1", os.Getpid()), "no process", "4711"} {
		for method, params := range map[string]any{"sending.pause": map[string]any{}, "approval.resolve": decision, "approval.list": map[string]any{}} {
			if e := person.callFor(process, method, params, nil); e == nil || e.Code != api.Forbidden || !strings.Contains(e.Message, "cannot call "+method+" on behalf of this process: ") {
				t.Errorf("%s for %s is answered %v", method, process, e)
			}
		}
	}
	if e := person.callFor(strings.Repeat("1", 65), "kernel.status", map[string]any{}, nil); e == nil || e.Code != api.InvalidRequest {
		t.Errorf("a long name is answered %v", e)
	}
	if e := person.callFor(self, "operator.challenge", map[string]any{"method": "sending.resume"}, nil); e == nil || e.Code != api.InvalidRequest {
		t.Errorf("a challenge is answered %v", e)
	}
	if on := h.refusals(); len(on[child]) != 1 || len(on[app]) != 1 {
		t.Errorf("on record are %v", on)
	}

	// Nothing proves a click, unless the configuration says that it is enough.
	for _, method := range []string{"approval.resolve", "sending.resume"} {
		params := map[string]any{"approval.resolve": decision, "sending.resume": map[string]any{}}[method]
		if e := person.callFor(self, method, params, nil); e == nil || e.Code != api.Forbidden || !strings.Contains(e.Message, "console.decide: session") {
			t.Errorf("%s is answered %v", method, e)
		}
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "decision_refused"}}); len(r) != 2 || r[0].Details["via"] != "console" {
		t.Errorf("refused decisions on record: %+v", r)
	}
	if e := person.callFor(self, "sending.pause", map[string]any{"agent": "alice", "note": "look"}, nil); e != nil {
		t.Fatal(e)
	}
	h.client("sending_paused", "")
	h.reloaded(acme + "\nconsole: {decide: session}\n")
	if e := person.callFor(self, "sending.resume", map[string]any{"agent": "alice"}, nil); e != nil {
		t.Fatal(e)
	}
	h.client("sending_resumed", "none")
	if e := person.callFor(self, "approval.resolve", decision, nil); e != nil {
		t.Fatal(e)
	}
	h.client("denied", "none")
	var a api.Approval
	person.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &a)
	if a.Decision == nil || a.Decision.Via != "console" || a.Decision.Client.PID != int32(os.Getpid()) || a.Decision.Proof != "none" {
		t.Errorf("the decision is %+v", a.Decision)
	}
	h.verify()
}

// client checks that the one record of an event names this process as the one that asked.
func (h *harness) client(event, proof string) {
	h.t.Helper()
	found := h.records(audit.Filter{Like: audit.Record{Event: event}})
	if len(found) != 1 {
		h.t.Fatalf("%s: %d records", event, len(found))
	}
	d := found[0].Details
	client, _ := d["client"].(map[string]any)
	if d["via"] != "console" || client["pid"] != float64(os.Getpid()) || client["uid"] != float64(os.Getuid()) || client["exe"] == nil || d["by"] != fmt.Sprintf("uid:%d", os.Getuid()) {
		h.t.Errorf("%s: %v", event, d)
	}
	if said, _ := d["proof"].(string); said != proof {
		h.t.Errorf("%s: proof %q, want %q", event, said, proof)
	}
}

// Where people sign, a page needs a signature, and clicks are not enough. A signature counts once:
// the second use is on record.
func TestBehalfOfASigner(t *testing.T) {
	h := guarded(t, acme+"\nconsole: {decide: session}\n", rego(true, "ok"), listed(t, "carol", ""))
	var held api.DispatchResult
	person, self := h.operates(), processName(t, os.Getpid())
	alice := h.agent("@acme/alice")
	held = alice.held("COMMITMENT_REQUIRES_HUMAN", "telegram:dave", promise, fresh(nil))
	var a api.Approval
	person.must("approval.get", map[string]any{"approvalId": held.ApprovalID}, &a)
	params := map[string]any{"approvalId": held.ApprovalID, "decision": api.DecideDeny}
	if e := person.callFor(self, "approval.resolve", params, nil); e == nil || e.Code != api.Forbidden {
		t.Fatalf("a click is answered %v", e)
	}
	params["signature"] = signs(t, "carol", a.ToSign[api.DecideDeny], api.ApprovalNamespace)
	if e := person.callFor(self, "approval.resolve", params, nil); e != nil {
		t.Fatal(e)
	}
	if e := person.callFor(self, "approval.resolve", params, nil); e == nil || e.Code != api.Conflict {
		t.Errorf("the second use is answered %v", e)
	}
	refused := h.records(audit.Filter{Like: audit.Record{Event: "decision_refused"}})
	if len(refused) != 2 || refused[1].ApprovalID != held.ApprovalID || !strings.Contains(refused[1].PolicyReason, "is denied already, by carol@acme-corp") || refused[0].Details["via"] != "console" {
		t.Errorf("on record: %+v", refused)
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "denied", ActionType: audit.ActionApproval}}); len(r) != 1 || r[0].Details["via"] != "console" || r[0].Details["proof"] != nil || r[0].Details["by"] != "carol@acme-corp" {
		t.Errorf("the decision: %+v", r)
	}
}

// The statistics have the pairs of sender and receiver, and how long people took to decide, also
// after the index was written.
func TestStatsOfPairsAndTimes(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "How far is the lighthouse?", nil)
	held := alice.held("COMMITMENT_REQUIRES_HUMAN", "telegram:dave", promise, fresh(nil))
	h.decides(api.DecideDeny, held.ApprovalID)
	var e *api.Error
	if e = alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": "How far is the harbour?"}); e == nil {
		t.Fatal("a message to another tenant is sent")
	}
	for range 2 {
		var plain, s api.AuditStats
		h.operator("audit.stats", map[string]any{}, &plain)
		h.operator("audit.stats", map[string]any{"pairs": true}, &s)
		if plain.Pairs != nil || plain.PairCount != 0 || len(s.Pairs) != 2 || s.PairCount != 2 {
			t.Fatalf("pairs %+v, without asking %+v", s.Pairs, plain.Pairs)
		}
		if got, want := fmt.Sprint(s.Pairs), "[{agent-alice-1 agent-dave-1 agent 1 1 0 0} {agent-alice-1 agent-eve-1 agent 0 0 1 1}]"; got != want {
			t.Errorf("pairs %s, want %s", got, want)
		}
		if len(s.KindTimes) != 1 || s.KindTimes[0].Name != "message" || s.KindTimes[0].Decided != 1 || s.KindTimes[0].P50 <= 0 || len(s.RuleTimes) != 1 || s.RuleTimes[0].Name != "commitment" {
			t.Errorf("times %+v, %+v", s.KindTimes, s.RuleTimes)
		}
		h.restart()
	}
}
