// Command go is a bot that lets ocipd decide before it sends. It uses the standard
// library alone; ocip.go is beside it, and can be copied with it as it is.
//
// It reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A
// text that a person must decide about is sent as soon as it is approved.
package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// say is to be replaced with your chat network's own call, such as those of networks.go.
func say(session, content string) error {
	first, _, _ := strings.Cut(content, "\n")
	fmt.Printf("sent %s: %s\n", session, first)
	return nil
}

func main() {
	send := say
	if slices.Contains(os.Args, "--networks") {
		send = network // Telegram, Slack, IRC and e-mail
	}
	ocipd, pending := connect(cmp.Or(os.Getenv("BOT_APP"), "@example/bot")), map[string]bool{}
	resolved := func(a approval) {
		delete(pending, a.ApprovalID)
		if a.Resolution != "approved" && a.Resolution != "taken_over" {
			fmt.Println(a.Resolution, a.ApprovalID)
		} else if m, claim, ok := ocipd.redeem(a.ApprovalID); ok {
			ocipd.confirm(delivery{Claim: claim}, send(m.SessionKey, m.Content))
		}
	}
	for _, a := range ocipd.redeemable() { // approved while no bot ran
		resolved(a)
	}
	for lines := lines(os.Stdin); lines != nil || len(pending) > 0; {
		select {
		case line, more := <-lines:
			if !more {
				lines = nil
				continue
			}
			session, text, _ := strings.Cut(line, " ")
			switch answer := ocipd.decide(session, text); {
			case answer.Allowed: // what was decided about is sent, not what was asked
				ocipd.confirm(delivery{DispatchID: answer.Data.DispatchID}, send(session, answer.Data.Content))
			case answer.Held:
				pending[answer.ApprovalID] = true // a repetition is the same request
				fmt.Printf("held %s: %s\n", session, answer.ApprovalID)
			default:
				fmt.Printf("refused %s: %s: %s\n", session, answer.Ocip.Code, answer.Ocip.Reason)
			}
		case a := <-ocipd.resolved:
			resolved(a)
		}
	}
}
