package text

import "strings"

// Clip makes a text valid UTF-8 of at most that many bytes. A shortened text ends with "…".
func Clip(s string, limit int) string {
	const mark = "…"
	if s = strings.ToValidUTF8(s, "\ufffd"); len(s) > limit {
		s = strings.ToValidUTF8(s[:max(0, limit-len(mark))], "") + mark
	}
	return s
}
