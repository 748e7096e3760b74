package mcpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
		instead, no := p.received(ctx, c, r, f, line)
		switch {
		case ctx.Err() != nil:
			return nil
		case no != nil:
			return withheld(no)
		case instead != "":
			outcome, _ := outcomeOf(f)
			return resultLine(c, outcome != api.OutcomeSent, instead)
		}
		return line
	}}
	if c.asTask {
		over()
		c.via.tell(withheld(&refusal{"UNCLEAR", "the result of a task would come another way"}))
		return
	}
	if err := c.via.pass(c.line, o); err != nil {
		over()
		p.answer(c, true, "ocipd: the MCP server is gone")
	}
}

// received asks about an answer, once for each session that it is from. Instead is the text
// that it was changed to.
func (p *proxy) received(ctx context.Context, c *toolCall, r *Read, f *frame, line []byte) (instead string, no *refusal) {
	content, err := textsOf(f, line)
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
	if len(keys) == 0 {
		// It names nobody: the server itself says so.
		keys = []string{m.Channel + ":" + m.Name}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// resultNames, blockNames and resourceNames are what clients read of a result, of what it
// consists of, and of a resource in it.
var (
	resultNames   = []string{"content", "structuredContent", "isError", "task", "resultType"}
	blockNames    = []string{"type", "text", "resource", "data"}
	resourceNames = []string{"uri", "text", "blob"}
)

// legible reports what of a result cannot be read as text, or comes another way.
func legible(result jsontext.Value) error {
	said, err := members(result, 0)
	if err == nil {
		err = exactly(said, resultNames...)
	}
	switch {
	case err != nil:
		return unclear("the result cannot be read")
	case later(said):
		return unclear("the result is to come another way")
	}
	content, ok := find(said, "content")
	if !ok {
		return nil
	}
	var blocks []jsontext.Value
	if err := json.Unmarshal(content.value, &blocks, jsontext.AllowInvalidUTF8(true)); err != nil {
		return unclear("the content cannot be read")
	}
	for _, one := range blocks {
		block, err := members(one, 0)
		if err == nil {
			err = exactly(block, blockNames...)
		}
		if err != nil {
			return unclear("the content cannot be read")
		}
		kind, _ := find(block, "type")
		if named, _ := text(kind.value); named != "text" && named != "resource" && named != "resource_link" {
			return unclear("content of type %q cannot be read", named)
		}
		held, ok := find(block, "resource")
		if !ok {
			continue
		}
		resource, err := members(held.value, 0)
		if err == nil {
			err = exactly(resource, resourceNames...)
		}
		if err != nil || has(resource, "blob") {
			return unclear("bytes in a resource cannot be read")
		}
	}
	return nil
}

// later reports whether an answer is not the result itself: a task's comes by other requests.
func later(result []member) bool {
	kind, _ := find(result, "resultType")
	named, _ := text(kind.value)
	return has(result, "task") || has(result, "resultType") && named != "complete" && named != "input_required"
}

func has(list []member, name string) bool {
	m, ok := find(list, name)
	return ok && m.value.Kind() != 'n'
}

// own are names that the protocol has for what an answer consists of: they say nothing.
var own = map[string]bool{
	"jsonrpc": true, "id": true, "result": true, "error": true, "code": true, "message": true, "data": true, "content": true, "type": true, "text": true,
	"isError": true, "structuredContent": true, "_meta": true, "annotations": true, "audience": true, "priority": true, "lastModified": true, "resource": true,
	"uri": true, "name": true, "title": true, "description": true, "mimeType": true, "size": true, "icons": true, "src": true, "sizes": true, "resultType": true, "task": true,
}

// textsOf is every string that an answer brings in, in its order: values, and the names that
// are not the protocol's own. What cannot be read as text, such as a picture, is an error.
func textsOf(f *frame, line []byte) (string, error) {
	if f.result != nil && f.result.Kind() == '{' {
		if err := legible(f.result); err != nil {
			return "", err
		}
	}
	var all []byte
	var name string // of what comes next
	d := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return string(all), nil
		}
		if err != nil {
			return "", unclear("the answer cannot be read")
		}
		depth := d.StackDepth()
		in, n := d.StackIndex(depth)
		before := name
		name = ""
		said := t.String()
		switch {
		case t.Kind() != '"' || said == "":
			continue
		case in == '{' && n%2 == 1:
			if name = said; own[said] {
				continue
			}
		case depth == 1 && (before == "jsonrpc" || before == "id"), before == "type" && (said == "text" || said == "resource" || said == "resource_link"),
			before == "resultType" && said == "complete":
			continue
		case before != "" && !own[before]:
			// It stands behind its name.
			all = append(append(all, ": "...), said...)
			continue
		}
		if len(all) > 0 {
			all = append(all, between...)
		}
		all = append(all, said...)
	}
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
