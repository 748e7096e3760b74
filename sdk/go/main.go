// Command go carries out the steps of sdk/conformance.json with the Go client. The test beside it
// writes a step a line to the standard input, and reads a result a line from the standard output;
// sdk/README.md describes the lines.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/openclawos/ocipd/client"
)

// line is a line of either direction.
type line struct {
	N    int             `json:"n,omitempty"`
	As   string          `json:"as,omitempty"`
	Do   string          `json:"do,omitempty"`
	With json.RawMessage `json:"with,omitempty"`

	Result any    `json:"result,omitempty"`
	Error  *fault `json:"error,omitempty"`

	Event  int    `json:"event,omitempty"`
	What   string `json:"what,omitempty"`
	Data   any    `json:"data,omitempty"`
	Answer int    `json:"answer,omitempty"`
}

type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Verdict string `json:"verdict,omitempty"`
}

// given are the arguments of all steps.
type given struct {
	ID, Session, Content, Text, Run, Agent, Approval, To, Token, Cursor, Method, Signature string

	Receive, Intercept, Send bool
	Channels                 []string
	Line                     int
	Params                   any
	Call                     client.ToolCall
	Grant                    client.Grant
	Metadata                 client.Metadata
}

// reply is the answer of the test to an event.
type reply struct {
	Error, NotSent, Content string
}

// conversation is that with the test.
type conversation struct {
	mu      sync.Mutex
	events  int
	answers map[int]chan reply
	apps    map[string]*client.App
	agents  map[string]*client.Agent
	persons map[string]*client.Operator
	streams map[string]*client.Stream
}

func (c *conversation) say(l *line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Println(string(text))
}

// ask tells an event, and waits for the answer to it.
func (c *conversation) ask(as, what string, data any) reply {
	c.mu.Lock()
	c.events++
	event, answer := c.events, make(chan reply, 1)
	c.answers[event] = answer
	c.mu.Unlock()
	c.say(&line{As: as, Event: event, What: what, Data: data})
	return <-answer
}

