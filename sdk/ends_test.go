package sdk

import (
	"fmt"
	"strings"
	"testing"
)

// ending is a way in which messages come to an app.
type ending struct {
	name, event string
	// receiver is the registration of the app that ends, and sender that of the other one.
	receiver, sender map[string]any
	// do sends a message, with its text in a member of this name.
	do, text string
}

var endings = []ending{
	{
		name: "receive", event: "received", do: "queue", text: "text",
		receiver: map[string]any{"id": "@sdk/bot", "receive": true},
		sender:   map[string]any{"id": "@sdk/channel", "channels": []any{"chat"}},
	},
	{
		name: "channel", event: "message", do: "dispatch", text: "content",
		receiver: map[string]any{"id": "@sdk/channel", "channels": []any{"chat"}},
		sender:   map[string]any{"id": "@sdk/bot"},
	},
}

// An app that is closed, and later killed, with messages that it has read and not handled gets these in its
// next run, in order. The message that was in hand at the kill comes again, with those whose acknowledgement was
// lost, and the one at the close does not.
func TestAppsThatEnd(t *testing.T) {
	const many, closed, killed = 60, 10, 30
	for name, command := range runners {
		for _, e := range endings {
			t.Run(name+"/"+e.name, func(t *testing.T) {
				t.Parallel()
				needs(t, "ssh-keygen")
				if name != "go" {
					needs(t, command[0])
				}
				r := begin(t, command)
				register := func() { r.take(1, &step{As: "receiver", Do: "register", With: e.receiver}) }
				next := func() (n int, l said) {
					l = r.next("receiver", e.event, func(l *said) bool { return l.Event != 0 })
					text := l.Data.(map[string]any)["content"].(string)
					if _, err := fmt.Sscan(text[strings.Index(text, "number ")+len("number "):], &n); err != nil {
						t.Fatalf("%q: %v", text, err)
					}
					return n, l
				}
				handle := func(from, to int) {
					for want := from; want <= to; want++ {
						n, l := next()
						if n != want {
							t.Fatalf("message %d came in place of %d", n, want)
						}
						r.say(map[string]any{"answer": l.Event})
					}
				}
				register()
				r.take(2, &step{As: "operator", Do: "register", With: e.sender})
				for n := range many {
					r.take(3, &step{As: "operator", Do: e.do, With: map[string]any{"session": fmt.Sprint("chat:person", n), e.text: fmt.Sprint("This is number ", n+1)}})
				}
				handle(1, closed)
				n, l := next()
				if n != closed+1 {
					t.Fatalf("message %d came in place of %d", n, closed+1)
				}
				r.take(4, &step{As: "receiver", Do: "close", Later: "closed"})
				// A runner that is told the answer first begins another handler.
				for l.N != r.later["closed"] {
					r.say(map[string]any{"answer": l.Event})
					l = r.next("receiver", "end", func(l *said) bool { return l.Event != 0 || l.N == r.later["closed"] })
					if l.Event != 0 {
						n++
					}
				}
				register()
				handle(n+1, killed)
				if got, _ := next(); got != killed+1 {
					t.Fatalf("message %d came in place of %d", got, killed+1)
				}
				r.kill(r.apps)
				r.apps = r.start(command)
				register()
				// Acknowledgements that the daemon has not read are lost with the app, and their messages come again.
				again, l := next()
				if again <= n || again > killed+1 {
					t.Fatalf("message %d came in place of %d", again, killed+1)
				}
				r.say(map[string]any{"answer": l.Event})
				handle(again+1, many)
			})
		}
	}
}
