package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"go.yaml.in/yaml/v3"
)

// ReadMarkdown reads the fields of a spec under headings of their names, of any level
// and case. Items of lists are entries, and so is each paragraph outside of them. The
// title is the first heading of the first level that is no field's name, or "".
func ReadMarkdown(source []byte) (fields Fields, title string) {
	source = shallow(source)
	// Of blocks alone, and no more than their lines is read: what stands within a line takes
	// the library long where somebody means it to.
	root := parser.NewParser(parser.WithBlockParsers(parser.DefaultBlockParsers()...)).Parse(text.NewReader(source))
	var at *[]string
	goal := []string(nil)
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		heading, ok := n.(*ast.Heading)
		if !ok {
			if at != nil {
				*at = append(*at, entries(n, source)...)
			}
			continue
		}
		words := plain(heading, source)
		name, ok := fieldOf(words)
		at = nil
		switch {
		case !ok:
			if heading.Level == 1 && title == "" {
				title = words
			}
		case name == "goal":
			at = &goal
		default:
			i := slices.IndexFunc(lists(), func(l list) bool { return l.name == name })
			at = lists()[i].of(&fields)
		}
		if at != nil && *at == nil {
			*at = []string{}
		}
	}
	for _, l := range lists() {
		if e := l.of(&fields); len(*e) == 1 && nothing((*e)[0]) {
			*e = []string{}
		}
	}
	if goal != nil {
		// A heading over nothing is another fault than none.
		if fields.Goal = strings.Join(goal, "\n"); fields.Goal == "" {
			fields.Goal = " "
		}
	}
	return fields, title
}

// maxNested is how many marks of quotes and lists a line may begin with. The library takes long for
// deeper nesting, and nobody writes it.
const maxNested = 32

// marks are the marks of quotes and lists at a line's beginning, up to the last one that
// counts.
var marks = regexp.MustCompile(`^(?:[ \t]*(?:>|[-+*](?:[ \t]|$)|[0-9]{1,9}[.)](?:[ \t]|$))){` + strconv.Itoa(maxNested) + `}`)

// shallow makes text of parts that are nested too deep.
func shallow(source []byte) []byte {
	var whole []byte
	from := 0
	for at := 0; at < len(source); {
		end := at + 1 + bytes.IndexByte(source[at:], '\n')
		if end == at {
			end = len(source)
		}
		if m := marks.FindIndex(source[at:end]); m != nil {
			whole = append(append(whole, source[from:at+m[1]]...), '\\')
			from = at + m[1]
		}
		at = end
	}
	if whole == nil {
		return source
	}
	return append(whole, source[from:]...)
}

// Headings lists the headings that name a spec's fields.
func Headings() []string {
	return []string{"Goal", "Scope", "Non-goals", "Inputs", "Outputs", "Acceptance criteria", "Risks"}
}

// NamesField reports whether a heading names one of a spec's fields.
func NamesField(heading string) bool {
	_, ok := fieldOf(heading)
	return ok
}

// fieldOf is the field that a heading names, in one of the languages. A heading may have a number
// before the name, and the name in another language in brackets.
func fieldOf(heading string) (field string, ok bool) {
	heading = numbered.ReplaceAllString(canonical(heading), "")
	name, other, _ := strings.Cut(heading, "(")
	for _, s := range []string{heading, name, strings.TrimSuffix(strings.TrimSpace(other), ")")} {
		if field, ok = known().headings[headingKey(s)]; ok {
			return field, true
		}
	}
	return "", false
}

// numbered matches the number of a heading.
var numbered = regexp.MustCompile(`^\s*(?:[0-9]+(?:\.[0-9]+)*|[一二三四五六七八九十]+)[.)、]\s*`)

// nothing reports whether an entry says that there is none.
func nothing(entry string) bool {
	return known().none[strings.Trim(folded(canonical(entry)), ".-–—。 ")]
}

