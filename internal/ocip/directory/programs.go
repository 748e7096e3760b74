package directory

import "slices"

// Program is a program that runs agents.
type Program struct {
	// Name is its name for people, Command the command that starts it, and App the id of the app
	// that speaks for its agents.
	Name, Command, App string
}

// Programs are the known programs.
func Programs() []Program {
	return []Program{
		{"OpenClaw", "openclaw", "@openclaw/gateway"},
		{"Claude Code", "claude", "claude-code"},
		{"Codex", "codex", "codex"},
		{"Gemini CLI", "gemini", "gemini-cli"},
		{"Copilot CLI", "copilot", "copilot"},
		{"Cursor", "cursor-agent", "cursor"},
		{"OpenCode", "opencode", "opencode"},
		{"Goose", "goose", "goose"},
	}
}

// TitleOf returns the name for people of the program that a command starts, "" if it is not known.
func TitleOf(command string) string {
	list := Programs()
	if i := slices.IndexFunc(list, func(p Program) bool { return p.Command == command }); i >= 0 {
		return list[i].Name
	}
	return ""
}

// RuntimeOf returns the name of the program that runs an app's agents, "" if it is not known.
func RuntimeOf(app string) string {
	list := Programs()
	if i := slices.IndexFunc(list, func(p Program) bool { return p.App == app }); i >= 0 {
		return list[i].Name
	}
	return ""
}
