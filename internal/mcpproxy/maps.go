package mcpproxy

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Map says which tools of a server send messages.
type Map struct {
	// Name names the server on record.
	Name string `yaml:"name,omitempty"`
	// Packages are those by which a command line names the server.
	Packages []string `yaml:"packages,omitempty"`
	// Channel begins the session keys of recipients.
	Channel string          `yaml:"channel"`
	Tools   map[string]Tool `yaml:"tools,omitempty"`
	// Reads are tools that bring in what others have written.
	Reads map[string]Read `yaml:"reads,omitempty"`
	// Unmapped is what becomes of a tool that is not in the map and looks as if it sent
	// messages: gate, ask, refuse or pass.
	Unmapped string `yaml:"unmapped,omitempty"`
}

// Tool is one that sends messages.
type Tool struct {
	// Title and Text are the arguments that people read; Text gets the disclosure.
	Title []string `yaml:"title,omitempty,flow"`
	Text  []string `yaml:"text,flow"`
	// To makes the recipients: an argument in braces, or a text with several.
	To []string `yaml:"to,flow"`

	// ask has a person asked about each of its messages.
	ask bool
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

// MapOf returns the map for a command line: that of a file, or of a name that comes with the
// program, else the one whose package the command line names, else one without tools.
func MapOf(given string, command []string) (*Map, error) {
	servers, err := Servers()
	if err != nil {
		return nil, err
	}
	if m, ok := servers[given]; ok {
		return &m, nil
	}
	if given != "" {
		text, err := os.ReadFile(given)
		if err != nil {
			return nil, fmt.Errorf("cannot read the map: %w; those that come with ocipd are %s", err, strings.Join(slices.Sorted(maps.Keys(servers)), ", "))
		}
		m := &Map{Name: nameOf(command)}
		if err := decodeYAML(text, m); err != nil {
			return nil, fmt.Errorf("cannot read the map %s: %w", given, err)
		}
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("cannot use the map %s: %w", given, err)
		}
		return m, nil
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		m := servers[name]
		if slices.ContainsFunc(m.Packages, func(p string) bool {
			return slices.ContainsFunc(command, func(arg string) bool { return names(arg, p) })
		}) {
			return &m, nil
		}
	}
	m := &Map{Name: nameOf(command)}
	m.Channel = m.Name
	return m, m.Check()
}

// names reports whether an argument names a package: by itself, with a version, or as a
// path in a folder of packages.
func names(arg, pkg string) bool {
	return arg == pkg || strings.HasPrefix(arg, pkg+"@") || strings.Contains(filepath.ToSlash(arg)+"/", "/node_modules/"+pkg+"/")
}

var wordPattern = regexp.MustCompile(`[^a-z0-9.-]+`)

// nameOf makes a name of a command line that no map is for.
func nameOf(command []string) string {
	for _, arg := range slices.Backward(command) {
		if !strings.HasPrefix(arg, "-") {
			if name := strings.Trim(wordPattern.ReplaceAllString(strings.ToLower(strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg))), "-"), "-."); name != "" {
				return "mcp-" + name
			}
		}
	}
	return "mcp-server"
}

var (
	channelPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	partPattern    = regexp.MustCompile(`\{([^{}]+)\}`)
)

// Check reports what is wrong with a map.
func (m *Map) Check() error {
	switch {
	case !channelPattern.MatchString(m.Channel) || m.Channel == "agent":
		return fmt.Errorf("channel: %q is no name of a channel: small letters, digits, dots and dashes, and not agent", m.Channel)
	case m.Unmapped != "" && !slices.Contains([]string{UnmappedGate, UnmappedAsk, UnmappedRefuse, UnmappedPass}, m.Unmapped):
		return fmt.Errorf("unmapped: %q is not gate, ask, refuse or pass", m.Unmapped)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		t := m.Tools[name]
		if len(t.Text) == 0 || len(t.To) == 0 {
			return fmt.Errorf("tools.%s: text and to are required", name)
		}
		if err := templates(t.To); err != nil {
			return fmt.Errorf("tools.%s.to: %w", name, err)
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
	return nil
}

func templates(list []string) error {
	for _, one := range list {
		if !partPattern.MatchString(one) || strings.ContainsAny(partPattern.ReplaceAllString(one, ""), "{}") {
			return fmt.Errorf("%q names no argument in braces", one)
		}
	}
	return nil
}

// errUnclear is why a call cannot be decided about.
var errUnclear = errors.New("cannot tell what is sent to whom")

func unclear(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnclear}, args...)...)
}

