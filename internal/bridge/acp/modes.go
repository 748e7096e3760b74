package acp

import (
	"fmt"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"
)

// known lists the agents that decide for themselves in the mode they begin in, with the mode
// in which they ask. An agent is known by a part of the name that it gives of itself. The
// modes are those of claude-agent-acp and codex-acp.
var known = []struct{ agent, mode string }{
	{"claude", "default"},
	{"codex", "workspace-write"},
}

// modesThatAsk are the ids of modes in which agents ask before they act.
var modesThatAsk = []string{"default", "ask", "manual", "read-only", "workspace-write"}

// mode is the mode that a session is to have, "" for the one it has, where the actor names
// none. Warning says that the agent has a mode in which it asks, and is in another one.
func mode(agent *sdk.Implementation, offered *sdk.SessionModeState) (set, warning string) {
	if offered == nil {
		return "", ""
	}
	has := func(id string) bool {
		return slices.ContainsFunc(offered.AvailableModes, func(m sdk.SessionMode) bool { return string(m.Id) == id })
	}
	current := string(offered.CurrentModeId)
	if agent != nil {
		for _, one := range known {
			if !strings.Contains(strings.ToLower(agent.Name), one.agent) || !has(one.mode) {
				continue
			}
			if current == one.mode {
				return "", ""
			}
			return one.mode, ""
		}
	}
	if slices.Contains(modesThatAsk, current) {
		return "", ""
	}
	if i := slices.IndexFunc(modesThatAsk, has); i >= 0 {
		return "", fmt.Sprintf("the agent begins in the mode %.64q and may act without asking; mode: %s of its actor has it ask", current, modesThatAsk[i])
	}
	return "", ""
}
