package kernel

import (
	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/kernel/exchangehints"
	"github.com/openclawos/ocipd/internal/kernel/hooks"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// passages lists every string of a message's metadata that would leave with it. Known reports the
// members that the daemon knows itself: addresses that were part of the decision.
func passages(metadata api.Object, known func(member string) bool) []ocip.Passage {
	list, _ := media.Read(metadata, func(member string) bool { return exchangehints.IsOwn(member) || known(member) })
	return list
}

// mapped names the map that the proxy used to read a message, "guess" if it has none for the tool.
func mapped(metadata api.Object) (name string, guessed bool) {
	raw, ok := metadata["mcp"]
	if !ok {
		return "", false
	}
	var said struct {
		Map   string `json:"map"`
		Guess bool   `json:"guess"`
		// Claimed is set if only the server itself says that the map is its own.
		Claimed bool `json:"claimed"`
	}
	if json.Unmarshal(raw, &said) != nil {
		return "", false
	}
	if said.Guess {
		return "guess", true
	}
	return ocip.Summarize(said.Map), said.Claimed
}

// lookAtTool looks for secrets in a tool call. An agent chooses the tool's name and the request's id as
// freely as the arguments, so everything counts except what the runtime says of itself.
func lookAtTool(rules *ocip.Rules) func(data api.Object, most ocip.Level) (found []ocip.Detection, secret string) {
	return func(data api.Object, most ocip.Level) ([]ocip.Detection, string) {
		return rules.Look(passages(data, hooks.OfRuntime), most)
	}
}

// asksAboutGuess reports whether a person must be asked because the proxy had no map for the tool,
// and guessed receiver and text, or has one by the server's own word alone. It only applies if the
// agent's tool rules are enforced.
func (m *outgoing) asksAboutGuess() bool {
	_, guessed := mapped(m.metadata)
	return guessed && m.sender.Tools == directory.ToolsEnforce
}
