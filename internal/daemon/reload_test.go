package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

// rego is a whole policy in one text, which gives agents of one unit this answer, and others none.
func rego(allow bool, reason string) map[string]string {
	answer := "decision := {\"allow\": %t, \"require_approval\": false, \"reason\": %q, \"constraints\": {}}\n"
	return map[string]string{
		"exchange.rego": "package ocip.agent_exchange\n\n" + fmt.Sprintf(answer, allow, reason),
		"cross.rego":    "package ocip.cross_org\n\n" + fmt.Sprintf(answer, false, "other unit"),
	}
}

// lay writes files into a folder, each atomically.
func lay(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func policySection(path, more string) string {
	return fmt.Sprintf("\npolicy: {path: %q, timeout: 20s, %s}\n", path, more)
}

// edit replaces the configuration file atomically.
func (h *harness) edit(yaml string) {
	h.t.Helper()
	lay(h.t, h.dir, map[string]string{"ocipd.yaml": yaml})
}

// policyStatus asks for the policy's status.
func (h *harness) policyStatus() api.PolicyStatus {
	h.t.Helper()
	var s api.Status
	h.operator("kernel.status", nil, &s)
	return s.Policy
}

// policyUntil asks until the status is as expected.
func (h *harness) policyUntil(what string, is func(api.PolicyStatus) bool) api.PolicyStatus {
	h.t.Helper()
	return h.statusUntil(what, func(s api.Status) bool { return is(s.Policy) }).Policy
}

// statusUntil asks until the daemon is as expected.
func (h *harness) statusUntil(what string, is func(api.Status) bool) api.Status {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	for {
		var s api.Status
		if err := c.Call(ctx, "kernel.status", nil, &s); err != nil {
			h.t.Fatalf("waits for %s: %v", what, err)
		}
		if is(s) {
			return s
		}
	}
}

// takes waits for a policy other than an earlier one.
func (h *harness) takes(old string) string {
	h.t.Helper()
	return h.policyUntil("another policy than "+old, func(s api.PolicyStatus) bool { return s.Revision != old }).Revision
}

// refuses waits for a refusal with a text.
func (h *harness) refuses(part string) api.PolicyStatus {
	h.t.Helper()
	return h.policyUntil("a refusal with "+part, func(s api.PolicyStatus) bool { return strings.Contains(s.Refusal, part) })
}

// refusesConfig waits for a refusal of the configuration with a text.
func (h *harness) refusesConfig(part string) {
	h.t.Helper()
	h.statusUntil("a refusal with "+part, func(s api.Status) bool { return strings.Contains(s.Config.Refusal, part) })
}

// reload asks for policy.reload.
func (h *harness) reload() (api.PolicyReloadResult, error) {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	var result api.PolicyReloadResult
	return result, c.Call(h.t.Context(), "policy.reload", map[string]any{}, &result)
}

// policyRecords lists the records of policies, such as "loaded by file".
func (h *harness) policyRecords() (entries []audit.Entry, said []string) {
	h.t.Helper()
	entries = h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionPolicyChange}})
	for _, e := range entries {
		said = append(said, fmt.Sprintf("%s by %s", e.Event, e.Details["by"]))
	}
	return entries, said
}

func (h *harness) wantPolicyRecords(want ...string) []audit.Entry {
	h.t.Helper()
	entries, said := h.policyRecords()
	if !slices.Equal(said, want) {
		h.t.Fatalf("on record are %q, want %q", said, want)
	}
	return entries
}

// sends has alice send to a session, and returns the reason of the refusal or "".
func (a *app) sends(session string) string {
	a.t.Helper()
	err := a.call("message.dispatch", map[string]any{"sessionKey": session, "content": "What is the status?", "metadata": fresh(nil)}, nil)
	var refused *api.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused) && ocipCode(a.t, refused) == string(ocip.PolicyDenied):
		return refused.Message
	}
	a.t.Fatalf("%s sends: %v", a.id, err)
	return ""
}

// seesItsSection waits until alice's app gets a section with seen.
func (a *app) seesItsSection() {
	a.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if a.itsSection() != nil {
			return
		}
	}
	a.t.Fatal("the edited section is not served")
}

// itsSection is the section that alice's app gets.
func (a *app) itsSection() any {
	a.t.Helper()
	var got struct {
		Value any `json:"value"`
	}
	a.must("config.get", map[string]any{"path": `apps["@acme/alice"].seen`}, &got)
	return got.Value
}

