package text

import "strings"

// anyEnd ends a pattern, and no name.
const anyEnd = "*"

// Pattern returns the beginning that a pattern of session keys is for, and whether it is
// one. No name that an app gives may be one: a person who lists it would list every name
// that begins so.
func Pattern(s string) (beginning string, is bool) { return strings.CutSuffix(s, anyEnd) }

// IsPattern reports whether a text is a [Pattern].
func IsPattern(s string) bool { return strings.HasSuffix(s, anyEnd) }
