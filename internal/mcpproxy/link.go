package mcpproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/taskapi"
)

// Link is the connection to the daemon, by a grant that names an agent. It is made when it
// is needed, and again where it was lost.
type Link struct {
	// Dial connects to the daemon's kernel socket.
	Dial func(context.Context) (*client.Client, error)
	// Token is the grant's, and Agent, where set, the agent that it must name.
	Token, Agent string

	mu sync.Mutex
	c  *client.Client
}

// callTime is how long the daemon has to answer. Whoever gives up ends the connection, and
// what was not decided by then is not decided.
const callTime = 30 * time.Second

// connected returns the connection, and connects where there is none.
func (l *Link) connected(ctx context.Context) (*client.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil && l.c.Err() == nil {
		return l.c, nil
	}
	c, err := l.Dial(ctx)
	if err != nil {
		return nil, err
	}
	var at taskapi.Attached
	err = c.Call(ctx, "task.attach", &taskapi.AttachParams{Token: l.Token}, &at)
	switch {
	case err != nil:
	case at.Agent == "":
		err = errors.New("the token is of a grant that names no agent")
	case l.Agent != "" && at.Agent != l.Agent:
		err = fmt.Errorf("the token is of agent %s, and not of %s", at.Agent, l.Agent)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	l.c = c
	return c, nil
}

// Check reports whether the token is good, as far as the daemon can be asked.
func (l *Link) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := l.connected(ctx)
	return err
}

// call makes a call, once: what is lost on the way may have been decided.
func (l *Link) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	c, err := l.connected(ctx)
	if err != nil {
		return err
	}
	if err = c.Call(ctx, method, params, result); ctx.Err() != nil && err != nil {
		_ = c.Close()
	}
	return err
}

// Close ends the connection.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		_ = l.c.Close()
	}
}

// refusal is why a message does not go, in words for a model.
type refusal struct{ code, reason string }

// refusedBy is what is told of an error.
func refusedBy(err error) *refusal {
	var e *api.Error
	switch {
	case errors.Is(err, client.ErrNotRunning):
		return &refusal{"NOT_RUNNING", "ocipd is not running, so nothing can be decided"}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{"TIMEOUT", "ocipd has not answered in time"}
	case errors.Is(err, errUnclear):
		return &refusal{"UNCLEAR", err.Error()}
	case errors.As(err, &e):
		return &refusal{string(e.Code), e.Message}
	default:
		return &refusal{"FAILED", err.Error()}
	}
}

// emit asks about a message to one recipient.
func (l *Link) emit(ctx context.Context, to string, m *message, origin string) (d *decided, held string, no *refusal) {
	call, err := encode(&m.call)
	if err != nil {
		return nil, "", refusedBy(err)
	}
	said := api.EmittedMessage{SessionKey: to, Content: m.content, Metadata: api.Object{"mcp": call, "origin": api.String(origin)}}
	var result struct {
		api.EmitResult
		OCIP struct {
			Code string `json:"code"`
		} `json:"ocip"`
	}
	err = l.call(ctx, "agent.emit", map[string]any{"hookName": string(api.MessageSending), "data": jsontext.Value(said.Append(nil))}, &result)
	switch {
	case err != nil:
		return nil, "", refusedBy(err)
	case result.Held:
		return nil, result.ApprovalID, nil
	case !result.Allowed:
		return nil, "", &refusal{result.OCIP.Code, result.Reason}
	}
	if d, err = readDecided(result.Data); err != nil {
		return nil, "", refusedBy(err)
	}
	return d, "", nil
}

// confirm says what became of a message. Where the daemon cannot be told, its own record
// says that nobody knows.
func (l *Link) confirm(p *api.ConfirmParams) error {
	return l.call(context.Background(), "agent.confirm", p, nil)
}
