package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// client is a small client of ocipd: what the bot asks.
type client struct {
	socket  net.Conn
	token   string
	asked   int
	answers chan frame
	// resolved is what people have decided.
	resolved chan approval
}

// frame is a line of the protocol, with the members that this bot reads.
type frame struct {
	Type      string          `json:"type"`
	RequestID string          `json:"requestId"`
	Success   bool            `json:"success"`
	Result    json.RawMessage `json:"result"`
	Error     refusal         `json:"error"`
	Event     string          `json:"event"`
	Payload   approval        `json:"payload"`
}

type approval struct {
	ApprovalID string `json:"approvalId"`
	Resolution string `json:"resolution"`
}

type message struct {
	SessionKey string `json:"sessionKey"`
	Content    string `json:"content"`
	DispatchID string `json:"dispatchId,omitempty"`
}

type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// delivery names a message: one that was approved by its claim, another one by its dispatch.
type delivery struct {
	Claim      string `json:"claim,omitempty"`
	DispatchID string `json:"dispatchId,omitempty"`
	Outcome    string `json:"outcome"`
}

// connect registers the app.
func connect(app string) *client {
	path := os.Getenv("OPENCLAWOS_KERNEL_SOCKET")
	if path == "" {
		path = fmt.Sprintf("/tmp/openclawos-%d/kernel.sock", os.Getuid())
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			path = dir + "/openclawos/kernel.sock"
		}
	}
	socket, err := net.Dial("unix", path) //nolint:gosec // the daemon's own socket
	if err != nil {
		fail("ocipd does not answer on %s (%v); start it: ocipd serve", path, err)
	}
	c := &client{socket: socket, answers: make(chan frame), resolved: make(chan approval)}
	go c.read()
	var registered struct{ Token string }
	no := c.ask("app.register", map[string]any{"manifest": map[string]any{
		"id": app, "name": "Example bot", "version": "1.0.0", "type": "app", "main": "main.go",
		"protocol": map[string]string{"version": "1.0"}, "capabilities": map[string]any{"redeem": true},
	}}, &registered)
	if no != nil {
		fail("ocipd refuses app %s: %s: %s", app, no.Code, no.Message)
	}
	c.token = registered.Token
	c.must("app.ready", struct{}{}, &struct{}{})
	return c
}

func (c *client) read() {
	for lines := bufio.NewReader(c.socket); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			fail("ocipd has closed the connection: nothing is sent without it")
		}
		var f frame
		switch err := json.Unmarshal(line, &f); {
		case err != nil:
			fail("cannot read an answer: %v", err)
		case f.Type == "response":
			c.answers <- f
		case f.Event == "approval:resolved":
			go func() { c.resolved <- f.Payload }() // the bot may be asking
		}
	}
}

// ask sends a request, and returns why it is refused.
func (c *client) ask(method string, params, result any) *refusal {
	c.asked++
	id := fmt.Sprint(c.asked)
	request := map[string]any{"id": id, "type": "request", "timestamp": time.Now().UnixMilli(), "method": method, "params": params}
	if c.token != "" {
		request["token"] = c.token
	}
	if err := json.NewEncoder(c.socket).Encode(request); err != nil {
		fail("cannot ask ocipd: %v", err)
	}
	answer := <-c.answers
	if !answer.Success || answer.RequestID != id {
		return &answer.Error
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		fail("cannot read an answer: %v", err)
	}
	return nil
}

func (c *client) must(method string, params, result any) {
	if no := c.ask(method, params, result); no != nil {
		fail("ocipd refuses %s: %s", method, no.Message)
	}
}

// answer says whether a text may leave, and as what.
type answer struct {
	Allowed, Held bool
	ApprovalID    string
	Data          message
	Ocip          verdict
}

// verdict is why a text may not leave.
type verdict struct{ Code, Reason string }

// decide asks whether a text may leave. An error is a refusal too.
func (c *client) decide(session, text string) (a answer) {
	params := map[string]any{"hookName": "message_sending", "data": message{SessionKey: session, Content: text}}
	if no := c.ask("hook.emit", params, &a); no != nil {
		return answer{Ocip: verdict{no.Code, no.Message}}
	}
	return a
}

// redeemable is what was approved, and nobody has taken yet.
func (c *client) redeemable() []approval {
	var waiting struct{ Approvals []approval }
	c.must("approval.redeemable", struct{}{}, &waiting)
	for i := range waiting.Approvals {
		waiting.Approvals[i].Resolution = "approved"
	}
	return waiting.Approvals
}

// redeem takes what was approved. It is given once, and not to who comes after.
func (c *client) redeem(approval string) (m message, claim string, ok bool) {
	var taken struct {
		Claim string
		Data  message
	}
	no := c.ask("approval.redeem", map[string]string{"approvalId": approval}, &taken)
	if no != nil && no.Code != "CONFLICT" {
		fmt.Fprintf(os.Stderr, "cannot take %s: %s\n", approval, no.Message)
	}
	return taken.Data, taken.Claim, no == nil
}

// confirm tells ocipd what became of a message. One that may have left is not sent again
// unless a person says so.
func (c *client) confirm(d delivery, failed error) {
	d.Outcome = "sent"
	if failed != nil {
		fmt.Fprintf(os.Stderr, "cannot tell whether it was sent: %v\n", failed)
		d.Outcome = "unknown"
	}
	c.must("approval.confirm", d, &struct{}{})
}

// lines reads the lines of a stream as they come.
func lines(r io.Reader) <-chan string {
	list := make(chan string)
	go func() {
		defer close(list)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			list <- lines.Text()
		}
	}()
	return list
}

// fail ends the bot: nothing is sent without ocipd.
func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}
