package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// If a channel's app transforms a text before it shows it, the daemon does so before the
// decision: the IRC app expands escapes and drops controls, Telegram parses HTML.
func TestClients05WhatTheAppUndoesIsUndoneBefore(t *testing.T) {
	h := build(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
directory:
  - {instance_id: agent-friend-1, user_id: friend, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["irc:direct:friend"]}
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:direct:2002"]}
`)
	h.channel("@openclawos/irc", "irc")
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	for _, content := range []string{`I \x70\x72omise to pay`, `pro\0mise`, `\u0070romise`, "pro\x02mise", `\nconfirm`, "\x1b[1mpromise", "pleaseConfirm"} {
		alice.held(ocip.CommitmentRequiresHuman, "irc:direct:friend", content, fresh(nil))
	}
	for content, session := range map[string]string{
		`\x41KIAIOSFODNN7SAMPLED`:     "irc:direct:friend",
		"AKIA\x02IOSFODNN7SAMPLED":    "irc:direct:friend",
		"AKIA<b>IOSFODNN7SAMPLED</b>": "telegram:direct:2002",
		"&#65;KIAIOSFODNN7SAMPLED":    "telegram:direct:2002",
	} {
		e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": session, "content": content, "metadata": fresh(nil)})
		if code := ocipCode(t, e); code != string(ocip.ClassificationViolation) {
			t.Errorf("%q: %s", content, code)
		}
	}
	// A text that stays literal on the screen is literal for the rules.
	alice.must("message.dispatch", map[string]any{"sessionKey": "irc:direct:friend", "content": `see C:\temp\x for it`, "metadata": fresh(nil)}, nil)
}
