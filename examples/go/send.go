package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/client"
)

// send delivers a text. Replace say with your chat network's own call, such as those of networks.go.
// After an error that does not wrap client.ErrNotSent, the daemon asks a person whether to send again.
func send(_ context.Context, t *client.Text) error {
	call := say
	if slices.Contains(os.Args, "--networks") {
		call = network // Telegram, Slack, IRC and e-mail
	}
	err := call(t.SessionKey, t.Content)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sending failed: %v\n", err)
	}
	return err
}

func say(session, content string) error {
	first, _, _ := strings.Cut(content, "\n")
	fmt.Printf("sent %s: %s\n", session, first)
	return nil
}
