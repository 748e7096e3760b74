package settingsfile

import (
	"fmt"
	"strings"
)

// Plain returns a text in JSON with comments as JSON of the same length: it writes spaces over
// comments and over the comma before a closing bracket, so that positions in the two agree. A
// text that is no JSON with comments stays no JSON.
func Plain(text []byte) []byte {
	out := make([]byte, len(text))
	copy(out, text)
	blank := func(begin, end int) {
		for i := begin; i < end; i++ {
			if out[i] != '\n' && out[i] != '\r' {
				out[i] = ' '
			}
		}
	}
	comma, value := -1, false // value is set behind a value
	for i := 0; i < len(text); {
		switch end := past(text, i); {
		case text[i] == '"':
			comma, value, i = -1, true, end
		case end > i+1:
			blank(i, end)
			i = end
		default:
			switch text[i] {
			case ' ', '\t', '\r', '\n':
			case ',':
				if comma = -1; value {
					comma = i
				}
				value = false
			case '}', ']':
				if comma >= 0 {
					out[comma] = ' '
				}
				comma, value = -1, true
			default:
				comma, value = -1, !strings.ContainsRune("{[:", rune(text[i]))
			}
			i++
		}
	}
	return out
}

// past returns the end of the string or the comment that begins at a position, or the next
// position. A string or a comment without an end is only its first byte, which is no JSON.
func past(text []byte, at int) int {
	rest := text[at:]
	switch {
	case rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return at + i + 1
			}
		}
	case len(rest) > 1 && rest[0] == '/' && rest[1] == '/':
		for i, c := range rest {
			if c == '\n' || c == '\r' {
				return at + i
			}
		}
		return len(text)
	case len(rest) > 1 && rest[0] == '/' && rest[1] == '*':
		for i := 3; i < len(rest); i++ {
			if rest[i] == '/' && rest[i-1] == '*' {
				return at + i + 1
			}
		}
	}
	return at + 1
}

// Commented is a member that is to be absent from a file in JSON with comments.
type Commented struct{ JSON }

// Strip implements [Item].
func (c *Commented) Strip(text []byte) ([]byte, error) {
	without, err := c.strip(text, Plain)
	if err != nil {
		return nil, err
	}
	// A comma behind the only member of an object would be alone now.
	if _, _, err := c.walk(Plain(without)); err != nil {
		return nil, fmt.Errorf("cannot take %s out: %w", c.place(), err)
	}
	return without, nil
}

// Whole is a file that holds our text and nothing else.
type Whole struct {
	Text string
	// Begins begins each text of ours, also of an earlier version.
	Begins string
}

// String shows the lines before the first comment, which differ from file to file, and counts the rest.
func (w *Whole) String() string {
	shown, rest, _ := strings.Cut(w.Text, "\n//")
	return fmt.Sprintf("%s\n… and %d lines", shown, strings.Count(rest, "\n"))
}

// Strays implements [Item].
func (w *Whole) Strays(text []byte) ([]string, error) {
	switch string(text) {
	case w.Text:
		return nil, nil
	case "":
		return []string{"it is missing"}, nil
	}
	return []string{"it is not as it was entered"}, nil
}

// Add implements [Item].
func (w *Whole) Add([]byte) ([]byte, error) { return []byte(w.Text), nil }

// Strip implements [Item]. It leaves a file of somebody else as it is.
func (w *Whole) Strip(text []byte) ([]byte, error) {
	if strings.HasPrefix(string(text), w.Begins) {
		return nil, nil
	}
	return text, nil
}
