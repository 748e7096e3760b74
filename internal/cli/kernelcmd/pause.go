package kernelcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewPause returns the command that pauses sending.
func NewPause(p *cli.Process) *cobra.Command {
	s := &command{p}
	return s.pauseCommand(&cobra.Command{
		Use: "pause",
		Example: "  ocipd pause --note 'what is it doing?'\n" +
			"  ocipd pause --agent alice\n" +
			"  ocipd pause --channel telegram",
		Short: "stop sending at once: an agent, a channel or everything",
		Long: `Stop sending at once. New messages are refused with the code PAUSED, and allowed
ones that have not reached their app stay queued, also over a restart, until
"ocipd resume". --agent pauses what an agent sends and receives, --channel what
goes through a channel; without either, everything is paused. A message that an
app already has cannot be taken back.`,
	}, "sending.pause")
}

// NewResume returns the command that ends a pause.
func NewResume(p *cli.Process) *cobra.Command {
	s := &command{p}
	return s.pauseCommand(&cobra.Command{
		Use: "resume",
		Example: "  ocipd resume\n" +
			"  ocipd resume --agent alice",
		Short: "resume what was paused",
		Long: `Resume sending, beginning with the queued messages. Each pause is ended by
itself: that of an agent with --agent, of a channel with --channel, and the pause
of everything without either. Remaining pauses are shown.`,
	}, "sending.resume")
}

// pauseCommand makes a command that changes what is paused.
func (s *command) pauseCommand(c *cobra.Command, method string) *cobra.Command {
	var params api.PauseParams
	var key string
	var asJSON bool
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if params.Agent != "" && params.Channel != "" {
			return cli.Usagef("cannot use --agent and --channel together: name each by itself")
		}
		return s.changePause(cmd.Context(), method, key, &params, asJSON)
	}
	flags := c.Flags()
	flags.StringVar(&params.Agent, "agent", "", "the agent of this `ID`")
	flags.StringVar(&params.Channel, "channel", "", "the channel of this `ID`, such as telegram")
	flags.StringVar(&params.Note, "note", "", "`TEXT` for the record")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	if method == "sending.resume" {
		cli.KeyFlag(c, &key)
	}
	return c
}

func (s *command) changePause(ctx context.Context, method, key string, params *api.PauseParams, asJSON bool) error {
	var result api.PauseResult
	verb := strings.TrimPrefix(method, "sending.")
	if err := s.OperateSigned(ctx, key, method, params, &result); err != nil {
		return fmt.Errorf("cannot %s sending: %w", verb, err)
	}
	if asJSON {
		return s.PrintJSON(&result)
	}
	switch {
	case !result.Changed && verb == "pause":
		fmt.Fprintf(s.Stdout, "%s is paused already\n", scopeName(params.Scope()))
	case !result.Changed:
		fmt.Fprintf(s.Stdout, "%s is not paused\n", scopeName(params.Scope()))
	case verb == "pause":
		fmt.Fprintf(s.Stdout, "paused %s (record %d)\n", scopeName(params.Scope()), result.AuditSeq)
	default:
		fmt.Fprintf(s.Stdout, "%s goes on (record %d)\n", scopeName(params.Scope()), result.AuditSeq)
	}
	now := time.Now()
	for i := range result.Paused {
		if p := &result.Paused[i]; verb == "resume" || p.Scope != params.Scope() {
			fmt.Fprintln(s.Stdout, pausedLine(p, now))
		}
	}
	return nil
}

// scopeName describes a scope to a person.
func scopeName(scope string) string {
	if scope == api.PausedAll {
		return "all sending"
	}
	kind, name, _ := strings.Cut(scope, ":")
	return kind + " " + term.Printable(name)
}

// pausedLine describes a pause: its scope, its time and who ordered it.
func pausedLine(p *api.PausedScope, now time.Time) string {
	return fmt.Sprintf("paused: %s, for %s, by %s", scopeName(p.Scope), term.Age(now.Sub(p.Since)), term.Printable(p.By))
}