// An edit of the policy applies to the next message; a bad one changes nothing, and is
// recorded and shown until it is repaired.
func TestPolicyFollowsItsFiles(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "first"))
	settings := acme + policySection(dir, "watch: true")
	h := build(t, settings)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	first := h.policyStatus()
	if first.Source != dir || first.Refusal != "" || !first.RefusedAt.IsZero() {
		t.Errorf("the status is %+v", first)
	}
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Fatalf("the first policy says %q", reason)
	}

	lay(t, dir, rego(false, "second"))
	second := h.takes(first.Revision)
	if reason := alice.sends("telegram:dave"); reason != "second" {
		t.Errorf("the second policy says %q", reason)
	}

	lay(t, dir, map[string]string{"sub/bad.rego": "package extra\n\nx := tru\n"})
	place := filepath.Join(dir, "sub/bad.rego") + ":3: "
	refused := h.refuses(place)
	if refused.Revision != second || refused.RefusedAt.IsZero() {
		t.Errorf("the status is %+v", refused)
	}
	if reason := alice.sends("telegram:dave"); reason != "second" {
		t.Errorf("after a bad edit the policy says %q", reason)
	}

	// Both go into force together or not at all, so the policy's fault also stops an edit
	// of the configuration.
	h.edit(settings + "\napps: {\"@acme/alice\": {seen: 1}}\n")
	h.policyUntil("another refusal", func(s api.PolicyStatus) bool { return s.RefusedAt.After(refused.RefusedAt) })
	if value := alice.itsSection(); value != nil {
		t.Errorf("beside a bad policy, an edited section is served: %v", value)
	}

	// The earlier policy is good, and so ends the refusal.
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	mended := h.policyUntil("the end of the refusal", func(s api.PolicyStatus) bool { return s.Refusal == "" })
	alice.seesItsSection()
	if mended.Revision != second || !mended.RefusedAt.IsZero() {
		t.Errorf("the status is %+v", mended)
	}
	lay(t, dir, rego(true, "third"))
	third := h.takes(second)
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Errorf("the third policy says %q", reason)
	}

	records := h.wantPolicyRecords("loaded by start", "loaded by file", "refused by file", "refused by file", "loaded by file", "loaded by file")
	for i, want := range []struct{ revision, previous string }{{first.Revision, ""}, {second, first.Revision}, {second, ""}, {second, ""}, {second, second}, {third, second}} {
		r := records[i]
		previous, _ := r.Details["previous"].(string)
		if r.PolicyRevision != want.revision || previous != want.previous || r.Details["source"] != dir {
			t.Errorf("record %d is %+v, want %+v", r.Seq, r.Record, want)
		}
		digest, _ := r.Details["digest"].(string)
		if len(digest) != len("sha256:")+64 || strings.HasPrefix(digest, r.PolicyRevision) != (r.Event == "loaded") {
			t.Errorf("record %d has the digest %q for revision %s", r.Seq, digest, r.PolicyRevision)
		}
	}
	contains(t, records[2].PolicyReason, place)
	faults, _ := records[2].Details["faults"].([]any)
	if len(faults) != 1 || records[2].Details["faultCount"] != float64(1) {
		t.Fatalf("the record lists %v", records[2].Details)
	}
	if fault := faults[0].(map[string]any); fault["line"] != float64(3) || fault["file"] != filepath.Join(dir, "sub/bad.rego") {
		t.Errorf("the record lists %v", fault)
	}
	if files, _ := records[1].Details["files"].([]any); len(files) != 2 {
		t.Errorf("the record lists the files %v", records[1].Details["files"])
	}
}

