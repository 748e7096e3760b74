package mcpproxy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// Read is a tool whose results have messages of others in them.
type Read struct {
	// From makes the sessions that they are from, of arguments, as a tool's recipients. Lines
	// are beginnings of lines of the result behind which addresses stand.
	From  []string `yaml:"from,omitempty,flow"`
	Lines []string `yaml:"lines,omitempty,flow"`
}

var addressPattern = regexp.MustCompile(`[^\s<>",;:()]+@[^\s<>",;:()]+`)

// maxSenders bounds the sessions that one result can be from.
const maxSenders = 32

// bring has the server answer a call, and its answer taken in as messages are.
func (p *proxy) bring(ctx context.Context, c *toolCall, r *Read, over func()) {
	withheld := func(no *refusal) []byte {
		p.o.Log.Warn("withheld a result", "tool", c.tool, "code", no.code, "reason", no.reason)
		return resultLine(c, true, fmt.Sprintf("ocipd: withheld (%s): %s. Do not read it another way; tell your user.", no.code, no.reason))
	}
	o := &observer{key: c.named, tell: c.via.tell, spoiled: func(why string) []byte {
		defer over()
		return withheld(&refusal{"UNCLEAR", why})
	}, in: func(f *frame, line []byte) []byte {
		defer over()
		if f.failed {
			return line
		}
		instead, no := p.received(ctx, c, r, f.result)
		switch {
		case ctx.Err() != nil:
			return nil
		case no != nil:
			return withheld(no)
		case instead != "":
			return resultLine(c, false, instead)
		}
		return line
	}}
	if err := c.via.pass(c.line, o); err != nil {
		over()
		p.answer(c, true, "ocipd: the MCP server is gone")
	}
}

// received asks about a result, once for each session that it is from. Instead is the text
// that it was changed to.
func (p *proxy) received(ctx context.Context, c *toolCall, r *Read, result jsontext.Value) (instead string, no *refusal) {
	content, err := textsOf(result)
	if err != nil {
		return "", refusedBy(err)
	}
	if strings.TrimSpace(content) == "" {
		return "", nil
	}
	from, err := p.o.Map.senders(r, c, content)
	if err != nil {
		return "", refusedBy(err)
	}
	if len(from) > maxSenders {
		return "", refusedBy(unclear("it is from %d senders, and more than %d are too many: ask for less", len(from), maxSenders))
	}
	for _, session := range from {
		said, no := p.o.Link.receive(ctx, session, content, p.o.Map.Name)
		if no != nil {
			return "", no
		}
		if said != content {
			instead, content = said, said
		}
	}
	return instead, nil
}

// senders are the sessions that a result is from.
func (m *Map) senders(r *Read, c *toolCall, content string) (keys []string, err error) {
	if len(r.From) > 0 {
		if keys, err = m.recipients(&Tool{To: r.From}, c.arguments); err != nil {
			return nil, err
		}
	}
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		for _, begins := range r.Lines {
			rest, ok := strings.CutPrefix(line, strings.TrimSpace(begins))
			if rest = strings.TrimSpace(rest); !ok || rest == "" {
				continue
			}
			if keys, err = m.appendKeys(keys, rest); err != nil {
				// People write names there that no address has.
				found := addressPattern.FindAllString(rest, -1)
				if len(found) == 0 {
					return nil, err
				}
				for _, address := range found {
					keys = append(keys, m.Channel+":"+strings.ToLower(address))
				}
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// textsOf is what a result says: its texts, those of resources in it and of links to some,
// and structured content as it is. What cannot be read, such as a picture, is an error.
func textsOf(result jsontext.Value) (string, error) {
	var r struct {
		Content []struct {
			Type        string `json:"type"`
			Text        string `json:"text"`
			Name        string `json:"name"`
			Title       string `json:"title"`
			Description string `json:"description"`
			URI         string `json:"uri"`
			Resource    struct {
				Text string `json:"text"`
				Blob string `json:"blob"`
			} `json:"resource"`
		} `json:"content"`
		Structured jsontext.Value `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r, jsontext.AllowInvalidUTF8(true)); err != nil {
		return "", unclear("the result cannot be read")
	}
	var texts []string
	for _, c := range r.Content {
		switch {
		case c.Type != "text" && c.Type != "resource" && c.Type != "resource_link":
			return "", unclear("content of type %q cannot be read", c.Type)
		case c.Resource.Blob != "":
			return "", unclear("bytes in a resource cannot be read")
		}
		for _, text := range []string{c.Text, c.Name, c.Title, c.Description, c.URI, c.Resource.Text} {
			if text != "" {
				texts = append(texts, text)
			}
		}
	}
	if s := string(r.Structured); s != "" && s != "null" && !slices.Contains(texts, s) {
		texts = append(texts, s)
	}
	return strings.Join(texts, between), nil
}

// receive asks about a text that came from a session, and returns it as it was let in.
func (l *Link) receive(ctx context.Context, from, content, origin string) (said string, no *refusal) {
	data := api.EmittedMessage{SessionKey: from, Content: content, Metadata: api.Object{"origin": api.String(origin)}}
	var v verdict
	err := l.ask(ctx, "", map[string]any{"hookName": string(api.MessageReceived), "data": jsontext.Value(data.Append(nil))}, &v)
	if no := v.refusal(err); no != nil {
		return "", no
	}
	var got api.EmittedMessage
	if err := json.Unmarshal(v.Data, &got, jsontext.AllowInvalidUTF8(true)); err != nil {
		return "", refusedBy(err)
	}
	return got.Content, nil
}
