package runtimecmd

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/mcpserver"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/spf13/cobra"
)

// NewMCP returns the command that offers the daemon as an MCP server.
func NewMCP(s *cli.Process) *cobra.Command {
	var file, role string
	var without []string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "serve a grant's tools to an MCP client",
		Long: `Serve tasks and messages to an MCP client over stdin and stdout, by the token of a
grant: the tools of the actor's role, and those of the agent that the grant names. The
client starts this command; it ends with its input. The token stands in --token-file,
OCIPD_TOKEN_FILE or OCIPD_TOKEN, and is made by: ocipd task grant.`,
		Example: "  ocipd mcp --token-file ~/lead.token\n" +
			"  claude mcp add ocipd -- ocipd mcp --token-file ~/lead.token\n" +
			"  codex mcp add ocipd -- ocipd mcp --token-file ~/lead.token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := s.Token(file)
			if err != nil {
				return err
			}
			if token == "" {
				return cli.Usagef("cannot serve without a grant: make a token with ocipd task grant, and name its file with --token-file")
			}
			if role != "" && !slices.Contains(task.ActorRoles(), task.Role(role)) {
				return cli.Usagef("there is no role %q", role)
			}
			socket, err := s.KernelSocket()
			if err != nil {
				return err
			}
			return mcpserver.Serve(cmd.Context(), &mcpserver.Options{
				Dial: func(ctx context.Context) (*client.Client, error) {
					return client.Dial(ctx, socket, client.WithDropEvents())
				},
				Token: token, Role: task.Role(role), Without: without, Version: s.Version, In: io.NopCloser(s.Stdin), Out: keepOpen{s.Stdout},
				Log: slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), NewID: uuid.NewString,
			})
		},
	}
	c.Flags().StringVar(&file, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringVar(&role, "role", "", "end at once where the grant is not for this `ROLE`")
	c.Flags().StringSliceVar(&without, "without", nil, "`TOOLS` of the grant that the client is not shown")
	_ = c.RegisterFlagCompletionFunc("role", func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
		for _, r := range task.ActorRoles() {
			names = append(names, string(r))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// keepOpen is an output that its writer does not close.
type keepOpen struct{ io.Writer }

// Close does nothing.
func (keepOpen) Close() error { return nil }
