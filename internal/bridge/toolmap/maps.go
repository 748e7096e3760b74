// Package toolmap knows of MCP servers which of their tools send messages, to whom, and what else
// a tool may be called with. What it says goes by the arguments of a call, read so that nobody who
// reads them leniently finds others.
//
// The caller's duty: [Map.Fits] before [Map.Recipients], for every call, and again after anybody has
// changed its arguments.
package toolmap

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/durable"
	"go.yaml.in/yaml/v3"
)

// maxMap bounds the file of a map, in bytes.
const maxMap = 1 << 20

// Map says which tools of a server send messages, which bring some in, and what arguments
// they have.
type Map struct {
	// Name names the map on record.
	Name string `yaml:"name,omitempty"`
	// Servers are the names by which the server calls itself; Packages, Programs, Images and
	// Hosts are those of a command line or an address that starts or reaches it.
	Servers  []string `yaml:"servers,omitempty,flow"`
	Packages []string `yaml:"packages,omitempty,flow"`
	Programs []string `yaml:"programs,omitempty,flow"`
	Images   []string `yaml:"images,omitempty,flow"`
	Hosts    []string `yaml:"hosts,omitempty,flow"`
	// Channel begins the session keys of recipients. Lower is set where the network takes
	// capital letters for small ones.
	Channel string `yaml:"channel"`
	Lower   bool   `yaml:"lower,omitempty"`
	// Forms are regular expressions that all of a value matches, by the argument's name. Never
	// are names of arguments with which no tool is called.
	Forms map[string]string `yaml:"forms,omitempty"`
	Never []string          `yaml:"never,omitempty,flow"`
	Tools map[string]Tool   `yaml:"tools,omitempty"`
	// Reads are tools that bring in what others have written.
	Reads map[string]Read `yaml:"reads,omitempty"`
	// Calls are tools that do neither.
	Calls []string `yaml:"calls,omitempty,flow"`
	// Unmapped is what becomes of a tool that is not in the map and looks as if it sent
	// messages: gate, ask, refuse or pass, which decides about it as about any other tool.
	Unmapped string `yaml:"unmapped,omitempty"`

	forms map[string]*regexp.Regexp
	// known is unset for the map of a server that there is none for.
	known bool
}

// Tool is one that sends messages.
type Tool struct {
	// Title and Text are the arguments that people read; Text gets the disclosure.
	Title []string `yaml:"title,omitempty,flow"`
	Text  []string `yaml:"text,flow"`
	// To makes the recipients: an argument in braces, or a text with several, of which a part
	// in brackets is left out where an argument of it is missing.
	To []string `yaml:"to,flow"`
	// With are the other arguments that it may have, and Files those that name files.
	With  []string `yaml:"with,omitempty,flow"`
	Files []string `yaml:"files,omitempty,flow"`

	// Guessed is set where no map has the tool, and Ask has a person asked about each of its
	// messages.
	Guessed bool `yaml:"-"`
	Ask     bool `yaml:"-"`
}

// What becomes of a tool that is not in the map.
const (
	UnmappedGate   = "gate"
	UnmappedAsk    = "ask"
	UnmappedRefuse = "refuse"
	UnmappedPass   = "pass"
)

//go:embed servers.yaml
var builtIn []byte

// Servers are the maps that come with the program, by name.
func Servers() (map[string]Map, error) {
	var all map[string]Map
	if err := decodeYAML(builtIn, &all); err != nil {
		return nil, err
	}
	for name, m := range all {
		m.Name = name
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m.known = true
		all[name] = m
	}
	return all, nil
}

func decodeYAML(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("it holds more than one document")
	}
	return nil
}

