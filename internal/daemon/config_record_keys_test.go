package daemon_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// Requirements for signatures, observers, and the retention of the log and the store can
// change while the daemon is stopped: the next start records each change before it decides
// anything. A daemon that removes records before half a year is over warns of it.
func TestChangedSafeguardsAreOnRecordAtTheStart(t *testing.T) {
	// The names here do not replace other keys of the configuration.
	before := "\napprovals: {allowed_signers: SIGNERS, keep_content: false}\naudit: {redact: {members: [sessionKey]}}\naccess: {apps: {\"@acme/telegram\": {channels: [telegram, slack, link, email, chat]}, \"@acme/watcher\": {observes: [alice]}}}\n"
	after := "\napprovals: {keep_content: true}\naudit: {keep: 48h, redact: {members: [userId]}}\naccess: {apps: {\"@acme/telegram\": {channels: [telegram, slack, link, email, chat]}, \"@acme/watcher\": {observes: [alice, bob]}}}\n"
	h := build(t, acme)
	h.stop()
	signers := h.path("signers")
	if err := os.WriteFile(signers, []byte("ann@acme ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.configure(acme + strings.Replace(before, "SIGNERS", signers, 1))
	h.start()
	h.stop()
	logged := h.observe()
	h.configure(acme + after)
	h.start()
	loaded := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionConfigChange, Event: "loaded"}})
	diff := diffOf(loaded[len(loaded)-1])
	for _, want := range []string{
		"approvals.allowed_signers: " + signers + " -> ", "approvals.keep_content: false -> true", "audit.redact.members: [sessionKey] -> [userId]",
		"access.apps[\"@acme/watcher\"].observes: [alice] -> [alice bob]", "audit.keep: 0s -> 48h",
	} {
		if !slices.ContainsFunc(diff, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("the difference is %q, without %q", diff, want)
		}
	}
	// The check runs in the background.
	waitFor(t, "a warning", func() bool {
		for _, e := range logged.All() {
			if strings.HasPrefix(e.Message, "audit.keep has records removed sooner than rules") && e.Level == zap.WarnLevel && e.ContextMap()["keep"] == 48*time.Hour {
				return true
			}
		}
		return false
	})
}
