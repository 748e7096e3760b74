//go:build mutant

package mutant

import "os"

// Off reports whether a guard is switched off: the environment variable TEST_MUTANT
// names it. A name that begins with OCIPD_ would be a key of the configuration.
func Off(guard string) bool { return os.Getenv("TEST_MUTANT") == guard }
