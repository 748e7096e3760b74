// Package configs holds the files that ship inside the daemon.
package configs

import _ "embed"

//go:embed ocipd.yaml
var defaultYAML string

// Default returns the commented default configuration, which people copy and
// edit. Reading it gives the same as having no file. Each call returns bytes of
// the caller's own.
func Default() []byte { return []byte(defaultYAML) }
