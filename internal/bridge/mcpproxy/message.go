package mcpproxy

import (
	"hash/crc32"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
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
	// Map is the map by which it was read, and Guess is set where no map has the tool.
	Map   string `json:"map,omitzero"`
	Guess bool   `json:"guess,omitzero"`
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
func read(m *toolmap.Map, t *toolmap.Tool, c *toolCall) (*message, error) {
	if err := toolmap.Exactly(c.arguments, t.Arguments()...); err != nil {
		return nil, err
	}
	if err := m.Fits(t, c.arguments); err != nil {
		return nil, err
	}
	out := &message{call: kept{Tool: c.tool, Answers: c.answers, Map: m.Shown(), Guess: t.Guessed}, ask: t.Ask}
	var err error
	if out.to, err = m.Recipients(t, c.arguments); err != nil {
		return nil, err
	}
	if len(out.to) > maxRecipients {
		return nil, toolmap.Unclear("it is to %d recipients, and more than %d are too many: write to fewer", len(out.to), maxRecipients)
	}
	texts := make(map[string]bool)
	var content []string
	take := func(name string, title bool) error {
		given, ok := toolmap.Find(c.arguments, name)
		if !ok || given.Value.Kind() == 'n' {
			return nil
		}
		said, ok := toolmap.Text(given.Value)
		if !ok {
			return toolmap.Unclear("the argument %s is no text", name)
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
	rest := make(map[string]jsontext.Value)
	for _, a := range c.arguments {
		if !texts[a.Name] {
			rest[a.Name] = a.Value
		}
	}
	if out.call.Arguments, err = encode(rest); err != nil {
		return nil, err
	}
	out.content = strings.Join(content, between)
	if len(content) == 0 {
		out.content = out.call.wordless()
	}
	out.call.Sum = crc32.ChecksumIEEE([]byte(out.content))
	return out, nil
}

// wordless is what is decided about where a call has none of its tool's texts: an issue that is
// closed, or gets a label. It is the whole call, and says the same once it was decided.
func (k *kept) wordless() string { return k.Tool + " " + string(k.Arguments) }

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
func (d *decided) says(t *toolmap.Tool) error {
	list, err := toolmap.Members(d.call.Arguments, 0)
	if err != nil {
		return toolmap.Unclear("the arguments cannot be read")
	}
	for _, name := range slices.Concat(t.Title, t.Text) {
		if has(list, name) {
			return toolmap.Unclear("the argument %s is not among the texts that were decided about", name)
		}
	}
	for _, p := range d.call.Parts {
		if !slices.Contains(t.Text, p.Name) && !slices.Contains(t.Title, p.Name) {
			return toolmap.Unclear("the argument %s is no text", p.Name)
		}
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
	if len(d.call.Parts) == 0 {
		return all, d.unchanged(label)
	}
	content := d.Content.Inspect()
	before, as, after := content, "", ""
	for _, from := range [...]int{0, len(content) - length} {
		if from < 0 || length < 0 || from+length > len(content) || crc32.ChecksumIEEE([]byte(content[from:from+length])) != d.call.Sum {
			continue
		}
		before, as, after = content[:from], content[from:from+length], content[from+length:]
		if around := strings.TrimSpace(before + after); around == "" || around == label {
			break
		}
		before, as, after = content, "", ""
	}
	if length > 0 && as == "" {
		// It is another text: somebody else's words, or an interceptor's.
		if len(d.call.Parts) != 1 {
			return nil, toolmap.Unclear("the text was rewritten, and the tool takes several")
		}
		all[d.call.Parts[0].Name] = api.String(content)
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

// unchanged reports that what was decided about a call without texts is not that call: there
// is no text in it to be another one.
func (d *decided) unchanged(label string) error {
	before, after, ok := strings.Cut(d.Content.Inspect(), d.call.wordless())
	if around := strings.TrimSpace(before + after); !ok || around != "" && around != label {
		return toolmap.Unclear("the text was rewritten, and the call has none")
	}
	return nil
}
