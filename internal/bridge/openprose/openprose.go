// Package openprose checks programs in OpenProse: Contract Markdown (*.prose.md) with scripts
// in its Execution and Delegation sections, and standalone scripts (*.prose). A model runs
// such a program, so only the checks made beforehand are reliable.
//
// It parses scripts by the published grammar of ProseScript, skill 0.15.0. It also checks
// the rules of the multi-agent protocol: see [Options].
package openprose

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBytes bounds a program.
const MaxBytes = 1 << 20

// maxFindings bounds the findings about one program.
const maxFindings = 200

// Levels of findings. A program with an error must not run.
const (
	Error   = "error"
	Warning = "warning"
)

// Finding is a fault in a program, with its position.
type Finding struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Level  string `json:"level"`
	Text   string `json:"text"`
}

func (f Finding) String() string {
	level := ""
	if f.Level == Warning {
		level = "warning: "
	}
	return fmt.Sprintf("%s:%d:%d: %s%s", f.File, f.Line, f.Column, level, f.Text)
}

// Options select the checks.
type Options struct {
	// LanguageOnly skips the protocol's rules: loops are bounded; choices on the phase have
	// phases as their options; tools are declared; only the orchestrator moves tasks,
	// closes circuits and runs effects.
	LanguageOnly bool
}

// checker checks one program.
type checker struct {
	Options
	file   string
	source string
	found  []Finding
	seen   map[Finding]bool
}

