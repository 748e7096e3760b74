package acp

import (
	"fmt"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"
)

// known lists the agents whose first mode does not ask for permission, with the mode
// that does. A part of the name that an agent reports identifies it. The modes are
// those of claude-agent-acp and codex-acp.
var known = []struct{ agent, mode string }{
	{"claude", "default"},
	{"codex", "workspace-write"},
}

// modesThatAsk are the ids of modes in which agents ask before they act.
var modesThatAsk = []string{"default", "ask", "manual", "read-only", "workspace-write"}

// modesThatAskToEdit are those of them in which agents also ask before they change a file of the
// workspace, the strictest first.
var modesThatAskToEdit = []string{"read-only", "ask", "default", "manual"}

// readMode chooses the mode of a session that only reads: the actor's if that one asks before each
// edit, or else one that does. warning says that the agent offers none.
func readMode(actors string, offered *sdk.SessionModeState) (set, warning string) {
	if slices.Contains(modesThatAskToEdit, actors) {
		return actors, ""
	}
	if offered == nil {
		return actors, ""
	}
	for _, id := range modesThatAskToEdit {
		if slices.ContainsFunc(offered.AvailableModes, func(m sdk.SessionMode) bool { return string(m.Id) == id }) {
			return id, ""
		}
	}
	return actors, "the agent has no mode in which it asks before it edits, and this attempt only reads: give it a workspace that it cannot write (acp.wrap)"
}

// mode chooses a session's mode if the actor names none; "" keeps the current mode.
// warning says that the agent has a mode that asks, but the session is in another one.
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
