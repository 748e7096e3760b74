// Package integrations holds what runs inside other programs so that their agents'
// messages are decided by the daemon. Its tests run each beside the built daemon.
package integrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-json-experiment/json"
)

//go:embed openclaw/index.js openclaw/lib openclaw/openclaw.plugin.json openclaw/package.json
var files embed.FS

// OpenClaw are the files of the plugin for OpenClaw, as they are installed.
func OpenClaw() fs.FS {
	plugin, err := fs.Sub(files, "openclaw")
	if err != nil {
		panic("integrations: " + err.Error()) // the name is valid
	}
	return plugin
}

//go:embed opencode/ocipd.js
var openCode string

// OpenCode is the plugin for opencode, which asks the gate of a command. proxied are the words that
// begin the command of an MCP server behind the proxy, and served those of a server of the daemon
// itself.
func OpenCode(gate, proxied, served []string) (string, error) {
	var text strings.Builder
	for _, one := range []struct {
		name  string
		words []string
	}{{"gate", gate}, {"proxied", proxied}, {"served", served}} {
		list, err := json.Marshal(one.words)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "const %s = %s\n", one.name, list)
	}
	return text.String() + openCode, nil
}
