// Package yamltext explains faults in the text of a YAML file in words, and inserts a value
// without changing the rest.
package yamltext

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/api"
)

// MaxBytes bounds a text to parse or edit.
const MaxBytes = 1 << 20

// hiddenLineEnds are characters at which YAML ends a line, and thus a comment, although
// editors show them within a line.
//
// Source: YAML 1.1, line break characters.
func hiddenLineEnds() map[string]string {
	return map[string]string{
		"\u2028": "U+2028 (line separator)", "\u2029": "U+2029 (paragraph separator)", "\u0085": "U+0085 (next line)",
	}
}

// Hidden finds a character that may hide a key behind a comment. It returns its position,
// counted from 1, and a description, or "".
func Hidden(data []byte) (line, column int, what string) {
	at := -1
	first := func(i int, fault string) {
		if i >= 0 && (at < 0 || i < at) {
			at, what = i, fault
		}
	}
	if utf16(data) {
		return 1, 1, "this is UTF-16, want UTF-8"
	}
	for end, name := range hiddenLineEnds() {
		first(bytes.Index(data, []byte(end)), name+" ends a line here for YAML and for no editor, so that a comment could hide a key: take it out, or write it as an escape in double quotes")
	}
	for i := 0; i < len(data); i++ {
		next := bytes.IndexByte(data[i:], '\r')
		if next < 0 {
			break
		}
		if i += next; i+1 == len(data) || data[i+1] != '\n' {
			first(i, "a carriage return without a line feed ends a line here for YAML and for no editor, so that a comment could hide a key: take it out")
			break
		}
	}
	if at < 0 {
		return 0, 0, ""
	}
	start := bytes.LastIndexByte(data[:at], '\n') + 1
	return bytes.Count(data[:start], []byte("\n")) + 1, utf8.RuneCount(data[start:at]) + 1, what
}

// unquoted matches a value or a key that begins with a character which needs quotes.
var unquoted = regexp.MustCompile("^([ \t]*(?:-[ \t]+)*|.*?(?::[ \t]+|[,\\[{][ \t]*))([@`%*])([^ \t,\\]}#]*)")

// key is the last key before a place of a line.
var keyBefore = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*):[ \t]*$`)

// unquotedNear finds such a text in a line or a neighbouring one, because the parser
// reads ahead. The line is 0 if there is none.
func unquotedNear(data []byte, near int) (line, column int, what string) {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; n < near-1 || n > near+1 {
			continue
		}
		m := unquoted.FindSubmatch(bytes.TrimRight(text, "\r\n"))
		if m == nil {
			continue
		}
		value, subject := string(m[2])+string(m[3]), "this text"
		what = fmt.Sprintf("no text begins with %s unless it is in quotes", m[2])
		if k := keyBefore.FindSubmatch(m[1]); k != nil {
			subject = string(k[1]) + ":"
		}
		// Anything but an app's id may be secret, and is not shown.
		if id := strings.TrimSuffix(value, ":"); api.ValidAppID(id) {
			if subject == "this text" {
				subject = ""
			} else {
				subject += " "
			}
			if strings.HasSuffix(value, ":") {
				return n, len(m[1]) + 1, fmt.Sprintf("%s: write %s%q:", what, subject, id)
			}
			return n, len(m[1]) + 1, fmt.Sprintf("%s: write %s%q", what, subject, id)
		}
		return n, len(m[1]) + 1, fmt.Sprintf("%s: put what follows %s in quotes", what, subject)
	}
	return 0, 0, ""
}

// commented matches a line whose value begins with #, which YAML reads as a comment. In
// an intended comment, a blank follows the #.
var commented = regexp.MustCompile(`^[ \t]*(?:-[ \t]+)*(?:[^ \t#]+:)?[ \t]*#[^ \t#\r\n]`)

// Commented reports whether the value of a line, counted from 1, is a comment that may
// have been meant as the value.
func Commented(data []byte, line int) bool {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; n == line {
			return commented.Match(text)
		}
	}
	return false
}

// misplaced finds the first line whose indentation matches none of its possible
// parents. The line is 0 if there is none, or if the text has forms in which
// indentation has no meaning.
func misplaced(data []byte) (line, column int, what string) {
	// The columns of the open keys and hyphens, and whether a deeper line may follow
	// the line above.
	columns, opens := []int{0}, false
	for text := range bytes.Lines(data) {
		line++
		if blank(text) || bytes.HasPrefix(text, []byte("---")) {
			continue
		}
		rest := bytes.TrimRight(text, " \t\r\n")
		indent := len(rest) - len(bytes.TrimLeft(rest, " "))
		switch {
		case slices.Contains(columns, indent):
			columns = columns[:slices.Index(columns, indent)+1]
		case indent > columns[len(columns)-1] && opens:
			columns = append(columns, indent)
		default:
			known := make([]string, len(columns))
			for i, c := range columns {
				known[i] = strconv.Itoa(c)
			}
			return line, indent + 1, fmt.Sprintf("this line is indented by %s, and those that it may belong to by %s", spaces(indent), strings.Join(known, ", "))
		}
		// Hyphens begin items, whose keys follow them.
		body := rest[indent:]
		for bytes.HasPrefix(body, []byte("- ")) {
			body = bytes.TrimLeft(body[1:], " ")
			columns = append(columns, len(rest)-len(body))
		}
		if i := bytes.Index(body, []byte(" #")); i >= 0 {
			body = bytes.TrimRight(body[:i], " \t")
		}
		if bytes.ContainsAny(body, "|>[{\"'") && !bytes.HasSuffix(body, []byte(":")) && !closed(body) {
			return 0, 0, "" // it goes on below as it likes
		}
		opens = bytes.HasSuffix(body, []byte(":")) || len(body) == 1 && body[0] == '-'
	}
	return 0, 0, ""
}

// closed reports whether a line closes all its brackets and quotes.
func closed(body []byte) bool {
	count := func(c string) int { return bytes.Count(body, []byte(c)) }
	return count("[") == count("]") && count("{") == count("}") && count(`"`)%2 == 0 && count("'")%2 == 0 && !bytes.ContainsAny(body[len(body)-1:], "|>+-")
}

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return strconv.Itoa(n) + " spaces"
}