// If a link to a folder is switched, as Kubernetes mounts it, that is a new policy at once.
func TestPolicyFollowsItsLinks(t *testing.T) {
	mount := t.TempDir()
	lay(t, filepath.Join(mount, "..1"), rego(true, "first"))
	lay(t, filepath.Join(mount, "..2"), rego(false, "second"))
	for name, target := range map[string]string{"..data": "..1", "exchange.rego": "..data/exchange.rego", "cross.rego": "..data/cross.rego"} {
		if err := os.Symlink(target, filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	h := build(t, acme+policySection(mount, "watch: true"))
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Fatalf("the first policy says %q", reason)
	}
	first := h.policyStatus().Revision
	if err := errors.Join(os.Symlink("..2", filepath.Join(mount, "..new")), os.Rename(filepath.Join(mount, "..new"), filepath.Join(mount, "..data"))); err != nil {
		t.Fatal(err)
	}
	h.takes(first)
	if reason := alice.sends("telegram:dave"); reason != "second" {
		t.Errorf("the second policy says %q", reason)
	}
	h.wantPolicyRecords("loaded by start", "loaded by file")
}

// policy.data belongs to the configuration, and so do path and timeout; an invalid
// configuration changes none of them.
func TestPolicyFollowsTheConfiguration(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	first := h.policyStatus()
	if first.Source != "built-in" {
		t.Errorf("the status is %+v", first)
	}
	if files, want := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionPolicyChange}})[0].Details["files"], []any{"agent_exchange.rego", "cross_org.rego"}; !slices.Equal(files.([]any), want) {
		t.Errorf("the record has the files %q, want %q", files, want)
	}
	contains(t, alice.sends("telegram:carol"), "needs policy.data.cross_org: true")

	h.edit(acme + "\npolicy: {timeout: 20s, data: {cross_org: true}}\n")
	second := h.takes(first.Revision)
	if reason := alice.sends("telegram:carol"); reason != "" {
		t.Errorf("with cross_org the policy says %q", reason)
	}

	h.edit(acme + "\npolicy: {data: {cross_org: false}}\nagnets: []\n")
	h.refusesConfig("unknown key \"agnets\"")
	if s := h.policyStatus(); s.Revision != second || s.Refusal != "" {
		t.Errorf("the status is %+v", s)
	}
	if reason := alice.sends("telegram:carol"); reason != "" {
		t.Errorf("with a broken configuration the policy says %q", reason)
	}

	// An edit that failed halfway does not restore the defaults.
	h.edit("")
	h.refusesConfig("has become empty")
	if reason := alice.sends("telegram:carol"); reason != "" {
		t.Errorf("with an empty configuration the policy says %q", reason)
	}

	// Another path replaces the earlier one, and is followed.
	dir := lay(t, t.TempDir(), rego(false, "from a folder"))
	h.edit(acme + policySection(dir, "data: {cross_org: true}"))
	third := h.takes(second)
	if s := h.policyStatus(); s.Source != dir || s.Refusal != "" {
		t.Errorf("the status is %+v", s)
	}
	if reason := alice.sends("telegram:dave"); reason != "from a folder" {
		t.Errorf("the policy of the folder says %q", reason)
	}
	lay(t, dir, rego(false, "edited"))
	fourth := h.takes(third)
	if reason := alice.sends("telegram:dave"); reason != "edited" {
		t.Errorf("the policy of the folder says %q", reason)
	}

	// A path without a valid policy is watched until there is one.
	late := t.TempDir()
	h.edit(acme + policySection(late, "data: {cross_org: true}"))
	if refused := h.refuses("no .rego file"); refused.Source != dir || refused.Revision != fourth {
		t.Errorf("the status is %+v", refused)
	}
	lay(t, late, rego(true, "late"))
	h.policyUntil("the late policy", func(s api.PolicyStatus) bool { return s.Source == late && s.Refusal == "" })
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Errorf("the late policy says %q", reason)
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionPolicyChange}}) {
		if by := r.Details["by"]; by != "start" && by != "file" {
			t.Errorf("record %d is by %v", r.Seq, by)
		}
		if r.Event == "refused" && r.Details["faultCount"] != float64(1) {
			t.Errorf("record %d lists %v", r.Seq, r.Details)
		}
	}
}

// A change of only the policy's timeout leaves its text and its revision.
func TestPolicyTimeoutIsTaken(t *testing.T) {
	h := plot(t, acme)
	h.flags = map[string]any{"policy.timeout": nil}
	h.start()
	t.Cleanup(h.stop)
	h.edit(acme + "\npolicy: {timeout: 3s}\n")
	result, err := h.reload()
	if err != nil {
		t.Fatal(err)
	}
	// The file's change may have come first.
	records, _ := h.policyRecords()
	last := records[len(records)-1]
	if len(records) != 2 || last.Details["timeout"] != "3s" || last.PolicyRevision != result.Revision || last.Details["previous"] != result.Revision {
		t.Errorf("on record are %+v", records)
	}
}