// recipients are the sessions that a call of a tool sends to.
func (m *Map) recipients(t *Tool, arguments []member) (keys []string, err error) {
	add := func(value string) (err error) {
		if m.Channel != emailChannel && strings.ContainsAny(value, several) {
			return unclear("%q could be several: name each by itself, in a list", value)
		}
		keys, err = m.appendKeys(keys, value)
		return err
	}
	for _, to := range t.To {
		parts := partPattern.FindAllStringSubmatch(to, -1)
		if len(parts) == 1 && parts[0][0] == to {
			given, ok := find(arguments, parts[0][1])
			if !ok || given.value.Kind() == 'n' {
				continue
			}
			values, err := each(&given)
			if err != nil {
				return nil, err
			}
			for _, v := range values {
				if err := add(v); err != nil {
					return nil, err
				}
			}
			continue
		}
		// What parts them in the key, or in an address of the web that a server makes of them,
		// stands in none of them: the server would come to somebody else.
		parting := partPattern.ReplaceAllString(to, "") + `/?#%\`
		// In one pass: what a value has in braces is no argument.
		key := partPattern.ReplaceAllStringFunc(to, func(part string) string {
			given, ok := find(arguments, part[1:len(part)-1])
			if !ok {
				err = cmp.Or(err, unclear("the argument %s is missing", part[1:len(part)-1]))
				return ""
			}
			value, wrong := scalar(&given, given.value)
			if strings.ContainsAny(value, parting) || value == "." || value == ".." {
				wrong = cmp.Or(wrong, unclear("the argument %s is %q, which is more than one name", given.name, value))
			}
			err = cmp.Or(err, wrong)
			return value
		})
		if err != nil {
			return nil, err
		}
		if err := add(key); err != nil {
			return nil, err
		}
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) == 0 {
		return nil, unclear("it names no recipient")
	}
	return keys, nil
}

// appendKeys adds the session keys of a recipient, or a sender, of the map's channel.
func (m *Map) appendKeys(keys []string, value string) ([]string, error) {
	if m.Channel != emailChannel {
		return append(keys, m.Channel+":"+value), nil
	}
	list, err := mail.ParseAddressList(value)
	if err != nil {
		return keys, unclear("%q is no list of addresses", value)
	}
	if !plainAddresses.MatchString(value) {
		return keys, unclear("%q is written in a way in which programs find other addresses: write NAME <ADDRESS>, without quotes, comments and groups", value)
	}
	for _, a := range list {
		keys = append(keys, m.Channel+":"+strings.ToLower(a.Address))
	}
	return keys, nil
}

// emailChannel is the channel whose recipients are addresses.
const emailChannel = "email"

// several part the names of a list, for programs that take one as a text.
const several = ",;\n\r\t"

// plainAddresses is a list of addresses that all programs read in the same way: names have
// nothing in them that an address, a comment or a group begins or ends with, and nor have what
// stands before the @.
var plainAddresses = regexp.MustCompile(`^` + oneAddress + `(?:,` + oneAddress + `)*$`)

const (
	oneAddress  = `\s*(?:` + bareAddress + `|` + addressName + `\s*<` + bareAddress + `>)\s*`
	bareAddress = `[\pL\pM\pN!#$&'*+/=?^_{|}~.-]+@[\pL\pM\pN.-]+`
	addressName = `(?:"[^"@<>\\(),;:]*(?:, ?[^"@<>\\(),;:]*)*"|[^"@<>\\(),;:\[\]]*)`
)

// upwards is what leads out of a folder, also where it is made a part of an address of the web:
// there it leads to somebody else.
var upwards = regexp.MustCompile(`(?i)(?:^|[/\\]|%2f|%5c)(?:\.|%2e){2}(?:$|[/\\?#]|%2f|%5c|%3f|%23)`)

// leadsUpwards reports whether a text in an argument does.
func leadsUpwards(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return false // it was read before: it has ended
		}
		if t.Kind() == '"' && upwards.MatchString(t.String()) {
			return true
		}
	}
}

