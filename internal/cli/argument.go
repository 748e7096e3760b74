package cli

import "strings"

// Argument is an id as it is given to a command in a shell, or the word ID where
// a shell could make something else of it: agents choose ids, and people copy
// what they are shown.
func Argument(id string) string {
	switch {
	case PlainWord(id):
		return id
	case id == "" || id[0] == '-' || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`'\!`, r) }):
		return "ID"
	}
	return "'" + id + "'"
}

// PlainWord reports whether every shell takes a text as the word it is, and no
// command takes it for a flag.
func PlainWord(text string) bool {
	odd := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("._:@/-", r)
	}
	return text != "" && text[0] != '-' && !strings.ContainsFunc(text, odd)
}
