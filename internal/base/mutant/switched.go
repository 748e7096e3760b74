//go:build mutant

package mutant

import "os"

// Off reports whether a guard is switched off: the environment variable OCIPD_MUTANT
// names it.
func Off(guard string) bool { return os.Getenv("OCIPD_MUTANT") == guard }
