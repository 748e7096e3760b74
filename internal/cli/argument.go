package cli

import "strings"

// Argument is an id for a command line, or the word ID if a shell could interpret the id
// otherwise. Agents choose ids, and people copy what they see.
func Argument(id string) string {
	switch {
	case PlainWord(id):
		return id
	case id == "" || id[0] == '-' || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`'\!`, r) }):
		return "ID"
	}
	return "'" + id + "'"
}

// PlainWord reports whether every shell takes a text as one plain word, and no command
// takes it for a flag.
func PlainWord(text string) bool {
	odd := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("._:@/-", r)
	}
	return text != "" && text[0] != '-' && !strings.ContainsFunc(text, odd)
}
