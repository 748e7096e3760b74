package runtimecmd

import (
	"fmt"
	"log/slog"

	"github.com/openclawos/ocipd/internal/bridge/integrate"
	"github.com/openclawos/ocipd/internal/bridge/mcpconnect"
	"github.com/openclawos/ocipd/internal/bridge/mcpproxy"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewMCPConnect returns the command that reaches an MCP server over HTTP.
func NewMCPConnect(s *cli.Process) *cobra.Command {
	var address, bearer string
	c := &cobra.Command{
		Use:   "mcp-connect --url URL NAME",
		Short: "speak to an MCP server over HTTP by stdin and stdout",
		Long: `Speak to an MCP server over HTTP by stdin and stdout, so that ocipd mcp-proxy can start it
as it starts others. Its messages are known by NAME, which is the last word of the command.
Headers stand in OCIPD_HEADERS, one a line. There is no login and no redirect. ocipd
integrate enters this command for servers that need neither.`,
		Example: "  ocipd mcp-proxy --agent ann --token-file ~/ann.token -- ocipd mcp-connect --url https://mcp.example.com/mcp example",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := mcpproxy.Target(address)
			if err != nil {
				return cli.Usagef("%v", err)
			}
			headers, err := integrate.ReadHeaders(s.Getenv(integrate.HeadersVariable))
			if err != nil {
				return fmt.Errorf("%s: %w", integrate.HeadersVariable, err)
			}
			if bearer != "" {
				headers["Authorization"] = "Bearer " + s.Getenv(bearer)
			}
			return mcpconnect.Run(cmd.Context(), &mcpconnect.Options{
				URL: target.String(), Headers: headers, In: s.Stdin, Out: s.Stdout, Log: slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		},
	}
	c.Flags().StringVar(&address, "url", "", "the server is at `URL`")
	c.Flags().StringVar(&bearer, "bearer", "", "send the token that stands in the environment's `VARIABLE`")
	return c
}

// reaches begins a session with a server over HTTP, and ends it again.
func reaches(cmd *cobra.Command) func(address string, headers map[string]string) error {
	return func(address string, headers map[string]string) error {
		if _, err := mcpproxy.Target(address); err != nil {
			return err
		}
		return mcpconnect.Try(cmd.Context(), &mcpconnect.Options{URL: address, Headers: headers})
	}
}
