package integrate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// deciding are the events whose hooks can change a call of a tool, or allow it.
var deciding = []string{codexBefore, codexPrompt}

// foreignHooks names the hooks that can change a call after the gate has allowed it: all groups
// of the deciding events that ocipd did not enter. hooks maps events to groups.
func foreignHooks(hooks any) (list []string) {
	events, _ := hooks.(map[string]any)
	for _, event := range slices.Sorted(maps.Keys(events)) {
		if !slices.Contains(deciding, event) {
			continue
		}
		groups, ok := events[event].([]any)
		if !ok {
			groups = []any{events[event]}
		}
		for i, group := range groups {
			if text, err := json.Marshal(group); err != nil || !asksGate(text) && !asksNobody(text) {
				list = append(list, fmt.Sprintf("hooks.%s[%d] can change a call after the gate has allowed it", event, i))
			}
		}
	}
	return list
}

// asksGate reports whether the only hook of a group is the gate. Members of another type's hook
// beside its own do not make it so.
func asksGate(group jsontext.Value) bool {
	var g struct {
		Hooks []struct {
			Type string `json:"type"`
		} `json:"hooks"`
	}
	return isHook(group) && json.Unmarshal(group, &g) == nil && g.Hooks[0].Type == "mcp_tool"
}

func asksNobody(group jsontext.Value) bool {
	var g struct {
		Hooks []jsontext.Value `json:"hooks"`
	}
	return json.Unmarshal(group, &g) == nil && len(g.Hooks) == 0
}
