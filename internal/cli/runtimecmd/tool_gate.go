package runtimecmd

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/bridge/toolgate"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewToolGate returns the command that runtimes call before each tool.
func NewToolGate(s *cli.Process) *cobra.Command {
	var file, runtime string
	var without []string
	var hold time.Duration
	c := &cobra.Command{
		Use:   "tool-gate --runtime NAME [--token-file FILE]",
		Short: "answer the hooks of an agent runtime",
		Long: `Answer the hooks of an agent runtime over stdin and stdout: the daemon decides whether a tool may be
called, by the setting tools and the policy's package ocip.tool. The runtime starts this command for each
session; ocipd integrate enters it. A call that needs a person's approval waits; in a session of Claude Code
without a terminal it ends the session, which you resume later. Without a token this is the gate of the
machine's settings, and uses the files that ocipd integrate keeps for the user.`,
		Example: "  ocipd integrate claude-code\n" +
			"  ocipd tool-gate --runtime claude-code --token-file ~/ann.token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := s.Token(file)
			if err != nil {
				return err
			}
			r := integrate.Find(runtime)
			if r == nil {
				return cli.Usagef("cannot say whose tools these are: name the runtime with --runtime: %s", strings.Join(runtimeNames(), ", "))
			}
			var prompts []string
			if token == "" {
				p, err := Place(s)
				if err != nil {
					return err
				}
				of, err := r.GateOf(p)
				if err != nil {
					return err
				}
				if token, err = s.Token(of.Token); err != nil {
					return err
				}
				without, prompts = of.Without, append([]string{}, of.Prompts...)
			}
			socket, err := s.KernelSocket()
			if err != nil {
				return err
			}
			return toolgate.Serve(cmd.Context(), &toolgate.Options{
				Dial: func(ctx context.Context) (*client.Client, error) {
					return client.Dial(ctx, socket, client.WithDropEvents())
				},
				Token: token, Runtime: runtime, Without: without, Prompts: prompts, Hold: hold, Version: s.Version, In: io.NopCloser(s.Stdin), Out: keepOpen{s.Stdout},
				// Claude Code sets this if a program or a script runs it, without a person.
				Defers: strings.HasPrefix(s.Getenv("CLAUDE_CODE_ENTRYPOINT"), "sdk"),
				Log:    slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		},
	}
	c.Flags().StringVar(&file, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringVar(&runtime, "runtime", "", "answer the hooks of the runtime of this `NAME`")
	c.Flags().StringArrayVar(&without, "without", nil, "MCP `SERVER` whose calls are decided by ocipd mcp-proxy; give the flag once for each")
	c.Flags().DurationVar(&hold, "hold", 4*time.Minute, "keep a call waiting for this `TIME` for a person")
	return c
}
