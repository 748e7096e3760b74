package client

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	ipc "github.com/openclawos/ocipd/internal/api/client"
)

// Agent is the connection of an agent without an app. Its methods are safe for concurrent use.
type Agent struct{ session }

// Attach connects as the agent of a grant's token.
func Attach(ctx context.Context, token string, o *Options) (*Agent, error) {
	a := &Agent{}
	if o != nil {
		a.options = *o
	}
	if a.options.Socket == "" {
		a.options.Socket = DefaultSocket()
	}
	a.greet = func(ctx context.Context, conn *ipc.Client) error {
		return conn.Call(ctx, "task.attach", map[string]any{"token": token}, nil)
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// AgentSent is the state of a message that an agent has sent: sent, waiting or held. A held one must
// not be sent again.
type AgentSent struct {
	DispatchID string `json:"dispatch_id"`
	Status     string `json:"status"`
	ApprovalID string `json:"approval_id"`
	ExchangeID string `json:"exchange_id"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
}

// Send sends a text to a session or to an agent of this daemon. A lost answer is asked for again: the
// text is sent once.
func (a *Agent) Send(ctx context.Context, to, text string) (s AgentSent, err error) {
	params := map[string]any{"to": to, "text": text, "request_key": uuid.NewString()}
	return s, a.call(ctx, "agent.send", params, &s, true)
}

// AgentMessage is a message in an agent's inbox. The text is somebody else's.
type AgentMessage struct {
	DispatchID string `json:"dispatch_id"`
	From       string `json:"from"`
	Session    string `json:"session"`
	ReplyTo    string `json:"reply_to"`
	Text       string `json:"text"`
	ExchangeID string `json:"exchange_id"`
}

// Inbox is a page of an inbox. The next read with its Cursor removes these messages from the inbox.
type Inbox struct {
	Messages []AgentMessage `json:"messages"`
	Cursor   string         `json:"cursor"`
	More     bool           `json:"more"`
}

// Read reads the inbox. Wait is at most 20 seconds, for a first message.
func (a *Agent) Read(ctx context.Context, cursor string, wait time.Duration) (page Inbox, err error) {
	params := map[string]any{"wait_s": int(wait / time.Second)}
	if cursor != "" {
		params["cursor"] = cursor
	}
	return page, a.Call(ctx, "agent.read", params, &page)
}

// Operator is a connection of the operator. The daemon refuses it to apps and to processes that they
// have started. Its methods are safe for concurrent use.
type Operator struct{ session }

// Operate connects to the operator's socket.
func Operate(ctx context.Context, o *Options) (*Operator, error) {
	p := &Operator{}
	if o != nil {
		p.options = *o
	}
	if p.options.Socket == "" {
		p.options.Socket = strings.TrimSuffix(DefaultSocket(), "kernel.sock") + "operator.sock"
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Grants lists the pre-approvals in force, all pages of them. Agent is the sender's id or instance id, ""
// for all.
func (p *Operator) Grants(ctx context.Context, agent string) ([]Grant, error) {
	list, params := []Grant{}, map[string]any{}
	if agent != "" {
		params["agent"] = agent
	}
	for {
		var page struct {
			Grants []Grant `json:"grants"`
			Next   string  `json:"next"`
		}
		if err := p.Call(ctx, "grant.list", params, &page); err != nil {
			return nil, err
		}
		if list = append(list, page.Grants...); page.Next == "" {
			return list, nil
		}
		params["after"] = page.Next
	}
}

// ToSign is the text that a person signs to make a pre-approval, in the namespace approval@ocipd
// (ssh-keygen -Y sign). Names in it are printable ASCII without quotes and backslashes.
func (g *Grant) ToSign() (string, error) {
	for _, name := range []string{g.GrantID, g.Agent, g.Receiver} {
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return "", fmt.Errorf("cannot write %q into a text to sign: it is no printable ASCII without quotes", name)
		}
	}
	return `ocipd grant v1` + "\n\"" + g.GrantID + "\"\nfrom \"" + g.Agent + "\"\nto \"" + g.Receiver + "\"\nuses " + strconv.Itoa(g.MaxUses) +
		"\nwords " + strings.Join(g.Words, ",") + "\nclassification " + g.Classification + "\nround 0\nuntil " +
		time.UnixMilli(g.Until).UTC().Format("2006-01-02T15:04:05.000Z") + "\n", nil
}

// AddGrant makes a pre-approval with a person's armored signature over [Grant.ToSign].
func (p *Operator) AddGrant(ctx context.Context, g Grant, signature string) (Grant, error) {
	params := map[string]any{
		"grantId": g.GrantID, "agent": g.Agent, "receiver": g.Receiver, "words": g.Words, "classification": g.Classification,
		"until": g.Until, "maxUses": g.MaxUses, "signature": signature,
	}
	var made struct {
		Grant Grant `json:"grant"`
	}
	return made.Grant, p.Call(ctx, "grant.add", params, &made)
}

// RevokeGrant ends a pre-approval. It reports whether the pre-approval was in force.
func (p *Operator) RevokeGrant(ctx context.Context, id string) (changed bool, err error) {
	var answer struct {
		Changed bool `json:"changed"`
	}
	err = p.Call(ctx, "grant.revoke", map[string]any{"grantId": id}, &answer)
	return answer.Changed, err
}
