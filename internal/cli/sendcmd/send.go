// Package sendcmd has the commands that send and check a message.
package sendcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/spf13/cobra"
)

const sendExits = "Exit codes: 0 allowed, 5 held for a person, 6 refused, 1 nothing was decided."

// NewSend returns the command that sends a message.
func NewSend(p *cli.Process) *cobra.Command {
	c := newSpeak(p, "sending.message")
	c.Use, c.Short = "send SESSION TEXT", "send a message as one of your agents"
	c.Long = `Send a message as one of your agents. It is decided, recorded and delivered like
any message of that agent, whose app need not be connected. SESSION is where it
goes, such as telegram:4711; TEXT is the message, - reads it from stdin.

` + sendExits
	c.Example = `  ocipd send telegram:4711 'How far is the review?'
  ocipd send --agent alice --level internal agent:bob:main - < report.txt`
	return c
}

// NewCheck returns the command that asks what would be decided about a message.
func NewCheck(p *cli.Process) *cobra.Command {
	c := newSpeak(p, "sending.check")
	c.Use, c.Short = "check SESSION TEXT", "print what would be decided about a message"
	c.Long = `Print what would be decided about a message of one of your agents, and why. The
message goes nowhere, takes no round, counts for no budget and is shown to no
interceptor; the log has a record of the check. SESSION is where the message would
go, such as telegram:4711; TEXT is the message, - reads it from stdin. The command
asks as an operator: an agent's token does not allow it.

` + sendExits
	c.Example = `  ocipd check telegram:4711 'I promise it by Friday.'
  ocipd check --json telegram:4711 - < answer.txt | jq .code`
	return c
}

// newSpeak makes a command that calls a method about a message.
func newSpeak(p *cli.Process, method string) *cobra.Command {
	var (
		params              api.SendParams
		level, kind, policy string
		exchangeID          string
		key                 string
		fresh, asJSON       bool
	)
	c := &cobra.Command{
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			params.SessionKey = args[0]
			said := args[1]
			if said == "-" {
				text, err := p.ReadStdin(cmd.Context())
				switch {
				case err != nil:
					return err
				case len(text) > maxSendBytes:
					return cli.Usagef("the message is longer than %d bytes", maxSendBytes)
				}
				said = strings.TrimSuffix(string(text), "\n")
			}
			wishes := map[string]any{}
			for name, value := range map[string]string{"classification": level, "type": kind, "replyPolicy": policy, "id": exchangeID} {
				if value != "" {
					wishes[name] = value
				}
			}
			if fresh {
				wishes["new"] = true
			}
			if len(wishes) > 0 {
				exchange, err := json.Marshal(wishes)
				if err != nil {
					return fmt.Errorf("cannot encode the message: %w", err)
				}
				params.Metadata = api.Object{"exchange": exchange}
			}
			return Speak(cmd.Context(), p, method, key, said, &params, asJSON)
		},
	}
	c.SetFlagErrorFunc(withoutGrant(method))
	flags := c.Flags()
	flags.StringVar(&params.Agent, "agent", "", "`ID` of the agent that it is a message of, where there are several")
	flags.StringVar(&level, "level", "", "`LEVEL` of the message: public, internal, confidential or restricted")
	flags.StringVar(&kind, "type", "", "`TYPE` of the exchange: information_query, commitment_request or meeting_scheduling")
	flags.StringVar(&policy, "reply-policy", "", "`POLICY` for the answer: agent-ok, human-only or no-reply-needed")
	flags.StringVar(&exchangeID, "exchange", "", "`ID` of the exchange that it continues, or begins (default the open one with the receiver)")
	flags.BoolVar(&fresh, "new", false, "begin a new exchange")
	c.MarkFlagsMutuallyExclusive("exchange", "new")
	flags.BoolVar(&asJSON, "json", false, "print the answer as JSON")
	if method == "sending.message" {
		cli.KeyFlag(c, &key)
	}
	return c
}

// withoutGrant explains to the holder of an agent's token where the token is useful,
// because send and check act as an operator.
func withoutGrant(method string) func(*cobra.Command, error) error {
	return func(c *cobra.Command, err error) error {
		if !strings.HasSuffix(err.Error(), "unknown flag: --token-file") {
			return c.Parent().FlagErrorFunc()(c, err)
		}
		const with = `ocipd call --token-file FILE agent.send '{"to": "telegram:4711", "text": "Hello"}'`
		if method == "sending.check" {
			return cli.Usagef("cannot use --token-file: an agent's token does not allow checks, which are for operators. Name the agent with --agent ID; to have a message decided and sent by the token, use %s", with)
		}
		return cli.Usagef("cannot use --token-file: the command sends as an operator. Name the agent with --agent ID; to send by the token, use %s", with)
	}
}

// maxSendBytes bounds a message on stdin, so that it fits into a line to the daemon.
const maxSendBytes = 1 << 20