// readMap reads the map of a file.
func readMap(file, name string) (*Map, error) {
	text, err := durable.ReadUpTo(file, maxMap)
	if err != nil {
		return nil, fmt.Errorf("cannot read the map: %w", err)
	}
	m := &Map{Name: name, known: true}
	if err := decodeYAML(text, m); err != nil {
		return nil, fmt.Errorf("cannot read the map %s: %w", file, err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("cannot use the map %s: %w", file, err)
	}
	return m, nil
}

var (
	channelPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	partPattern    = regexp.MustCompile(`\{([^{}]+)\}`)
	optional       = regexp.MustCompile(`\[([^\[\]]*)\]`)
)

// Check reports what is wrong with a map, and prepares it for use.
func (m *Map) Check() error {
	switch {
	case !channelPattern.MatchString(m.Channel) || m.Channel == "agent":
		return fmt.Errorf("channel: %q is no name of a channel: small letters, digits, dots and dashes, and not agent", m.Channel)
	case m.Unmapped != "" && !slices.Contains([]string{UnmappedGate, UnmappedAsk, UnmappedRefuse, UnmappedPass}, m.Unmapped):
		return fmt.Errorf("unmapped: %q is not gate, ask, refuse or pass", m.Unmapped)
	}
	m.forms = make(map[string]*regexp.Regexp)
	for name, form := range m.Forms {
		var err error
		if m.forms[name], err = regexp.Compile("^(?:" + form + ")$"); err != nil {
			return fmt.Errorf("forms.%s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		if err := m.Tools[name].check(); err != nil {
			return fmt.Errorf("tools.%s%w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Reads)) {
		r := m.Reads[name]
		if _, sends := m.Tools[name]; sends || len(r.From)+len(r.Lines) == 0 {
			return fmt.Errorf("reads.%s: from or lines is required, and the tool is not one that sends", name)
		}
		if err := templates(r.From); err != nil {
			return fmt.Errorf("reads.%s.from: %w", name, err)
		}
	}
	for _, name := range m.Calls {
		if _, reads := m.Reads[name]; reads || keyed(m.Tools, name) {
			return fmt.Errorf("calls: %s is in tools or reads, or twice", name)
		}
	}
	return nil
}

func (t Tool) check() error {
	if len(t.Text) == 0 || len(t.To) == 0 {
		return errors.New(": text and to are required")
	}
	if err := templates(t.To); err != nil {
		return fmt.Errorf(".to: %w", err)
	}
	seen := make(map[string]bool)
	for _, name := range slices.Concat(t.Title, t.Text, t.With, t.Files) {
		if seen[name] {
			return fmt.Errorf(": the argument %s is named twice", name)
		}
		seen[name] = true
	}
	return nil
}

// Arguments are all that the tool may have.
func (t *Tool) Arguments() []string {
	return slices.Concat(t.Title, t.Text, argumentsOf(t.To), t.With, t.Files)
}

func templates(list []string) error {
	for _, one := range list {
		plain := optional.ReplaceAllString(one, "$1")
		if !partPattern.MatchString(plain) || strings.ContainsAny(partPattern.ReplaceAllString(plain, ""), "{}[]") {
			return fmt.Errorf("%q names no argument in braces", one)
		}
	}
	return nil
}

// keyed reports whether a map has a key.
func keyed[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// names are those of all tools that the map knows.
func (m *Map) names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(m.Tools)), slices.Sorted(maps.Keys(m.Reads)), m.Calls)
}

// Knows reports whether the map says what a tool does.
func (m *Map) Knows(tool string) bool {
	return keyed(m.Tools, tool) || keyed(m.Reads, tool) || slices.Contains(m.Calls, tool)
}

// ToolOf is what a call is taken for: nil for one that sends no message.
func (m *Map) ToolOf(tool string, arguments []Member) (*Tool, error) {
	if t, ok := m.Tools[tool]; ok {
		return &t, nil
	}
	if m.Knows(tool) {
		return nil, nil
	}
	for _, name := range m.names() {
		if Bare(name) == Bare(tool) {
			return nil, Unclear("the tool %q is not %q", tool, name)
		}
	}
	if m.Unmapped == UnmappedPass {
		return nil, nil
	}
	var given []string
	for _, a := range arguments {
		if k := a.Value.Kind(); k == '"' || k == '0' || k == '[' || k == '{' {
			given = append(given, a.Name)
		}
	}
	t := Guess(given)
	if t != nil && m.Unmapped == UnmappedRefuse {
		return nil, Unclear("the tool %s looks as if it sent messages and is not in the map", tool)
	}
	if t != nil {
		t.Ask = m.Unmapped == UnmappedAsk
	}
	return t, nil
}

// Shown is the map on record: its name, "" where there is none for the server.
func (m *Map) Shown() string {
	if !m.known {
		return ""
	}
	return m.Name
}

// argumentsOf are the arguments that make recipients.
func argumentsOf(to []string) (list []string) {
	for _, one := range to {
		for _, part := range partPattern.FindAllStringSubmatch(one, -1) {
			list = append(list, part[1])
		}
	}
	return list
}

// Known reports whether the map is one for the server, and not what there is without one.
func (m *Map) Known() bool { return m.known }
