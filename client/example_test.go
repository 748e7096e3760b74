package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/openclawos/ocipd/client"
)

// An app that delivers by itself: a held text is sent once a person has approved it.
func ExampleApp_Deliver() {
	ctx := context.Background()
	app, err := client.Register(ctx, &client.AppOptions{
		ID: "@acme/bot",
		Send: func(_ context.Context, t *client.Text) error {
			_, err := fmt.Println(t.SessionKey, t.Content) // in place of a chat network
			return err
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer app.Close()
	if d := app.Deliver(ctx, "telegram:4711", "I promise it by Friday."); d.Held {
		fmt.Println("a person decides about", d.ApprovalID)
	}
	_ = app.Wait(ctx)
}

// An app that owns a channel. Others' messages to it come to its handler.
func ExampleRegister() {
	app, err := client.Register(context.Background(), &client.AppOptions{
		ID: "@acme/chat",
		Channels: map[string]func(context.Context, *client.Message) error{
			"chat": func(_ context.Context, m *client.Message) error {
				return fmt.Errorf("%w: nobody is %s", client.ErrNotSent, m.Target)
			},
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer app.Close()
	_, _ = app.Queue(context.Background(), "chat:dave", "Hello.", nil)
}

// A guard of an agent's tools: a refusal is the tool's result, and a person is waited for.
func ExampleApp_Tool() {
	deploy := func(ctx context.Context, app *client.App) error {
		call := client.ToolCall{Tool: "deploy", Params: map[string]any{"to": "live"}}
		d := app.Tool(ctx, "", call)
		if d.Held {
			if _, err := app.Await(ctx, d.ApprovalID); err != nil {
				return err
			}
			d = app.Tool(ctx, "", call) // the decision is for one call
		}
		if !d.Allowed {
			return fmt.Errorf("refused: %s: %s", d.Code, d.Reason)
		}
		return nil // the tool runs here
	}
	_ = deploy
}

// An agent without an app, by the token of a grant.
func ExampleAttach() {
	ctx := context.Background()
	agent, err := client.Attach(ctx, os.Getenv("OCIPD_TOKEN"), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer agent.Close()
	sent, err := agent.Send(ctx, "telegram:4711", "How far is the review?")
	fmt.Println(sent.Status, client.Is(err, client.Forbidden))
}

// A stream of the agent's own requests for approval, until one is decided.
func ExampleStream() {
	watch := func(ctx context.Context, agent *client.Agent) error {
		stream, err := agent.Stream(ctx, "agent.watch", nil)
		if err != nil {
			return err
		}
		defer stream.Close()
		for {
			var request struct {
				ApprovalID string `json:"approval_id"`
				Status     string `json:"status"`
			}
			if err := stream.Next(ctx, &request); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			fmt.Println(request.ApprovalID, request.Status)
		}
	}
	_ = watch
}
