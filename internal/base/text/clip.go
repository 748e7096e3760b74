package text

import "strings"

// Clip makes a text UTF-8 of at most so many bytes. One that is longer ends with "…".
func Clip(s string, limit int) string {
	const mark = "…"
	if s = strings.ToValidUTF8(s, "\ufffd"); len(s) > limit {
		s = strings.ToValidUTF8(s[:max(0, limit-len(mark))], "") + mark
	}
	return s
}
