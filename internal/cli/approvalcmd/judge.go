package approvalcmd

import (
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/judge"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewJudge returns the command that asks an operator's model about held messages.
func NewJudge(p *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:     "judge",
		Example: "  ocipd judge",
		Short:   "ask a model of your own whether held messages commit anybody",
		Long: `Ask the model of ocip.judge about messages that are held only because of
a guess about their words: do they commit anybody? With ocip.judge.may: annotate, the
person who decides sees the answer; with release, a no also sends the message. It is off
unless ocip.judge.url is set. It runs in the foreground until it is interrupted, and
reads the configuration anew for each message. Without an answer in time and in form, a
message waits for a person as before.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server := func() (*judge.Server, error) {
				cfg, err := p.Load(nil)
				if err != nil {
					return nil, err
				}
				j := &cfg.OCIP.Judge
				if j.URL == "" {
					return nil, errors.New("ocip.judge.url is not set, so no model is asked")
				}
				return &judge.Server{URL: j.URL, Model: j.Model, Timeout: j.Timeout, Elsewhere: j.Elsewhere}, nil
			}
			if _, err := server(); err != nil {
				return err
			}
			return judge.Run(cmd.Context(), &judge.Options{
				Dial:   p.DialOperator,
				Server: server,
				Say: func(format string, args ...any) {
					fmt.Fprintln(p.Stderr, term.OneLine(fmt.Sprintf(format, args...)))
				},
			})
		},
	}
}
