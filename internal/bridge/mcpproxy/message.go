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

// message is a tool call as a message for the daemon to decide. The text is the content;
// metadata.mcp holds the rest, so that the call can be made again.
type message struct {
	to      []string
	content string
	call    kept
	// ask is set if a person has to decide, whatever the text.
	ask bool
}

// kept is metadata.mcp.
type kept struct {
	Tool string `json:"tool"`
	// Arguments are all arguments except the texts.
	Arguments jsontext.Value `json:"arguments"`
	Parts     []part         `json:"parts"`
	// Sum shows whether the texts are unchanged.
	Sum uint32 `json:"sum"`
	// Answers are the client's answers to the server's questions about the call.
	Answers jsontext.Value `json:"inputResponses,omitzero"`
	// Map names the map in use. Guess is set if no map has the tool.
	Map   string `json:"map,omitzero"`
	Guess bool   `json:"guess,omitzero"`
	// Claimed is set if only the server itself says that the map is its own.
	Claimed bool `json:"claimed,omitzero"`
}

// part is one text within the content.
type part struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// Title is set for a title, to which no disclosure is added.
	Title bool `json:"title,omitzero"`
}

// maxRecipients bounds the decisions about one call.
const maxRecipients = 100

// between separates the texts of a call.
const between = "\n\n"

// read builds the message of a call.
func read(m *toolmap.Map, t *toolmap.Tool, c *toolCall) (*message, error) {
	if err := toolmap.Exactly(c.arguments, t.Arguments()...); err != nil {
		return nil, err
	}
	if err := m.Fits(t, c.arguments); err != nil {
		return nil, err
	}
	out := &message{call: kept{Tool: c.tool, Answers: c.answers, Map: m.Shown(), Guess: t.Guessed, Claimed: t.Claimed}, ask: t.Ask}
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

// wordless is the content of a call without texts, such as closing or labeling an issue. It
// is the whole call, and is the same before and after the decision.
func (k *kept) wordless() string { return k.Tool + " " + string(k.Arguments) }

func encode(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// decided is a message that the daemon allowed.
type decided struct {
	api.EmittedMessage
	call kept
	// key is the request key of the question.
	key string
}

func readDecided(data jsontext.Value) (*decided, error) {
	d := new(decided)
	if err := json.Unmarshal(data, &d.EmittedMessage, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	return d, json.Unmarshal(d.Metadata["mcp"], &d.call, jsontext.AllowInvalidUTF8(true))
}

// says returns an error if one of the tool's texts was not part of the decision. Any holder of
// the agent's token can ask the daemon about a made-up call, with the text in another place.
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

// arguments returns the tool's arguments: the texts as allowed, and the rest as the daemon
// returned it.
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
		// A person or an interceptor has rewritten the text.
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

// unchanged returns an error if the decision about a call without texts was about another
// call. Such a call has no text that could be rewritten.
func (d *decided) unchanged(label string) error {
	before, after, ok := strings.Cut(d.Content.Inspect(), d.call.wordless())
	if around := strings.TrimSpace(before + after); !ok || around != "" && around != label {
		return toolmap.Unclear("the text was rewritten, and the call has none")
	}
	return nil
}