func (c *conversation) handler(as, what string, data any) error {
	switch r := c.ask(as, what, data); {
	case r.NotSent != "":
		return fmt.Errorf("%w: %s", client.ErrNotSent, r.NotSent)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

func (c *conversation) options(as string, g *given) client.Options {
	return client.Options{
		Timeout: 20 * time.Second, Retry: 100 * time.Millisecond, MaxLine: g.Line,
		Connection: func(err error) { c.say(&line{As: as, What: map[bool]string{true: "back", false: "lost"}[err == nil]}) },
	}
}

func (c *conversation) register(ctx context.Context, as string, g *given) error {
	o := &client.AppOptions{Options: c.options(as, g), ID: g.ID, Channels: map[string]func(context.Context, *client.Message) error{}}
	for _, channel := range g.Channels {
		o.Channels[channel] = func(_ context.Context, m *client.Message) error { return c.handler(as, "message", m) }
	}
	if g.Receive {
		o.Receive = func(_ context.Context, m *client.Inbound) { c.ask(as, "received", m) }
	}
	if g.Intercept {
		o.Intercept = func(_ context.Context, m *client.Message) error {
			r := c.ask(as, "intercept", m)
			if r.Content != "" {
				m.Content = r.Content
			}
			if r.Error != "" {
				return errors.New(r.Error)
			}
			return nil
		}
	}
	if g.Send {
		o.Send = func(_ context.Context, t *client.Text) error { return c.handler(as, "send", t) }
	}
	o.Resolved = func(out *client.Outcome) { c.say(&line{As: as, What: "resolved", Data: out}) }
	app, err := client.Register(ctx, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apps[as] = app
	return err
}

// open connects as one of the three.
func (c *conversation) open(ctx context.Context, l *line, g *given) (err error) {
	o := c.options(l.As, g)
	var agent *client.Agent
	var person *client.Operator
	switch l.Do {
	case "register":
		return c.register(ctx, l.As, g)
	case "attach":
		agent, err = client.Attach(ctx, g.Token, &o)
	case "operate":
		person, err = client.Operate(ctx, &o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agents[l.As], c.persons[l.As] = agent, person
	return err
}

// do carries out a step.
func (c *conversation) do(ctx context.Context, l *line, g *given) (any, error) {
	c.mu.Lock()
	app, agent, person, stream := c.apps[l.As], c.agents[l.As], c.persons[l.As], c.streams[l.As]
	c.mu.Unlock()
	switch {
	case l.Do == "cancel":
		return nil, stream.Close()
	case l.Do == "stream" && app != nil:
		return nil, c.stream(ctx, l.As, g, app.Stream)
	case l.Do == "stream" && agent != nil:
		return nil, c.stream(ctx, l.As, g, agent.Stream)
	case l.Do == "stream" && person != nil:
		return nil, c.stream(ctx, l.As, g, person.Stream)
	case slices.Contains([]string{"register", "attach", "operate"}, l.Do):
		return nil, c.open(ctx, l, g)
	case app != nil:
		return doApp(ctx, app, l.Do, g)
	case agent != nil:
		return doAgent(ctx, agent, l.Do, g)
	case person != nil:
		return doOperator(ctx, person, l.Do, g)
	}
	return nil, errors.New(l.As + " is not connected")
}

// stream opens a stream, and tells its chunks and its end.
func (c *conversation) stream(ctx context.Context, as string, g *given, open func(context.Context, string, any) (*client.Stream, error)) error {
	stream, err := open(ctx, g.Method, g.Params)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.streams[as] = stream
	c.mu.Unlock()
	go func() {
		for {
			var chunk any
			if err := stream.Next(ctx, &chunk); err != nil {
				code := ""
				if e, ok := errors.AsType[*client.Error](err); ok {
					code = string(e.Code)
				}
				c.say(&line{As: as, What: "end", Data: map[string]any{"code": code}})
				return
			}
			c.say(&line{As: as, What: "chunk", Data: chunk})
		}
	}()
	return nil
}

func doApp(ctx context.Context, app *client.App, do string, g *given) (result any, err error) {
	switch do {
	case "dispatch":
		return app.Dispatch(ctx, g.Session, g.Content, g.Metadata)
	case "queue":
		return app.Queue(ctx, g.Session, g.Text, g.Metadata)
	case "complete":
		return nil, app.Complete(ctx, g.Run, nil)
	case "deliver":
		return app.Deliver(ctx, g.Session, g.Content), nil
	case "tool":
		return app.Tool(ctx, g.Agent, g.Call), nil
	case "await":
		return app.Await(ctx, g.Approval)
	case "wait":
		return nil, app.Wait(ctx)
	case "call":
		err = app.Call(ctx, g.Method, g.Params, &result)
		return result, err
	}
	return nil, app.Close()
}

func doAgent(ctx context.Context, agent *client.Agent, do string, g *given) (any, error) {
	switch do {
	case "send":
		return agent.Send(ctx, g.To, g.Text)
	case "read":
		return agent.Read(ctx, g.Cursor, 10*time.Second)
	}
	return nil, agent.Close()
}

func doOperator(ctx context.Context, person *client.Operator, do string, g *given) (any, error) {
	switch do {
	case "grants":
		grants, err := person.Grants(ctx, g.Agent)
		return map[string]any{"grants": grants}, err
	case "toSign":
		text, err := g.Grant.ToSign()
		return map[string]any{"text": text}, err
	case "addGrant":
		return person.AddGrant(ctx, g.Grant, g.Signature)
	case "revokeGrant":
		changed, err := person.RevokeGrant(ctx, g.ID)
		return map[string]any{"changed": changed}, err
	}
	return nil, person.Close()
}

func main() {
	c := &conversation{answers: map[int]chan reply{}, apps: map[string]*client.App{}, agents: map[string]*client.Agent{}, persons: map[string]*client.Operator{}, streams: map[string]*client.Stream{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var l line
		var g given
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			panic(err)
		}
		if l.Answer != 0 {
			if err := json.Unmarshal(l.With, &r); err != nil {
				panic(err)
			}
			c.mu.Lock()
			c.answers[l.Answer] <- r
			c.mu.Unlock()
			continue
		}
		if err := json.Unmarshal(l.With, &g); err != nil {
			panic(err)
		}
		go func() {
			result, err := c.do(context.Background(), &l, &g)
			out := &line{N: l.N, Result: result}
			if err != nil {
				out.Result, out.Error = nil, &fault{Message: err.Error()}
				if e, ok := errors.AsType[*client.Error](err); ok {
					out.Error.Code = string(e.Code)
					if e.Verdict != nil {
						out.Error.Verdict = e.Verdict.Code
					}
				}
			}
			c.say(out)
		}()
	}
}
