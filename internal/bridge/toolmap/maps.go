// Package toolmap knows which tools of MCP servers send messages, to whom, and the
// permitted values of their other arguments. It reads the arguments of a call so strictly
// that a lenient reader cannot find others.
//
// The caller must call [Map.Fits] before [Map.Recipients] for every call, and again after
// any change to the arguments.
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
	"sync"

	"github.com/openclawos/ocipd/internal/base/durable"
	"go.yaml.in/yaml/v3"
)

// maxMap bounds the file of a map, in bytes.
const maxMap = 1 << 20

// Map says which tools of a server send messages, which bring some in, and which arguments they have.
type Map struct {
	// Name is the map's name in records.
	Name string `yaml:"name,omitempty"`
	// Servers are names by which the server identifies itself. Packages, Programs, Images
	// and Hosts identify a command line or an address that starts or reaches it.
	Servers  []string `yaml:"servers,omitempty,flow"`
	Packages []string `yaml:"packages,omitempty,flow"`
	Programs []string `yaml:"programs,omitempty,flow"`
	Images   []string `yaml:"images,omitempty,flow"`
	Hosts    []string `yaml:"hosts,omitempty,flow"`
	// Channel begins the session keys of recipients. Lower is set if the network ignores case.
	Channel string `yaml:"channel"`
	Lower   bool   `yaml:"lower,omitempty"`
	// Forms are regular expressions for whole values, by the argument's name. Never are
	// arguments that no tool may be called with.
	Forms map[string]string `yaml:"forms,omitempty"`
	Never []string          `yaml:"never,omitempty,flow"`
	Tools map[string]Tool   `yaml:"tools,omitempty"`
	// Reads are tools that bring in other people's content.
	Reads map[string]Read `yaml:"reads,omitempty"`
	// Calls are tools that do neither. Private are the arguments of reads and calls whose texts
	// nobody but the server reads, each a name or a tool's name, a dot and a name.
	Calls   []string `yaml:"calls,omitempty,flow"`
	Private []string `yaml:"private,omitempty,flow"`
	// Unmapped says how to treat a tool that is not in the map and seems to send messages:
	// gate, ask, refuse, or pass, which treats it like any other tool.
	Unmapped string `yaml:"unmapped,omitempty"`

	forms map[string]*regexp.Regexp
	// known is false for the map of an unknown server.
	known bool
	// base is set for the map of a server that only claims it: the map of the server without the claim.
	base *Map
}

// Tool is a tool that sends messages.
type Tool struct {
	// Title and Text are the arguments that people read; Text gets the disclosure.
	Title []string `yaml:"title,omitempty,flow"`
	Text  []string `yaml:"text,omitempty,flow"`
	// To describes the recipients. Each is one argument in braces, or a text with several
	// arguments; a part in brackets is dropped if its argument is missing.
	To []string `yaml:"to,omitempty,flow"`
	// With are its other permitted arguments, and Files those that name files.
	With  []string `yaml:"with,omitempty,flow"`
	Files []string `yaml:"files,omitempty,flow"`
	// Places are permitted arguments, or members within them (comments.path), that name files of the service,
	// which the server does not open.
	Places []string `yaml:"places,omitempty,flow"`

	// By is an argument that chooses the action of the tool. Cases are the actions by the argument's values,
	// each a tool of its own, and Calls the values with which the tool sends no message.
	By    string          `yaml:"by,omitempty"`
	Cases map[string]Tool `yaml:"cases,omitempty"`
	Calls []string        `yaml:"calls,omitempty,flow"`

	// Acts is set if the tool also does something for which the policy for tool calls is asked.
	Acts bool `yaml:"acts,omitempty"`

	// Guessed is set if no map has the tool. With Ask, a person decides about each of its messages.
	Guessed bool `yaml:"-"`
	Ask     bool `yaml:"-"`
	// Claimed is set where only the server itself says that the map is its own.
	Claimed bool `yaml:"-"`
	// by is the map by which the recipients of a guessed tool are made, nil for that which has guessed.
	by *Map
	// when is the argument, and is the value, that chose the case.
	when, is string
	// all are its arguments, once they are listed.
	all []string
}

// Treatments of a tool that is not in the map.
const (
	UnmappedGate   = "gate"
	UnmappedAsk    = "ask"
	UnmappedRefuse = "refuse"
	UnmappedPass   = "pass"
)

//go:embed servers.yaml
var builtIn []byte

// Servers returns the built-in maps by name. All callers share them, so nobody may change them.
var Servers = sync.OnceValues(func() (map[string]Map, error) {
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
})

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

// readMap reads a map from a file.
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

// Check validates a map, and prepares it for use.
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
		t := m.Tools[name]
		for value, one := range t.Cases {
			one.all = one.Arguments()
			t.Cases[value] = one
		}
		t.all = t.Arguments()
		m.Tools[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(m.Reads)) {
		r := m.Reads[name]
		if keyed(m.Tools, name) {
			return fmt.Errorf("reads.%s: the tool is in tools too", name)
		}
		if err := templates(r.From); err != nil {
			return fmt.Errorf("reads.%s.from: %w", name, err)
		}
	}
	for i, name := range m.Calls {
		if keyed(m.Reads, name) || keyed(m.Tools, name) || slices.Contains(m.Calls[:i], name) {
			return fmt.Errorf("calls: %s is in tools or reads, or twice", name)
		}
	}
	return nil
}