// Without a watch, nothing of the policy changes until a person asks for it.
func TestPolicyReload(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "first"))
	h := build(t, acme+policySection(dir, "watch: false"))
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	first := h.policyStatus()

	same, err := h.reload()
	if err != nil || same.Changed || same.Revision != first.Revision || !strings.HasPrefix(same.Digest, same.Revision) ||
		!slices.Equal(same.Files, []string{filepath.Join(dir, "cross.rego"), filepath.Join(dir, "exchange.rego")}) {
		t.Errorf("nothing changed, and the answer is %+v, %v", same, err)
	}

	lay(t, dir, rego(false, "second"))
	h.edit(acme + policySection(dir, "watch: false, data: {own: 1}") + "apps: {\"@acme/alice\": {seen: 1}}\n")
	alice.seesItsSection()
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Errorf("a policy that nobody asked for says %q", reason)
	}
	second, err := h.reload()
	if err != nil || !second.Changed || second.Revision == first.Revision {
		t.Fatalf("the answer is %+v, %v", second, err)
	}
	if reason := alice.sends("telegram:dave"); reason != "second" {
		t.Errorf("the second policy says %q", reason)
	}
	h.wantPolicyRecords("loaded by start", "loaded by operator")

	// A bad one is refused with all faults, at each request.
	lay(t, dir, map[string]string{"exchange.rego": "package ocip.agent_exchange\n\ndecision := tru\n\nx := fals\n"})
	for range 2 {
		_, err = h.reload()
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.Conflict {
			t.Fatalf("got %v", err)
		}
		contains(t, refused.Message, filepath.Join(dir, "exchange.rego")+":3: ", second.Revision)
		raw, err := json.Marshal(refused.Details)
		if err != nil {
			t.Fatal(err)
		}
		var details api.PolicyRefusal
		if err := json.Unmarshal(raw, &details); err != nil {
			t.Fatal(err)
		}
		if details.Revision != second.Revision || details.FaultCount != 2 || len(details.Faults) != 2 || details.Faults[1].Line != 5 {
			t.Errorf("the details are %s", raw)
		}
	}
	if s := h.policyStatus(); s.Revision != second.Revision || s.RefusedAt.IsZero() {
		t.Errorf("the status is %+v", s)
	}
	// One that compiles and fails its samples is refused too.
	lay(t, dir, map[string]string{"exchange.rego": "package ocip.agent_exchange\n\ndecision := {\"allow\": true}\n"})
	if _, err = h.reload(); err == nil {
		t.Error("a policy that fails its samples is taken")
	} else {
		contains(t, err.Error(), "tried on a sample", "is missing")
	}
	h.edit("agnets: []")
	if _, err = h.reload(); err == nil {
		t.Error("a broken configuration is taken")
	} else {
		contains(t, err.Error(), h.path("ocipd.yaml")+":1:1: unknown key")
	}
	if reason := alice.sends("telegram:dave"); reason != "second" {
		t.Errorf("after bad edits the policy says %q", reason)
	}
	records := h.wantPolicyRecords("loaded by start", "loaded by operator", "refused by operator", "refused by operator", "refused by operator")
	configs := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionConfigChange}})
	last := configs[len(configs)-1]
	if last.Event != "refused" || last.Details["faultCount"] != float64(1) {
		t.Errorf("the broken configuration is on record as %+v", last)
	}
	for _, r := range append(records[1:], last) {
		if r.Details["uid"] != float64(os.Getuid()) || r.Details["pid"] != float64(os.Getpid()) {
			t.Errorf("record %d does not say who asked: %v", r.Seq, r.Details)
		}
	}

	alice.refuse(api.Forbidden, "policy.reload", map[string]any{})
}

// Simultaneous reloads are made one after another, and each message in progress is decided
// by a policy that was recorded before.
func TestPolicyReloadsUnderLoad(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "0"))
	h := build(t, acme+policySection(dir, "watch: true"))
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	done := make(chan struct{})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					alice.sends("telegram:dave")
				}
			}
		})
	}
	const edits = 8
	for n := range edits {
		lay(t, dir, rego(n%2 == 0, fmt.Sprint(n+1)))
		var askers sync.WaitGroup
		for range 3 {
			askers.Go(func() {
				if _, err := h.reload(); err != nil {
					t.Error(err)
				}
			})
		}
		askers.Wait()
	}
	close(done)
	senders.Wait()

	announced := make(map[string]bool)
	decided := make(map[string]bool)
	inForce := ""
	for _, r := range h.records(audit.Filter{}) {
		switch {
		case r.ActionType == audit.ActionPolicyChange:
			if previous, _ := r.Details["previous"].(string); previous != inForce || r.PolicyRevision == inForce {
				t.Errorf("record %d puts %s in the place of %q, which was %q", r.Seq, r.PolicyRevision, previous, inForce)
			}
			inForce = r.PolicyRevision
			announced[inForce] = true
		case r.PolicyRevision != "":
			decided[r.PolicyRevision] = true
			if !announced[r.PolicyRevision] {
				t.Errorf("record %d is decided by %s, which is not on record", r.Seq, r.PolicyRevision)
			}
		}
	}
	if len(announced) != edits+1 || len(decided) < 2 {
		t.Errorf("%d policies were announced, want %d; %d decided", len(announced), edits+1, len(decided))
	}
	h.verify()
}

