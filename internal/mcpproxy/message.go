package mcpproxy

import (
	"hash/crc32"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// message is what a call of a tool says, as the daemon decides about it: the text is the
// content, and what else goes along stands in metadata.mcp, from which the call can be
// made again.
type message struct {
	to      []string
	content string
	call    kept
	// ask has a person asked, whatever it says.
	ask bool
}

// kept is metadata.mcp.
type kept struct {
	Tool string `json:"tool"`
	// Arguments are all but the texts.
	Arguments jsontext.Value `json:"arguments"`
	Parts     []part         `json:"parts"`
	// Sum tells whether the texts are as they were.
	Sum uint32 `json:"sum"`
	// Answers are the client's to what the server has asked it about the call.
	Answers jsontext.Value `json:"inputResponses,omitzero"`
}

// part is one text within the content.
type part struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// Title texts get no disclosure.
	Title bool `json:"title,omitzero"`
}

// maxRecipients bounds the decisions that one call takes.
const maxRecipients = 100

// between stands between the texts of a call.
const between = "\n\n"

// read makes the message of a call.
func (m *Map) read(t *Tool, c *toolCall) (*message, error) {
	if err := exactly(c.arguments, append(append(append([]string{}, t.Title...), t.Text...), argumentsOf(t.To)...)...); err != nil {
		return nil, err
	}
	out := &message{call: kept{Tool: c.tool, Answers: c.answers}, ask: t.ask}
	var err error
	if out.to, err = m.recipients(t, c.arguments); err != nil {
		return nil, err
	}
	if len(out.to) > maxRecipients {
		return nil, unclear("it is to %d recipients, and more than %d are too many: write to fewer", len(out.to), maxRecipients)
	}
	texts := make(map[string]bool)
	var content []string
	take := func(name string, title bool) error {
		given, ok := find(c.arguments, name)
		if !ok || given.value.Kind() == 'n' {
			return nil
		}
		said, ok := text(given.value)
		if !ok {
			return unclear("the argument %s is no text", name)
		}
		texts[name] = true
		content = append(content, said)
		out.call.Parts = append(out.call.Parts, part{Name: name, Bytes: len(said), Title: title})
		return nil
	}
	for _, name := range t.Title {
		if err := take(name, true); err != nil {
			return nil, err
		}
	}
	for _, name := range t.Text {
		if err := take(name, false); err != nil {
			return nil, err
		}
	}
	if len(content) == 0 {
		return nil, unclear("it has no text")
	}
	rest := make(map[string]jsontext.Value)
	for _, a := range c.arguments {
		if texts[a.name] {
			continue
		}
		if leadsUpwards(a.value) {
			return nil, unclear("the argument %s has .. in it, which leads elsewhere", a.name)
		}
		rest[a.name] = a.value
	}
	out.content = strings.Join(content, between)
	out.call.Sum = crc32.ChecksumIEEE([]byte(out.content))
	out.call.Arguments, err = encode(rest)
	return out, err
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

func encode(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// decided is what the daemon let go.
type decided struct {
	api.EmittedMessage
	call kept
	// key is what it was asked with.
	key string
}

func readDecided(data jsontext.Value) (*decided, error) {
	d := new(decided)
	if err := json.Unmarshal(data, &d.EmittedMessage, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	return d, json.Unmarshal(d.Metadata["mcp"], &d.call, jsontext.AllowInvalidUTF8(true))
}

// says reports what of a tool's texts is not a part of what was decided about: whoever has the
// agent's token can ask the daemon about a call of its own making, in which the text stands
// elsewhere.
func (d *decided) says(t *Tool) error {
	list, err := members(d.call.Arguments, 0)
	if err != nil {
		return unclear("the arguments cannot be read")
	}
	for _, name := range slices.Concat(t.Title, t.Text) {
		if has(list, name) {
			return unclear("the argument %s is not among the texts that were decided about", name)
		}
	}
	for _, p := range d.call.Parts {
		if !slices.Contains(t.Text, p.Name) && !slices.Contains(t.Title, p.Name) {
			return unclear("the argument %s is no text", p.Name)
		}
	}
	if len(d.call.Parts) == 0 {
		return unclear("it has no text")
	}
	return nil
}

// arguments are those that the tool is called with: texts as they were let go, the rest as
// it came back.
func (d *decided) arguments() (map[string]jsontext.Value, error) {
	all := make(map[string]jsontext.Value)
	if err := json.Unmarshal(d.call.Arguments, &all, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	length := -len(between)
	for _, p := range d.call.Parts {
		length += p.Bytes + len(between)
	}
	label, _ := api.Text(d.Metadata["aiDisclosure"])
	before, as, after := d.Content, "", ""
	for _, from := range [...]int{0, len(d.Content) - length} {
		if from < 0 || length < 0 || from+length > len(d.Content) || crc32.ChecksumIEEE([]byte(d.Content[from:from+length])) != d.call.Sum {
			continue
		}
		before, as, after = d.Content[:from], d.Content[from:from+length], d.Content[from+length:]
		if around := strings.TrimSpace(before + after); around == "" || around == label {
			break
		}
		before, as, after = d.Content, "", ""
	}
	if length > 0 && as == "" {
		// It is another text: somebody else's words, or an interceptor's.
		if len(d.call.Parts) != 1 {
			return nil, unclear("the text was rewritten, and the tool takes several")
		}
		all[d.call.Parts[0].Name] = api.String(d.Content)
		return all, nil
	}
	for _, p := range d.call.Parts {
		said := as[:p.Bytes]
		as = strings.TrimPrefix(as[p.Bytes:], between)
		if !p.Title {
			said = before + said + after
		}
		all[p.Name] = api.String(said)
	}
	return all, nil
}
