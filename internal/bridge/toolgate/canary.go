package toolgate

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/api"
)

// Canary is both a channel without an app and the name of a nonexistent MCP server. The
// gate has a call of that server's tool decided as a message to the channel, whatever the
// settings for tool calls. This tests the gate and leaves a record. The gate always refuses
// the call, so a real server with this name gets none.
const Canary = "ocipd-canary"

// CanaryCall are the arguments of such a call.
type CanaryCall struct {
	// To is the receiver in the channel, unique for each canary.
	To   string `json:"to"`
	Text string `json:"text"`
}

// Question is a hook's question about the call.
func (c *CanaryCall) Question() map[string]any {
	return map[string]any{"event": Before, "tool": "mcp__" + Canary + "__send", "input": c}
}

// Canary reports whether a question is about a canary.
func (q *Question) Canary() bool {
	server, _ := q.server()
	return server == Canary
}

// Refused reports whether a gate's answer to the question refuses the call.
func Refused(answer string) bool {
	var said struct {
		Hook struct {
			Decision string `json:"permissionDecision"`
		} `json:"hookSpecificOutput"`
	}
	return json.Unmarshal([]byte(answer), &said) == nil && said.Hook.Decision == Deny
}

// canary has a canary decided, and refuses it in any case.
func (g *Gate) canary(ctx context.Context, q *Question) Verdict {
	var c CanaryCall
	if err := json.Unmarshal(q.Input, &c); err != nil || c.To == "" {
		return deny("ocipd: this is no canary")
	}
	said := api.EmittedMessage{SessionKey: Canary + ":" + c.To, Content: api.Said(c.Text)}
	got, err := g.ask(ctx, api.MessageSending, said.Append(nil), c.To)
	if err == nil {
		switch {
		case got.Held:
			err = g.daemon.Call(ctx, "agent.withdraw", &api.WithdrawParams{ApprovalID: got.ApprovalID, Note: "a canary is not sent"}, nil)
		case got.Allowed:
			err = g.daemon.Call(ctx, "agent.confirm", &api.ConfirmParams{RequestKey: c.To, Outcome: api.OutcomeNotSent, Note: "a canary is not sent"}, nil)
		}
	}
	if err != nil {
		return deny(undecided + err.Error())
	}
	return deny("ocipd: a canary is not sent. " + got.Reason)
}

const undecided = "ocipd: the canary could not be decided: "

// Undecided returns why the daemon did not decide about a canary, from the answer of a gate that
// refused it, or "".
func Undecided(answer string) string {
	_, why, _ := strings.Cut(answer, undecided)
	return strings.TrimRight(why, `"}`) // the answer is JSON
}

// Ask starts an MCP server by its command, as a runtime does, and calls one of its tools.
// It returns the text of the answer, and whether the tool reports an error. A nil env is
// the environment of this program.
func Ask(ctx context.Context, env []string, command string, args []string, tool string, arguments any) (answer string, isError bool, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = env, &said, callTime
	session, err := mcp.NewClient(&mcp.Implementation{Name: "ocipd", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return "", false, fmt.Errorf("cannot start %s: %w %s", command, err, strings.TrimSpace(said.String()))
	}
	got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if closed := session.Close(); err != nil {
		return "", false, fmt.Errorf("%s does not answer: %w (%w) %s", command, err, closed, strings.TrimSpace(said.String()))
	}
	for _, part := range got.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			answer += text.Text
		}
	}
	return answer, got.IsError, nil
}

// emission are the parameters of a question to the daemon. key, if set, is the name for
// reporting the outcome later.
func emission(hook api.Hook, data []byte, key string) map[string]any {
	asked := map[string]any{"hookName": string(hook), "data": jsontext.Value(data)}
	if key != "" {
		asked["requestKey"] = key
	}
	return asked
}