// A policy that cannot be recorded is not put in force. Here the record would be too large,
// because it contains every file's name.
func TestPolicyThatCannotBeRecorded(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "first"))
	h := build(t, acme+policySection(dir, "watch: false"))
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	first := h.policyStatus().Revision

	lay(t, dir, rego(false, "second"))
	deep := filepath.Join(dir, strings.Repeat(strings.Repeat("\x01", 240)+"/", 4))
	files := make(map[string]string)
	for n := range 200 {
		files[fmt.Sprintf("%d.rego", n)] = fmt.Sprintf("package filler%d\n", n)
	}
	lay(t, deep, files)
	_, err := h.reload()
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != api.InternalError || ocipCode(t, failure) != string(ocip.AuditWriteFailed) {
		t.Fatalf("got %v", err)
	}
	if s := h.policyStatus(); s.Revision != first || !strings.Contains(s.Refusal, "cannot record the policy") {
		t.Errorf("the status is %+v", s)
	}
	if reason := alice.sends("telegram:dave"); reason != "" {
		t.Errorf("a policy that is not on record says %q", reason)
	}
	h.wantPolicyRecords("loaded by start")

	if err := os.RemoveAll(filepath.Join(dir, strings.Repeat("\x01", 240))); err != nil {
		t.Fatal(err)
	}
	if result, err := h.reload(); err != nil || !result.Changed {
		t.Errorf("got %+v, %v", result, err)
	}
	if s := h.policyStatus(); s.Refusal != "" {
		t.Errorf("the status is %+v", s)
	}
	h.wantPolicyRecords("loaded by start", "loaded by operator")
}

// However many faults there are, with whatever bytes, the record holds them.
func TestRefusalIsBounded(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "first"))
	h := build(t, acme+policySection(dir, "watch: false"))
	var many strings.Builder
	many.WriteString("package extra\n")
	for n := range 100 {
		fmt.Fprintf(&many, "x%d := %s%d\n", n, strings.Repeat("y", 2000), n)
	}
	lay(t, dir, map[string]string{"many.rego": many.String()})
	if _, err := h.reload(); err == nil {
		t.Fatal("the policy is taken")
	}
	if err := os.Rename(filepath.Join(dir, "many.rego"), filepath.Join(dir, "\xff.rego")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.reload(); err == nil {
		t.Fatal("the policy is taken")
	}
	records := h.wantPolicyRecords("loaded by start", "refused by operator", "refused by operator")
	faults, _ := records[1].Details["faults"].([]any)
	count, _ := records[1].Details["faultCount"].(float64)
	if len(faults) != 20 || count < 50 || len(records[1].PolicyReason) > 2048 {
		t.Errorf("the record has %d of %v faults and a reason of %d bytes", len(faults), count, len(records[1].PolicyReason))
	}
	for _, f := range faults {
		if message := f.(map[string]any)["message"].(string); len(message) > 512 {
			t.Errorf("a fault has %d bytes", len(message))
		}
	}
}

// An edit between the reading of the configuration and the start applies from the start on.
func TestEditBeforeTheWatch(t *testing.T) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	h.configure(acme)
	cfg, err := config.Load(config.Options{File: h.path("ocipd.yaml"), Flags: map[string]any{
		"ipc.socket": h.path("run/kernel.sock"), "store.url": h.path("state/ocipd.db"), "policy.data.max_classification_shared": "public",
		"ipc.apps_may_operate": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.edit(acme + "\npolicy: {data: {cross_org: true, max_classification_shared: internal}}\napps: {\"@acme/alice\": {seen: 1}}\n")
	if h.daemon, err = daemon.New(daemon.Options{Config: cfg, Getenv: func(string) string { return "" }, Version: "test", Log: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	if err := h.daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	h.wantPolicyRecords("loaded by start", "loaded by file")
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	if reason := alice.sends("telegram:carol"); reason != "" {
		t.Errorf("the edited policy.data says %q", reason)
	}
	// The file does not change a value from a flag.
	err = alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "x", "metadata": fresh(map[string]any{"classification": "internal"})}, nil)
	var refused *api.Error
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	contains(t, refused.Message, "max_classification_shared: internal, it is public")
	alice.seesItsSection()
}
