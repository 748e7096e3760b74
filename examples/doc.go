// Package examples holds programs to copy, in several languages, that ask ocipd before
// they send, and the workflows of the protocol, which the program has inside too. Its tests
// run each of them beside the built daemon.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed lobster/ocip.lobster prose/ocip-protocol.prose prose/ocip-protocol.prose.md
var workflows embed.FS

// Workflows are the workflows for Lobster and OpenProse.
func Workflows() fs.FS { return workflows }
