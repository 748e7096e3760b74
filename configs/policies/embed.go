// Package policies holds the default policy in Rego, with its tests.
//
// It serves where the operator names no policy of their own, and is the example
// to write one from: a folder of .rego files that replaces these as a whole.
package policies

import (
	"embed"
	"io/fs"
)

//go:embed *.rego
var files embed.FS

// FS returns the default policy's files, tests (_test.rego) included.
func FS() fs.FS { return files }
