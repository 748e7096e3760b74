// Package docs holds what the program hands out of its pages.
package docs

import _ "embed" // for the verifier

// Verifier is verify.py, which checks a log, and the folder of a case, with nothing but
// Python's own library.
//
//go:embed verify.py
var Verifier []byte
