package acp

import (
	"strings"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
)

// If the actor names no mode, a known agent works in a mode that asks. For another agent
// that has such a mode, the bridge warns.
func TestMode(t *testing.T) {
	for _, tc := range []struct {
		agent, current, offered, set, warning string
	}{
		{agent: "@agentclientprotocol/claude-agent-acp", current: "auto", offered: "auto default plan", set: "default"},
		{agent: "@agentclientprotocol/claude-agent-acp", current: "default", offered: "auto default plan"},
		{agent: "Claude Agent", current: "auto", offered: "auto plan"},
		{agent: "codex-acp", current: "agent-full-access", offered: "read-only workspace-write agent-full-access", set: "workspace-write"},
		{agent: "OpenCode", current: "build", offered: "build plan"},
		{agent: "other", current: "yolo", offered: "yolo ask", warning: "mode: ask"},
		{agent: "other", current: "ask", offered: "yolo ask"},
		{agent: "other"},
		{current: "yolo", offered: "yolo read-only", warning: "mode: read-only"},
	} {
		var offered *sdk.SessionModeState
		if tc.offered != "" {
			offered = &sdk.SessionModeState{CurrentModeId: sdk.SessionModeId(tc.current)}
			for id := range strings.FieldsSeq(tc.offered) {
				offered.AvailableModes = append(offered.AvailableModes, sdk.SessionMode{Id: sdk.SessionModeId(id), Name: id})
			}
		}
		var agent *sdk.Implementation
		if tc.agent != "" {
			agent = &sdk.Implementation{Name: tc.agent, Version: "1.0.0"}
		}
		set, warning := mode(agent, offered)
		if set != tc.set || (warning == "") != (tc.warning == "") || !strings.Contains(warning, tc.warning) {
			t.Errorf("%s in %s of %s is put into %q, warned %q", tc.agent, tc.current, tc.offered, set, warning)
		}
	}
}
