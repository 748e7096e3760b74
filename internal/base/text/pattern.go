package text

import "strings"

// anyEnd ends a pattern, but never a name.
const anyEnd = "*"

// Pattern reports whether a text is a pattern of session keys, and returns the beginning that the
// keys have. A name from an app must not be a pattern: a person who lists it would get every name
// with that beginning.
func Pattern(s string) (beginning string, is bool) { return strings.CutSuffix(s, anyEnd) }

// IsPattern reports whether a text is a [Pattern].
func IsPattern(s string) bool { return strings.HasSuffix(s, anyEnd) }