// blank reports whether a line has only white space and a comment.
func blank(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) == 0 || bytes.IndexByte([]byte("\r\n#"), line[0]) >= 0
}

// utf16 reports whether a text has a mark of UTF-16.
func utf16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

var (
	// unknownAnchor matches the name of an anchor in an error of the YAML library.
	unknownAnchor = regexp.MustCompile(`anchor '.*'`)
	yamlLine      = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
)

// Broken explains an error of the YAML library, with its position: the line and
// the column count from 1, and are 0 if unknown.
func Broken(data []byte, err error) (line, column int, what string) {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		m = []string{"", "", err.Error()}
	}
	// An error in the first line names no line.
	line, _ = strconv.Atoi(m[1])
	line = max(line, 1)
	what = m[2]
	switch at := notUTF8(data); {
	case at >= 0:
		start := bytes.LastIndexByte(data[:at], '\n') + 1
		line, column = bytes.Count(data[:start], []byte("\n"))+1, utf8.RuneCount(data[start:at])+1
		what = "this is not UTF-8"
	case strings.Contains(what, "cannot start any token") || strings.Contains(what, "tab character") || strings.Contains(what, "alphabetic or numeric"):
		if l, c := indentedByTab(data, line); l > 0 {
			line, column, what = l, c, "a tab indents this line, want spaces"
		} else if l, c, why := unquotedNear(data, line); l > 0 {
			line, column, what = l, c, why
		}
	case strings.Contains(what, "did not find expected") || strings.Contains(what, "mapping values are not allowed"):
		if l, c, why := misplaced(data); l > 0 {
			line, column, what = l, c, why
		} else if strings.Contains(what, "mapping values") {
			what = "a second colon with a blank behind it is on this line: put a text that has one in quotes"
		}
	case strings.Contains(what, "unexpected end of stream"):
		what = "a quote or a bracket that was opened is not closed by the end of the file"
	case unknownAnchor.MatchString(what):
		// Anything but an alias is a value, and may be secret.
		n := 0
		for text := range bytes.Lines(data) {
			if n++; column == 0 {
				if m := unquoted.FindSubmatch(bytes.TrimRight(text, "\r\n")); m != nil && m[2][0] == '*' {
					line, column = n, utf8.RuneCount(m[1])+1
				}
			}
		}
		what = unknownAnchor.ReplaceAllString(what, "anchor") + ": put a text that begins with * in quotes"
	}
	return line, column, what
}

// notUTF8 returns the position of the first byte that is not UTF-8, or -1. Marked
// UTF-16 is valid YAML too.
func notUTF8(data []byte) int {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// indentedByTab finds the tab that indents a line or a neighbouring one, because the
// parser reads ahead. Both count from 1, and are 0 if there is none.
func indentedByTab(data []byte, near int) (line, column int) {
	n := 0
	for text := range bytes.Lines(data) {
		if n++; n < near-1 || n > near+1 {
			continue
		}
		blank := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if i := bytes.IndexByte(blank, '\t'); i >= 0 && len(bytes.TrimSpace(text)) > 0 {
			return n, i + 1
		}
	}
	return 0, 0
}