// Check checks a program. The extension of its name gives its kind.
func Check(file string, source []byte, o Options) []Finding {
	c := &checker{Options: o, file: file, source: string(bytes.TrimPrefix(source, []byte("\ufeff"))), seen: make(map[Finding]bool)}
	switch {
	case len(source) > MaxBytes:
		c.add(0, Error, "the program is larger than %d bytes", MaxBytes)
	case !utf8.Valid(source):
		i := 0
		for i < len(c.source) {
			r, n := utf8.DecodeRuneInString(c.source[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		c.add(i, Error, "this is no UTF-8")
	case strings.HasSuffix(file, ".prose"):
		c.standalone()
	default:
		c.contract()
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return c.found
}

// add adds a finding at a byte of the source.
func (c *checker) add(at int, level, format string, args ...any) {
	at = max(0, min(at, len(c.source)))
	before := c.source[:at]
	line := strings.LastIndexByte(before, '\n') + 1
	f := Finding{
		File: c.file, Line: strings.Count(before, "\n") + 1, Column: utf8.RuneCountInString(before[line:]) + 1, Level: level,
		Text: strings.ToValidUTF8(fmt.Sprintf(format, args...), "�"),
	}
	if c.seen[f] || len(c.found) >= maxFindings {
		return
	}
	c.seen[f] = true
	c.found = append(c.found, f)
}

// unit is a contract of a file, or a standalone script, with its scripts.
type unit struct {
	name, kind string
	at         int
	// vars are the inputs of its scripts; a caller may leave out those in optional. Open
	// units get further inputs.
	vars     map[string]bool
	optional map[string]bool
	// kept are the values that it maintains and reads.
	kept     map[string]bool
	open     bool
	declares bool
	// tools are the tools that it declares. slots are names that it may call besides functions.
	tools   map[string]bool
	scripts []script
	// texts are the passages in its other sections.
	texts []passage
}

// script is a script within the source.
type script struct {
	text string
	at   int
	// delegation is set for scripts of patterns.
	delegation bool
}

// passage is a text at a position of the source.
type passage struct {
	text string
	at   int
}

func newUnit(name string, at int) *unit {
	return &unit{name: name, at: at, vars: make(map[string]bool), optional: make(map[string]bool), kept: make(map[string]bool), tools: make(map[string]bool)}
}

// declaration is the comment with which a standalone script declares tools, because the
// language offers no other place.
var declaration = regexp.MustCompile(`(?m)^#[ \t]*tools:[ \t]*(.*)$`)

// standalone checks a script in its own file.
func (c *checker) standalone() {
	u := newUnit("", 0)
	for _, m := range declaration.FindAllStringSubmatchIndex(c.source, -1) {
		for name := range strings.SplitSeq(c.source[m[2]:m[3]], ",") {
			c.tool(u, strings.TrimSpace(name), m[2])
		}
	}
	u.scripts = []script{{text: c.source}}
	c.scripts(u, map[string]*unit{}, u.tools, true)
}

// kinds are the kinds of contracts.
func kinds() []string {
	return []string{"responsibility", "function", "gateway", "pattern", "test"}
}

var (
	bullet     = regexp.MustCompile("^[ \t]*[-*][ \t]+`?([A-Za-z_][A-Za-z0-9_-]*)`?[ \t]*(:|$|—|-)")
	maintained = regexp.MustCompile("^[ \t]*[-*][ \t]+`([A-Za-z_][A-Za-z0-9_-]*)`")
	toolRow    = regexp.MustCompile("^[ \t]*[-*][ \t]+`?([^` \t]+)`?[ \t]*(:[ \t].*)?$")
	heading    = regexp.MustCompile(`^(#{1,6})[ \t]+(.*?)[ \t]*#*$`)
)

// contract checks a file of Contract Markdown.
func (c *checker) contract() {
	file := newUnit("", 0)
	rest := c.frontMatter(file)
	units := []*unit{file}
	u, section := file, ""
	fence, fenceAt, isScript := "", 0, false
	for at := rest; at < len(c.source); {
		line, _, _ := strings.Cut(c.source[at:], "\n")
		next := at + len(line) + 1
		text := strings.TrimRight(line, " \t\r")
		body := strings.TrimLeft(text, " ")
		switch {
		case fence != "":
			if strings.HasPrefix(body, fence) && strings.Trim(body, fence[:1]) == "" {
				if isScript {
					u.scripts = append(u.scripts, script{text: c.source[fenceAt:at], at: fenceAt, delegation: section == "delegation"})
				}
				fence = ""
			}
		case strings.HasPrefix(body, "```"), strings.HasPrefix(body, "~~~"):
			fence = body[:len(body)-len(strings.TrimLeft(body, body[:1]))]
			info := strings.TrimSpace(body[len(fence):])
			isScript = info == "prose" && (section == "execution" || section == "delegation")
			fenceAt = min(next, len(c.source))
		default:
			if m := heading.FindStringSubmatch(text); m != nil {
				switch len(m[1]) {
				case 2:
					u, section = newUnit(m[2], at), ""
					u.kind = "function"
					units = append(units, u)
				case 3:
					section = strings.ToLower(m[2])
					u.declares = u.declares || section == "parameters" || section == "requires"
				case 4:
					switch section {
					case "requires":
						u.vars[strings.ToLower(m[2])] = true
					case "maintains":
						u.kept[strings.ToLower(m[2])] = true
					}
				}
				break
			}
			c.sectionLine(u, section, text, at)
		}
		at = next
	}
	if fence != "" {
		c.add(fenceAt-1, Error, "the block that begins here with %s does not end", fence)
	}
	c.units(units)
}

// frontMatter reads name and kind, and returns the position after them.
func (c *checker) frontMatter(u *unit) int {
	if !strings.HasPrefix(c.source, "---") {
		c.add(0, Error, "there is no front matter: a contract begins with a line of ---, then name: … and kind: …, then a line of ---")
		return 0
	}
	at := strings.IndexByte(c.source, '\n') + 1
	ended := false
	for at > 0 && at < len(c.source) {
		line, _, _ := strings.Cut(c.source[at:], "\n")
		begin := at
		at += len(line) + 1
		line = strings.TrimRight(line, " \t\r")
		if line == "---" {
			ended = true
			break
		}
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.Trim(strings.TrimSpace(value), `"'`); name {
		case "name":
			u.name = value
		case "kind":
			if u.kind = value; !slices.Contains(kinds(), value) {
				c.add(begin+len("kind: "), Error, "there is no kind %s: want %s", quote(value), strings.Join(kinds(), ", "))
			}
		}
	}
	switch {
	case !ended:
		c.add(0, Error, "the front matter does not end: a line of --- closes it")
		return len(c.source)
	case u.kind == "":
		c.add(0, Error, "the front matter has no kind: want %s", strings.Join(kinds(), ", "))
	}
	if u.name == "" {
		c.add(0, Error, "the front matter has no name")
	}
	return min(at, len(c.source))
}

// sectionLine reads the inputs of scripts from a line of a section.
func (c *checker) sectionLine(u *unit, section, line string, at int) {
	switch section {
	case "parameters", "requires", "slots", "config", "environment", "fixtures":
		if m := bullet.FindStringSubmatch(line); m != nil {
			u.vars[m[1]] = true
			u.optional[m[1]] = strings.Contains(line, "optional") || strings.Contains(line, "default")
		}
	case "maintains":
		// A render reads the truth that it maintains.
		if m := maintained.FindStringSubmatch(line); m != nil {
			u.kept[m[1]] = true
		}
	case "tools":
		if m := toolRow.FindStringSubmatchIndex(line); m != nil {
			c.tool(u, line[m[2]:m[3]], at+m[2])
		}
		return
	}
	if section != "shape" || !strings.Contains(line, "prohibited") {
		u.texts = append(u.texts, passage{text: line, at: at})
	}
}

// tool notes the declaration of a tool.
func (c *checker) tool(u *unit, name string, at int) {
	name = strings.TrimSuffix(name, ":")
	space, what, ok := strings.Cut(name, ":")
	switch {
	case name == "(none)" || name == "none" || name == "":
	case !ok || what == "" || strings.Contains(what, "/"):
		c.add(at, Error, "%s is no declaration of a tool: want cli:NAME or mcp:NAME", quote(name))
	case space != "cli" && space != "mcp":
		c.add(at, Error, "tools of %s cannot be declared: want cli:NAME or mcp:NAME", quote(space))
	default:
		u.tools[name] = true
	}
}

// units checks the contracts of a file.
func (c *checker) units(list []*unit) {
	byName := make(map[string]*unit)
	for _, u := range list[1:] {
		if byName[u.name] != nil {
			c.add(u.at, Error, "there is %s already", quote(u.name))
		}
		byName[u.name] = u
	}
	for _, u := range list {
		// A contract's declarations also apply to the functions that it calls.
		tools := make(map[string]bool)
		for _, from := range []*unit{list[0], u} {
			for name := range from.tools {
				tools[name] = true
			}
		}
		u.open = u.kind == "pattern" || !u.declares
		c.scripts(u, byName, tools, false)
		if !c.LanguageOnly {
			c.contractTexts(u, tools, u != list[0])
		}
	}
}

// scripts reads and checks the scripts of a unit.
func (c *checker) scripts(u *unit, functions map[string]*unit, tools map[string]bool, legacy bool) {
	for _, s := range u.scripts {
		p := &parser{legacy: legacy, scanner: scanner{src: s.text, found: func(at int, format string, args ...any) { c.add(s.at+at, Error, format, args...) }}}
		list := p.script()
		k := &program{checker: c, unit: u, at: s.at, functions: functions, tools: tools, legacy: legacy, open: u.open || s.delegation}
		k.check(list)
	}
}
