package mcpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// maxSenders bounds the sessions that one result can come from.
const maxSenders = 32

// bring has the server answer a call, and has the daemon decide about the answer as an
// incoming message.
func (p *proxy) bring(ctx context.Context, c *toolCall, m *toolmap.Map, r *toolmap.Read, arguments jsontext.Value, over func()) {
	withheld := func(no *gatelink.Refusal) []byte {
		p.o.Log.Warn("withheld a result", "tool", c.tool, "code", no.Code, "reason", no.Reason)
		return resultLine(c, true, fmt.Sprintf("ocipd: withheld (%s): %s. Do not read it another way; tell your user.", no.Code, no.Reason))
	}
	o := &observer{key: c.named, tell: c.via.tell, spoiled: func(why string) []byte {
		defer over()
		return withheld(&gatelink.Refusal{Code: "UNCLEAR", Reason: why})
	}, in: func(f *frame, line []byte) []byte {
		defer over()
		instead, no := p.received(ctx, c, m, r, f, line)
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
		c.via.tell(withheld(&gatelink.Refusal{Code: "UNCLEAR", Reason: "the result of a task would come another way"}))
		return
	}
	if arguments != nil {
		// The senders come from the arguments that the server gets.
		changed, err := exactly(arguments, 0)
		if err != nil {
			over()
			p.refuse(c, gatelink.RefusedBy(err))
			return
		}
		c.arguments = changed
	} else if given, ok := toolmap.Find(c.members, "arguments"); ok && given.Value.Kind() != 'n' {
		arguments = given.Value
	}
	if err := c.via.pass(c.with(arguments, c.answers), o); err != nil {
		over()
		c.answer(true, "ocipd: the MCP server is gone")
	}
}

// received asks the daemon about an answer, once for each session that it comes from.
// instead is the changed text.
func (p *proxy) received(ctx context.Context, c *toolCall, m *toolmap.Map, r *toolmap.Read, f *frame, line []byte) (instead string, no *gatelink.Refusal) {
	content, err := textsOf(f, line)
	if err != nil {
		return "", gatelink.RefusedBy(err)
	}
	if strings.TrimSpace(content) == "" {
		return "", nil
	}
	from, err := m.Senders(r, c.arguments, content)
	if err != nil {
		return "", gatelink.RefusedBy(err)
	}
	if len(from) > maxSenders {
		return "", gatelink.RefusedBy(toolmap.Unclear("it is from %d senders, and more than %d are too many: ask for less", len(from), maxSenders))
	}
	for _, session := range from {
		said, no := receive(ctx, p.o.Link, session, content, p.origin(c.via.account()), m.Shown())
		if no != nil {
			return "", no
		}
		if said != content {
			instead, content = said, said
		}
	}
	return instead, nil
}

// resultNames, blockNames and resourceNames are the members that clients read in a result,
// in its blocks, and in a resource.
var (
	resultNames   = []string{"content", "structuredContent", "isError", "task", "resultType"}
	blockNames    = []string{"type", "text", "resource", "data"}
	resourceNames = []string{"uri", "text", "blob"}
)

// legible returns an error if a part of a result is not text, or comes in another way.
func legible(result jsontext.Value) error {
	said, err := exactly(result, 0, resultNames...)
	switch {
	case err != nil:
		return toolmap.Unclear("the result cannot be read")
	case later(said):
		return toolmap.Unclear("the result is to come another way")
	}
	content, ok := toolmap.Find(said, "content")
	if !ok {
		return nil
	}
	var blocks []jsontext.Value
	if err := json.Unmarshal(content.Value, &blocks, jsontext.AllowInvalidUTF8(true)); err != nil {
		return toolmap.Unclear("the content cannot be read")
	}
	for _, one := range blocks {
		block, err := exactly(one, 0, blockNames...)
		if err != nil {
			return toolmap.Unclear("the content cannot be read")
		}
		kind, _ := toolmap.Find(block, "type")
		if named, _ := toolmap.Text(kind.Value); named != "text" && named != "resource" && named != "resource_link" {
			return toolmap.Unclear("content of type %q cannot be read", named)
		}
		held, ok := toolmap.Find(block, "resource")
		if !ok {
			continue
		}
		resource, err := exactly(held.Value, 0, resourceNames...)
		if err != nil || has(resource, "blob") {
			return toolmap.Unclear("bytes in a resource cannot be read")
		}
	}
	return nil
}

// later reports whether the result comes in later requests, as for a task.
func later(result []toolmap.Member) bool {
	kind, _ := toolmap.Find(result, "resultType")
	named, _ := toolmap.Text(kind.Value)
	return has(result, "task") || has(result, "resultType") && named != "complete" && named != "input_required"
}

func has(list []toolmap.Member, name string) bool {
	m, ok := toolmap.Find(list, name)
	return ok && m.Value.Kind() != 'n'
}

// own are the protocol's own member names, which carry no content.
var own = map[string]bool{
	"jsonrpc": true, "id": true, "result": true, "error": true, "code": true, "message": true, "data": true, "content": true, "type": true, "text": true,
	"isError": true, "structuredContent": true, "_meta": true, "annotations": true, "audience": true, "priority": true, "lastModified": true, "resource": true,
	"uri": true, "name": true, "title": true, "description": true, "mimeType": true, "size": true, "icons": true, "src": true, "sizes": true, "resultType": true, "task": true,
}

// textsOf returns every string of an answer, in order: values, and names that are not the
// protocol's own. Content that is not text, such as a picture, is an error.
func textsOf(f *frame, line []byte) (string, error) {
	if f.result != nil && f.result.Kind() == '{' {
		if err := legible(f.result); err != nil {
			return "", err
		}
	}
	var all []byte
	var name string // the name of the next value
	d := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return string(all), nil
		}
		if err != nil {
			return "", toolmap.Unclear("the answer cannot be read")
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
			// The value follows its name.
			all = append(append(all, ": "...), said...)
			continue
		}
		if len(all) > 0 {
			all = append(all, between...)
		}
		all = append(all, said...)
	}
}

// receive asks about a text from a session, and returns the text that the daemon lets in.
func receive(ctx context.Context, l *gatelink.Link, from, content, origin, by string) (said string, no *gatelink.Refusal) {
	data := api.EmittedMessage{SessionKey: from, Content: api.Said(content), Metadata: api.Object{"origin": api.String(origin), "mcp": jsontext.Value(`{"map":` + string(api.String(by)) + `}`)}}
	var v gatelink.Verdict
	err := l.Ask(ctx, "", map[string]any{"hookName": string(api.MessageReceived), "data": jsontext.Value(data.Append(nil))}, &v)
	if no := v.Refusal(err); no != nil {
		return "", no
	}
	var got api.EmittedMessage
	if err := json.Unmarshal(v.Data, &got, jsontext.AllowInvalidUTF8(true)); err != nil {
		return "", gatelink.RefusedBy(err)
	}
	return got.Content.Inspect(), nil
}
