// Package judge asks an operator's model whether held messages commit anybody, and takes its answers
// to the daemon. The daemon opens no connection to other machines or programs, so this is a process of
// its own on the operator socket ([Run]). It ends with the daemon's refusal or its context.
//
// It decides nothing: it asks about messages that the daemon marks ([api.ApprovalSummary.Judgeable]),
// each once, one after the other, and the daemon weighs again whether an answer may have an effect.
// Without an answer, a message waits for a person, as it would without a judge.
package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/approval"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// Options are the inputs of a judge.
type Options struct {
	// Dial connects to the operator socket.
	Dial func(context.Context) (*client.Client, error)
	// Server returns the server of the present configuration. It is called for each message.
	Server func() (*Server, error)
	// Say reports progress to a person. It gets no text of a message.
	Say func(format string, args ...any)
}

// again is the pause before the judge connects again, and maxWaiting bounds the messages that it has
// yet to ask about; it leaves further ones to people.
const (
	again      = time.Second
	maxWaiting = 1000
)

// Run asks about held messages until the context ends, even if the daemon restarts. Its error is the
// daemon's refusal.
func Run(ctx context.Context, o *Options) error {
	said := ""
	for {
		err := serve(ctx, o)
		if ctx.Err() != nil {
			return nil
		}
		if e, ok := errors.AsType[*api.Error](err); ok && (e.Code == api.Forbidden || e.Code == api.MethodNotFound) {
			return err
		}
		if why := fmt.Sprint(err); why != said {
			o.Say("the daemon is away: %s", why)
			said = why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// serve uses one connection.
func serve(ctx context.Context, o *Options) error {
	c, err := o.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := c.Stream(ctx, "approval.watch", struct{}{})
	if err != nil {
		cancel(nil)
		return err
	}
	waiting := make(chan string, maxWaiting)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	work.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case id := <-waiting:
				if err := judge(ctx, o, c, id); err != nil {
					cancel(err)
					return
				}
			}
		}
	})
	o.Say("ready")
	for {
		raw, err := stream.Next(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		var news api.ApprovalNews
		if err := json.Unmarshal(raw, &news); err != nil {
			return fmt.Errorf("cannot read the daemon's news: %w", err)
		}
		if news.Approval == nil || !news.Approval.Judgeable() {
			continue
		}
		select {
		case waiting <- news.Approval.ApprovalID:
		default:
			o.Say("%s is left to people: %d others wait for an answer", news.Approval.ApprovalID, maxWaiting)
		}
	}
}

// judge asks about one message. Its error ends the connection; without an answer there is none, since
// the message then waits for a person.
func judge(ctx context.Context, o *Options, c *client.Client, id string) error {
	server, err := o.Server()
	if err != nil {
		o.Say("%s is left to people: %v", id, err)
		return nil
	}
	var a api.Approval
	if err := c.Call(ctx, "approval.get", &api.ApprovalParams{ApprovalID: id}, &a); err != nil {
		return passing(o, id, err)
	}
	if !a.Judgeable() {
		return nil // decided meanwhile
	}
	answer, err := server.ask(ctx, a.Content)
	if err != nil {
		if ctx.Err() == nil {
			o.Say("%s is left to people: %v", id, err)
		}
		return nil
	}
	var result approval.JudgeResult
	if err := c.Call(ctx, "approval.judge", &approval.JudgeParams{
		ApprovalID: id, Digest: a.Digest, Model: server.Model, PromptDigest: opinion.PromptDigest, Answer: answer,
	}, &result); err != nil {
		return passing(o, id, err)
	}
	if result.Released {
		o.Say("%s is released: the model finds that it commits nobody", id)
	} else {
		o.Say("%s has the model's answer, and waits for a person", id)
	}
	return nil
}

// passing reports an error of one message, and returns it if the connection is over.
func passing(o *Options, id string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.ConnectionClosed {
		o.Say("%s is left to people: %s", id, e.Message)
		return nil
	}
	return err
}