// Speak calls a method about a message with this content, and prints the result. It returns a [cli.Verdict]
// if the message may not be sent.
func Speak(ctx context.Context, p *cli.Process, method, key, content string, params *api.SendParams, asJSON bool) error {
	params.Content = api.Said(content)
	var answer jsontext.Value
	err := p.OperateSigned(ctx, key, method, params, &answer)
	refused, wasRefused := errors.AsType[*api.Error](err)
	switch {
	case err != nil && !wasRefused:
		return err
	case wasRefused && asJSON && Undecided(refused):
		return p.Refused(err)
	case wasRefused && Undecided(refused):
		if needed, ok := strings.CutPrefix(refused.Message, "agent: required"); ok {
			return fmt.Errorf("nothing was decided: --agent is required%s", needed)
		}
		return fmt.Errorf("nothing was decided: %w", err)
	}
	said, err := readAnswer(answer, refused)
	if err != nil {
		return err
	}
	said.content = content
	if asJSON {
		if wasRefused {
			verdict := struct {
				Result ocip.Result `json:"result"`
				Error  *api.Error  `json:"error"`
			}{ocip.Deny, refused}
			if answer, err = json.Marshal(verdict, json.Deterministic(true)); err != nil {
				return fmt.Errorf("cannot encode the answer: %w", err)
			}
		}
		if _, err := p.Stdout.Write(p.Screen().JSONLine(answer)); err != nil {
			return err
		}
	} else if err := say(p, method, said); err != nil {
		return err
	}
	switch said.Result {
	case ocip.RequireApproval:
		return &cli.Verdict{Code: cli.ExitHeld}
	case ocip.Deny:
		return &cli.Verdict{Code: cli.ExitRefused}
	case ocip.Allow:
	}
	return nil
}

// spoken is the result for a message, or for a check.
type spoken struct {
	api.CheckResult
	ApprovalID, DispatchID string
	// Host is the host of the fleet to which the message goes, if that is another one.
	Host    string
	Waiting bool
	// content is the text of the message.
	content string
}

// readAnswer reads either method's answer or refusal. It returns an error that is not a verdict.
func readAnswer(answer jsontext.Value, refused *api.Error) (*spoken, error) {
	var said spoken
	if refused != nil {
		verdict := VerdictOf(refused)
		if verdict == nil {
			return nil, refused
		}
		said.Result, said.Reason = ocip.Deny, refused.Message
		code, _ := verdict["code"].(string)
		said.Code = ocip.Code(code)
		said.AuditID, _ = verdict["auditId"].(string)
		return &said, nil
	}
	var sent api.DispatchResult
	if json.Unmarshal(answer, &sent) == nil && sent.DispatchID != "" {
		said.Result, said.DispatchID, said.ApprovalID, said.Host, said.Waiting = ocip.Allow, sent.DispatchID, sent.ApprovalID, sent.Host, sent.Waiting
		if sent.OCIP != nil {
			said.Code, said.Reason, said.Reasons, said.AuditID = sent.OCIP.Code, sent.OCIP.Reason, sent.OCIP.Reasons, sent.OCIP.AuditID
			if sent.OCIP.ExchangeID != "" {
				said.Round, said.MaxRounds = sent.OCIP.Round, sent.OCIP.MaxRounds
			}
		}
		if sent.Held {
			said.Result = ocip.RequireApproval
		}
		return &said, nil
	}
	if err := json.Unmarshal(answer, &said.CheckResult); err != nil {
		return nil, fmt.Errorf("cannot read the daemon's answer: %w", err)
	}
	return &said, nil
}

// Undecided reports whether an error has no verdict about a message: the message may be allowed once
// the daemon can decide and record again, for example after a full disk.
func Undecided(refused *api.Error) bool {
	code, _ := VerdictOf(refused)["code"].(string)
	return code == "" || code == string(ocip.AuditWriteFailed)
}

// VerdictOf is the verdict in an error, or nil.
func VerdictOf(refused *api.Error) map[string]any {
	details, _ := refused.Details.(map[string]any)
	verdict, _ := details["ocip"].(map[string]any)
	return verdict
}

// say describes the result for a message in a line or two.
func say(p *cli.Process, method string, said *spoken) error {
	would, gone := "", "sent"
	if method == "sending.check" {
		would, gone = "would be ", "allowed"
	}
	var b strings.Builder
	colour := p.Screen().Colour
	switch said.Result {
	case ocip.Allow:
		b.WriteString(colour.Paint(term.Green, would+gone))
		switch {
		case said.Host != "":
			fmt.Fprintf(&b, ": it is on its way to host %s; for its receipt: ocipd audit query --event receipt --dispatch %s", term.OneLine(said.Host), said.DispatchID)
		case said.Waiting:
			b.WriteString(": it waits for its app to take it")
		case said.Reason != "":
			b.WriteString(": " + term.OneLine(said.Reason))
		}
	case ocip.RequireApproval:
		b.WriteString(colour.Paint(term.Yellow, would+"held") + ": ")
		grounds := said.Reasons
		if len(grounds) == 0 {
			grounds = []ocip.Ground{{Code: said.Code, Reason: said.Reason}}
		}
		for i, g := range grounds {
			if i > 0 {
				b.WriteString("\nand: ")
			}
			b.WriteString(term.OneLine(string(g.Code) + ": " + g.Reason))
			if g.Likelihood == "" {
				continue
			}
			if said.Detections != nil {
				b.WriteString("\n" + term.OneLine(describe.HeldWords(said.content, said.Detections)))
			}
			b.WriteString("\nlikely " + term.OneLine(describe.Likely(g.Guess)))
		}
		if said.ApprovalID != "" {
			b.WriteString("\nto decide: ocipd approvals show " + said.ApprovalID)
		}
	case ocip.Deny:
		b.WriteString(colour.Paint(term.Red, would+"refused") + ": " + term.OneLine(string(said.Code)+": "+said.Reason))
	}
	if said.Round > 0 {
		fmt.Fprintf(&b, "\nround %d of %d", said.Round, said.MaxRounds)
	}
	// A decision that could not be recorded has no record.
	if said.AuditID != "" {
		fmt.Fprintf(&b, "\nto read its record: ocipd audit query --record %s", said.AuditID)
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if err := term.Line(p.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}
