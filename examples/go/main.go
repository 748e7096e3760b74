// Command go is a bot that lets ocipd decide before it sends. It uses the standard
// library alone, and can be copied as it is.
//
// It reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A
// text that a person must decide about is sent once it is approved.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// frame is a line of the protocol, with the members that this bot reads.
type frame struct {
	Type      string          `json:"type"`
	RequestID string          `json:"requestId"`
	Success   bool            `json:"success"`
	Result    json.RawMessage `json:"result"`
	Error     verdict         `json:"error"`
	Event     string          `json:"event"`
	Payload   struct {
		ApprovalID string   `json:"approvalId"`
		Resolution string   `json:"resolution"`
		Data       *message `json:"data"`
	} `json:"payload"`
}

type message struct {
	SessionKey string `json:"sessionKey"`
	Content    string `json:"content"`
}

type verdict struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// kernel is a connection to ocipd.
type kernel struct {
	out    net.Conn
	in     *bufio.Reader
	token  string
	n      int
	events []frame
}

func (k *kernel) read() frame {
	line, err := k.in.ReadBytes('\n')
	if err != nil {
		fail("ocipd has closed the connection: nothing is sent without it")
	}
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		fail("cannot read an answer: %v", err)
	}
	return f
}

// ask sends a request, and returns its answer. Events that arrive in between are kept.
func (k *kernel) ask(method string, params, result any) *verdict {
	k.n++
	id := fmt.Sprint(k.n)
	request := map[string]any{"id": id, "type": "request", "timestamp": time.Now().UnixMilli(), "method": method, "params": params}
	if k.token != "" {
		request["token"] = k.token
	}
	if err := json.NewEncoder(k.out).Encode(request); err != nil {
		fail("cannot ask ocipd: %v", err)
	}
	for {
		f := k.read()
		switch {
		case f.Type == "event":
			k.events = append(k.events, f)
		case f.RequestID == id && !f.Success:
			return &f.Error
		case f.RequestID == id:
			if err := json.Unmarshal(f.Result, result); err != nil {
				fail("cannot read an answer: %v", err)
			}
			return nil
		}
	}
}

// fail ends the bot: nothing is sent without ocipd.
func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// send is to be replaced with your chat network's own call, such as Telegram's
// sendMessage.
func send(m message) {
	first, _, _ := strings.Cut(m.Content, "\n")
	fmt.Printf("sent %s: %s\n", m.SessionKey, first)
}

func main() {
	path := os.Getenv("OPENCLAWOS_KERNEL_SOCKET")
	if path == "" {
		path = os.Getenv("XDG_RUNTIME_DIR") + "/openclawos/kernel.sock"
	}
	c, err := net.Dial("unix", path) //nolint:gosec // the daemon's own socket
	if err != nil {
		fail("cannot reach ocipd: %v", err)
	}
	k := &kernel{out: c, in: bufio.NewReader(c)}
	var registered struct{ Token string }
	refusal := k.ask("app.register", map[string]any{"manifest": map[string]any{
		"id": "@example/bot", "name": "Example bot", "version": "1.0.0", "type": "app", "main": "main.go",
		"protocol": map[string]string{"version": "1.0"}, "capabilities": map[string]any{},
	}}, &registered)
	if refusal != nil {
		fail("ocipd refuses this app: %s", refusal.Message)
	}
	k.token = registered.Token
	k.ask("app.ready", struct{}{}, &struct{}{})

	pending := map[string]bool{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		session, text, _ := strings.Cut(lines.Text(), " ")
		var answer struct {
			Allowed, Held bool
			ApprovalID    string
			Data          message
			Ocip          verdict
		}
		refusal := k.ask("hook.emit", map[string]any{
			"hookName": "message_sending", "data": message{SessionKey: session, Content: text},
		}, &answer)
		switch {
		case refusal != nil:
			fmt.Printf("refused %s: %s\n", session, refusal.Code)
		case answer.Allowed:
			send(message{session, answer.Data.Content}) // what was decided about, not what was asked
		case answer.Held:
			pending[answer.ApprovalID] = true
			fmt.Printf("held %s: %s\n", session, answer.ApprovalID)
		default:
			fmt.Printf("refused %s: %s\n", session, answer.Ocip.Code)
		}
	}
	for len(pending) > 0 { // what people decide comes as events
		var f frame
		if len(k.events) > 0 {
			f, k.events = k.events[0], k.events[1:]
		} else {
			f = k.read()
		}
		p := f.Payload
		if f.Event != "approval:resolved" || !pending[p.ApprovalID] {
			continue
		}
		delete(pending, p.ApprovalID)
		if p.Data != nil {
			send(*p.Data)
		} else {
			fmt.Println(p.Resolution, p.ApprovalID)
		}
	}
}
