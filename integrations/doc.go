// Package integrations holds what runs inside other programs so that their agents'
// messages are decided by the daemon. Its tests run each beside the built daemon.
package integrations

import (
	"embed"
	"io/fs"
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