func (t Tool) check() error {
	if t.By != "" || len(t.Cases)+len(t.Calls) > 0 {
		return t.checkCases()
	}
	if len(t.Text)+len(t.Title)+len(t.With) == 0 || len(t.To) == 0 {
		return errors.New(": to is required, and text, title or with")
	}
	return t.checkArguments()
}

// checkCases checks a tool whose argument chooses what it does.
func (t Tool) checkCases() error {
	if t.By == "" || len(t.Cases) == 0 || len(t.Title)+len(t.Text)+len(t.To)+len(t.With)+len(t.Files)+len(t.Places) > 0 {
		return errors.New(": with cases, by is required, and all arguments stand in the cases")
	}
	for _, value := range slices.Sorted(maps.Keys(t.Cases)) {
		c := t.Cases[value]
		if len(c.To) == 0 || c.By != "" || len(c.Cases)+len(c.Calls) > 0 || slices.Contains(t.Calls, value) || slices.Contains(c.Arguments(), t.By) {
			return fmt.Errorf(".cases.%s: to is required, and neither cases nor the argument %s", value, t.By)
		}
		if err := c.checkArguments(); err != nil {
			return fmt.Errorf(".cases.%s%w", value, err)
		}
	}
	return nil
}

func (t Tool) checkArguments() error {
	if err := templates(t.To); err != nil {
		return fmt.Errorf(".to: %w", err)
	}
	seen := make(map[string]bool)
	for _, name := range slices.Concat(t.Title, t.Text, t.With, t.Files, t.placed()) {
		if seen[name] {
			return fmt.Errorf(": the argument %s is named twice", name)
		}
		seen[name] = true
	}
	for _, place := range t.Places {
		if in, _, within := strings.Cut(place, "."); within && !slices.Contains(t.With, in) {
			return fmt.Errorf(".places: the argument %s is not in with", in)
		}
	}
	return nil
}

// Arguments are all arguments that the tool may have.
func (t *Tool) Arguments() []string {
	if t.all != nil {
		return t.all
	}
	all := slices.Concat(t.Title, t.Text, argumentsOf(t.To), t.With, t.Files, t.placed())
	if t.By != "" {
		all = append(all, t.By)
	}
	for _, value := range slices.Sorted(maps.Keys(t.Cases)) {
		one := t.Cases[value]
		all = append(all, one.Arguments()...)
	}
	return all
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

// names are the names of all tools in the map.
func (m *Map) names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(m.Tools)), slices.Sorted(maps.Keys(m.Reads)), m.Calls)
}

// Knows reports whether the map describes a tool.
func (m *Map) Knows(tool string) bool {
	return keyed(m.Tools, tool) || keyed(m.Reads, tool) || slices.Contains(m.Calls, tool)
}

// ToolOf returns the tool for a call that sends messages, or nil.
func (m *Map) ToolOf(tool string, arguments []Member) (*Tool, error) {
	if m.base != nil {
		return m.claimedTool(tool, arguments)
	}
	if t, ok := m.Tools[tool]; ok {
		return t.of(tool, arguments)
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

// ReadOf returns how a tool's results are decided about, or nil if they are not: those of a tool in
// reads, and those of a tool that the server's map does not have, because it can read messages too.
func (m *Map) ReadOf(tool string) *Read {
	r, reads := m.Reads[tool]
	if reads || m.known && !m.Knows(tool) {
		return &r
	}
	return nil
}

// Shows reports whether a call that is decided as a tool call has a text that somebody besides the
// server can read: in every argument that the map does not call private, and in the name of a tool
// that it does not have. more are further parts of the call that its caller chose.
func (m *Map) Shows(tool string, arguments []Member, more ...Member) bool {
	confirmed := m.base == nil && m.Knows(tool)
	if confirmed {
		if len(m.Tools[tool].To) > 0 {
			arguments = nil // the texts are those of a message
		}
		arguments = slices.DeleteFunc(slices.Clone(arguments), func(a Member) bool {
			return slices.Contains(m.Private, a.Name) || slices.Contains(m.Private, tool+"."+a.Name)
		})
	}
	return !confirmed && wordy(tool) || SaysText(slices.Concat(arguments, more)...)
}

// Shown is the map's name in records, or "" if the server has no map.
func (m *Map) Shown() string {
	if !m.known {
		return ""
	}
	return m.Name
}

// argumentsOf are the arguments that determine recipients.
func argumentsOf(to []string) (list []string) {
	for _, one := range to {
		for _, part := range partPattern.FindAllStringSubmatch(one, -1) {
			list = append(list, part[1])
		}
	}
	return list
}

// Known reports whether the map was made for the server; it is false for the default without a map.
func (m *Map) Known() bool { return m.known }
