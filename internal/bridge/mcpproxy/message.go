package mcpproxy

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
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
	// ID is the request's id if it has not the form of one. The daemon looks at it.
	ID jsontext.Value `json:"id,omitzero"`
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
	out := &message{call: kept{Tool: c.tool, Answers: c.answers, ID: c.odd(), Map: m.Shown(), Guess: t.Guessed, Claimed: t.Claimed}, ask: t.Ask}
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
	rest := make([]toolmap.Member, 0, len(c.arguments))
	for _, a := range c.arguments {
		if !texts[a.Name] {
			rest = append(rest, a)
		}
	}
	if out.call.Arguments, err = spelled(t, rest); err != nil {
		return nil, err
	}
	out.content = strings.Join(content, between)
	if len(content) == 0 {
		out.content = out.call.wordless()
	}
	out.call.Sum = crc32.ChecksumIEEE([]byte(out.content))
	return out, nil
}

// spelled writes the arguments that are no texts for the daemon.
func spelled(t *toolmap.Tool, rest []toolmap.Member) (jsontext.Value, error) {
	rest, err := t.Mark(rest)
	if err != nil {
		return nil, err
	}
	all := object(rest)
	if bytes.ContainsAny(all, "\\ \t\r\n") {
		// The daemon decides about another spelling of the same, and the server gets that one.
		return encode(all)
	}
	return all, nil
}

// wordless is the content of a call without texts, such as closing or labeling an issue. It
// is the whole call, and is the same before and after the decision.
func (k *kept) wordless() string { return k.Tool + " " + string(k.Arguments) }

// object writes members, sorted by their names.
func object(list []toolmap.Member) jsontext.Value {
	slices.SortFunc(list, func(a, b toolmap.Member) int { return strings.Compare(a.Name, b.Name) })
	return toolmap.Object(list)
}

func encode(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}

// decided is a message that the daemon allowed.
type decided struct {
	api.EmittedMessage
	call kept
	// key is the request key of the question.
	key string
	// asked is the message that the daemon was asked about, if its answer has the same call, byte for byte.
	asked *message
}

// readDecided reads the daemon's answer. asked is the message that it was asked about, if any, and call is how
// the message's call was written.
func readDecided(data jsontext.Value, asked *message, call jsontext.Value) (*decided, error) {
	d := new(decided)
	if err := json.Unmarshal(data, &d.EmittedMessage, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	if asked != nil && string(d.Metadata["mcp"]) == string(call) {
		d.call, d.asked = asked.call, asked
		return d, nil
	}
	return d, json.Unmarshal(d.Metadata["mcp"], &d.call, jsontext.AllowInvalidUTF8(true))
}

// emit asks about a message to one recipient.
func emit(ctx context.Context, l *gatelink.Link, to string, m *message, origin string) (d *decided, held string, no *gatelink.Refusal) {
	call, err := encode(&m.call)
	if err != nil {
		return nil, "", gatelink.RefusedBy(err)
	}
	said := api.EmittedMessage{SessionKey: to, Content: api.Said(m.content), Metadata: api.Object{"mcp": call, "origin": api.String(origin)}}
	if m.ask {
		said.Metadata["exchange"] = jsontext.Value(`{"askPerson":true}`)
	}
	var v gatelink.Verdict
	key := l.NewID()
	err = l.Ask(ctx, key, map[string]any{"hookName": string(api.MessageSending), "data": jsontext.Value(said.Append(nil)), "requestKey": key}, &v)
	if no := v.Refusal(err); no != nil || v.Held {
		return nil, v.ApprovalID, no
	}
	if d, err = readDecided(v.Data, m, call); err != nil {
		return nil, "", gatelink.RefusedBy(errors.Join(err, l.Confirm(&api.ConfirmParams{RequestKey: key, Outcome: api.OutcomeNotSent, Note: short(err.Error())})))
	}
	d.key = key
	return d, "", nil
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

// arguments returns the arguments of a tool: the texts as allowed, and the rest as the daemon
// returned it. rewritten is set if they have to be checked again.
func (d *decided) arguments(t *toolmap.Tool) (all []toolmap.Member, rewritten bool, err error) {
	if all, err = toolmap.Members(d.call.Arguments, 0); err == nil {
		all, err = t.Unmark(all)
	}
	if err != nil {
		return nil, false, err
	}
	label, _ := api.Text(d.Metadata["aiDisclosure"])
	if len(d.call.Parts) == 0 {
		return all, d.asked == nil, d.unchanged(label)
	}
	content := d.Content.Inspect()
	length := -len(between)
	for _, p := range d.call.Parts {
		// The content can be shorter than its parts were: an interceptor may have rewritten it.
		if p.Bytes < 0 || p.Bytes > math.MaxInt32 {
			return nil, false, toolmap.Unclear("the argument %s has a length that no text has", p.Name)
		}
		length += p.Bytes + len(between)
	}
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
	say := func(name, text string) {
		all = slices.DeleteFunc(all, func(m toolmap.Member) bool { return m.Name == name }) // it is null
		all = append(all, toolmap.Member{Name: name, Value: api.String(text)})
	}
	if length > 0 && as == "" {
		// A person or an interceptor has rewritten the text.
		if len(d.call.Parts) != 1 {
			return nil, false, toolmap.Unclear("the text was rewritten, and the tool takes several")
		}
		say(d.call.Parts[0].Name, content)
		return all, true, nil
	}
	whole := as
	for _, p := range d.call.Parts {
		said := as[:p.Bytes]
		as = strings.TrimPrefix(as[p.Bytes:], between)
		if !p.Title {
			said = before + said + after
		}
		say(p.Name, said)
	}
	return all, d.asked == nil || whole != d.asked.content, nil
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
