// Command go is a bot that lets ocipd decide before it sends: it reads lines "SESSION TEXT" and sends
// each text that ocipd allows, at once or when a person has approved it. send.go is beside it.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/openclawos/ocipd/client"
)

func main() {
	ctx := context.Background()
	app, err := client.Register(ctx, &client.AppOptions{ID: cmp.Or(os.Getenv("BOT_APP"), "@example/bot"), Send: send, Resolved: func(o *client.Outcome) {
		if !o.Released() {
			fmt.Println(o.Resolution, o.ApprovalID)
		}
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		session, text, _ := strings.Cut(lines.Text(), " ")
		if d := app.Deliver(ctx, session, text); d.Held {
			fmt.Printf("held %s: %s\n", session, d.ApprovalID) // a repetition is the same request
		} else if !d.Allowed {
			fmt.Printf("refused %s: %s: %s\n", session, d.Code, d.Reason)
		}
	}
	_ = app.Wait(ctx) // until a person has decided about everything that was held
}