// headingKey is a heading as the languages have it.
func headingKey(s string) string {
	s = strings.Map(func(r rune) rune {
		switch r {
		case '-', '_', '–', '‑':
			return ' '
		case ':', '*', '#', '`', '.':
			return -1
		case '’':
			return '\''
		}
		return r
	}, s)
	return folded(s)
}

// entries are those of one block: a list's items, those within them too, or the block
// itself.
func entries(n ast.Node, source []byte) (list []string) {
	if n.Kind() == ast.KindList {
		for item := n.FirstChild(); item != nil; item = item.NextSibling() {
			first := true
			for part := item.FirstChild(); part != nil; part = part.NextSibling() {
				found := entries(part, source)
				if part.Kind() != ast.KindList && !first && len(list) > 0 {
					list[len(list)-1] += "\n" + strings.Join(found, "\n")
					continue
				}
				list = append(list, found...)
				first = false
			}
		}
		return list
	}
	if s := plain(n, source); s != "" {
		list = append(list, s)
	}
	return list
}

// plain is a block as its writer wrote it, lines joined.
func plain(n ast.Node, source []byte) string {
	if n.Type() == ast.TypeInline {
		return ""
	}
	var lines []string
	if segments := n.Lines(); segments != nil {
		for i := range segments.Len() {
			segment := segments.At(i)
			if line := strings.TrimSpace(string(segment.Value(source))); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if n.Kind() == ast.KindParagraph || n.Kind() == ast.KindTextBlock || n.Kind() == ast.KindHeading {
		return unticked(strings.Join(lines, " "))
	}
	if len(lines) == 0 {
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			if s := plain(c, source); s != "" {
				lines = append(lines, s)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// unticked takes the box of a task list from an entry.
func unticked(entry string) string {
	for _, box := range []string{"[ ] ", "[x] ", "[X] "} {
		if rest, ok := strings.CutPrefix(entry, box); ok {
			return rest
		}
	}
	return entry
}

// File is a spec file: the parameters of a new task in the form for an editor.
type File struct {
	// Front is the front matter, a mapping whose lines are the file's; nil if there is none.
	Front *yaml.Node
	// Markdown is the text after it.
	Markdown string
}

const fence = "---"

// errNoEnd says that the front matter has no last line.
var errNoEnd = errors.New("the front matter does not end: a line of --- closes it")

// ReadFile takes a spec file apart. One without front matter is Markdown as a whole.
func ReadFile(source []byte) (File, error) {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	first, rest, _ := bytes.Cut(source, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != fence {
		return File{Markdown: string(source)}, nil
	}
	var front []byte
	for {
		line, after, more := bytes.Cut(rest, []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == fence {
			root, err := readFront(front)
			return File{Markdown: string(after), Front: root}, err
		}
		if !more {
			return File{}, errNoEnd
		}
		front, rest = append(append(front, line...), '\n'), after
	}
}

func readFront(source []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var node yaml.Node
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // there is none, which is no fault
	case err != nil:
		return nil, moved(err)
	}
	root := node.Content[0]
	if err := placed(root); err != nil {
		return nil, err
	}
	// A line of ... ends YAML, and what follows it would be lost.
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: the front matter ends behind its first part: there is one, without lines of ... and %s", root.Line, fence)
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: the front matter has to name members, such as title: …", root.Line)
	}
	return root, nil
}

// placed counts lines as the file has them: the front matter begins on its second. It
// refuses references, which nobody writes there who does not mean harm.
func placed(n *yaml.Node) error {
	n.Line++
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return fmt.Errorf("line %d: references (& and *) are not taken", n.Line)
	}
	for _, c := range n.Content {
		if err := placed(c); err != nil {
			return err
		}
	}
	return nil
}

// moved is an error of the library with the file's line.
func moved(err error) error {
	line := 1 // the library names no line where it is the first
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(what, "line %d:", &line); scanErr == nil {
		_, what, _ = strings.Cut(what, ": ")
	}
	return fmt.Errorf("line %d: %s", line+1, what)
}