func scalar(m *member, v jsontext.Value) (string, error) {
	value := string(v)
	switch v.Kind() {
	case '"':
		value, _ = text(v)
	case '0':
		// 1e3, 1000.0 and 1000 are one number, and behind 2^53 some are others for many programs.
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(n, 10) != value || n < -exact || n > exact {
			return "", unclear("the argument %s is %s: write it as a whole number, or in quotes", m.name, value)
		}
	default:
		return "", unclear("the argument %s is neither a text nor a number", m.name)
	}
	if value == "" || strings.TrimSpace(value) != value || upwards.MatchString(value) {
		return "", unclear("the argument %s is %q", m.name, value)
	}
	return value, nil
}

// each is the values of an argument that is one or a list.
func each(m *member) (values []string, err error) {
	list := []jsontext.Value{m.value}
	if m.value.Kind() == '[' {
		if err := json.Unmarshal(m.value, &list); err != nil {
			return nil, unclear("the argument %s cannot be read", m.name)
		}
	}
	for _, v := range list {
		value, err := scalar(m, v)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// Arguments that hold texts and recipients by their usual names.
var (
	titleNames = []string{"subject", "title"}
	textNames  = []string{"text", "message", "body", "content", "html", "htmlBody", "msg", "comment", "messageText", "note"}
	toNames    = []string{
		"to", "cc", "bcc", "recipient", "recipients", "channel", "channelId", "channelName", "chat", "chatId", "conversation", "conversationId", "room", "roomId",
		"threadId", "userId", "user", "username", "email", "emails", "phone", "phoneNumber", "number", "target", "issueNumber", "session", "address", "jid",
		"receiver", "receivers", "recipientId", "recipientIds", "toUser", "toEmail", "pullNumber", "issueId", "issueKey", "spaceId", "groupId", "topicId", "postId", "channelIds", "chatGuid",
	}
)

func among(list []string, name string) bool {
	return slices.ContainsFunc(list, func(usual string) bool { return folded(usual) == folded(name) })
}

// Guess makes what can be known of a tool from the names of its arguments, nil where it
// does not look as if it sent messages.
func Guess(arguments []string) *Tool {
	var t Tool
	for _, name := range arguments {
		switch {
		case among(titleNames, name):
			t.Title = append(t.Title, name)
		case among(textNames, name):
			t.Text = append(t.Text, name)
		case among(toNames, name):
			t.To = append(t.To, "{"+name+"}")
		}
	}
	if len(t.Text) == 0 {
		t.Text, t.Title = t.Title, nil
	}
	if len(t.Text) == 0 || len(t.To) == 0 {
		return nil
	}
	slices.Sort(t.Title)
	slices.Sort(t.Text)
	slices.Sort(t.To)
	return &t
}

// toolOf is what a call is taken for: nil for what passes.
func (m *Map) toolOf(c *toolCall) (*Tool, error) {
	if t, ok := m.Tools[c.tool]; ok {
		return &t, nil
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(m.Tools)), slices.Collect(maps.Keys(m.Reads))) {
		if name != c.tool && bare(name) == bare(c.tool) {
			return nil, unclear("the tool %q is not %q", c.tool, name)
		}
	}
	if _, reads := m.Reads[c.tool]; reads || m.Unmapped == UnmappedPass {
		return nil, nil
	}
	var given []string
	for _, a := range c.arguments {
		if k := a.value.Kind(); k == '"' || k == '0' || k == '[' || k == '{' {
			given = append(given, a.name)
		}
	}
	t := Guess(given)
	if t != nil && m.Unmapped == UnmappedRefuse {
		return nil, unclear("the tool %s looks as if it sent messages and is not in the map", c.tool)
	}
	if t != nil {
		t.ask = m.Unmapped == UnmappedAsk
	}
	return t, nil
}
