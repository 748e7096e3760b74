package taskcmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/runner"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
)

// maxOrder bounds an order to a runner: a command with all its input.
const maxOrder = 4 << 20

// NewRunner returns the command that runs the commands of approved effects.
func NewRunner(p *cli.Process) *cobra.Command {
	c := &cobra.Command{
		Use:     "runner",
		Example: "  ocipd runner",
		Short:   "run the commands of approved effects, each once",
		Long: `Run the commands of tasks' effects that a person has approved, each once, with the
program, arguments, folder, variables and inputs that were approved. It runs as the
daemon's user, in the foreground, until it is interrupted; commands that run go on, and
are accounted for when it is started again. Without one, effects that are commands do
not start.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runner.Run(cmd.Context(), runner.Options{
				Dial: func(ctx context.Context) (*client.Client, error) {
					path, err := p.KernelSocket()
					if err != nil {
						return nil, err
					}
					return client.Dial(ctx, config.OperatorPath(path), client.WithMaxLine(maxOrder))
				},
				Env: p.Env, Now: time.Now,
				Say: func(format string, args ...any) {
					fmt.Fprintln(p.Stderr, term.OneLine(fmt.Sprintf(format, args...)))
				},
			})
		},
	}
	c.AddCommand(
		&cobra.Command{
			Use: "shim", Hidden: true, Short: "run one command", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				signal.Reset(syscall.SIGTERM, syscall.SIGINT) // nothing else is to end it
				ended := make(chan os.Signal, 1)
				signal.Notify(ended, syscall.SIGTERM)
				// Caught but not handled: an ignored signal would be ignored by the command
				// too.
				signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
				return runner.Shim(p.Stdin, ended, time.Now)
			},
		},
		&cobra.Command{
			Use: "exec", Hidden: true, Short: "become a command", Args: cobra.MinimumNArgs(2),
			RunE: func(_ *cobra.Command, args []string) error { return runner.Exec(args, p.Env) },
		},
	)
	return c
}
