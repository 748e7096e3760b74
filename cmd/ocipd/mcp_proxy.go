package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/mcpproxy"
	"github.com/spf13/cobra"
)

func newMCPProxy(s *shell) *cobra.Command {
	var agent, token, given, unmapped string
	var hold time.Duration
	c := &cobra.Command{
		Use:   "mcp-proxy --agent ID [--map FILE] -- SERVER [ARG]...",
		Short: "have what an MCP server sends decided first",
		Long: `Start an MCP server over stdin and stdout, and have the daemon decide about what its
tools send, in the name of an agent. Everything else passes as it is. Which tools send
what to whom says a map: one that comes with ocipd, or --map; ocipd mcp-proxy explain
shows it. A tool that is in no map and has a text and a recipient is decided about too.

The agent has no app and speaks by a grant: ocipd task grant --agent ID --out FILE. Its
token stands in --token-file, OCIPD_TOKEN_FILE or OCIPD_TOKEN; the server does not see it.
What a person has to approve keeps its call open, and is then answered HELD and sent once
it is approved. Without a running daemon nothing is sent.`,
		Example: "  ocipd mcp-proxy --agent ann --token-file ~/ann.token -- npx -y mcp-discord\n" +
			"  claude mcp add slack -- ocipd mcp-proxy --agent ann --token-file ~/ann.token \\\n" +
			"    -- npx -y @modelcontextprotocol/server-slack\n" +
			"  ocipd mcp-proxy explain -- npx -y @modelcontextprotocol/server-slack",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, command []string) error {
			m, err := mcpproxy.MapOf(given, command)
			if err != nil {
				return err
			}
			if unmapped != "" {
				m.Unmapped = unmapped
				if err := m.Check(); err != nil {
					return cli.Usagef("%v", err)
				}
			}
			secret, err := s.Token(token)
			if err != nil {
				return err
			}
			if agent == "" || secret == "" {
				return cli.Usagef("cannot say who sends: name the agent with --agent, and its token's file with --token-file (ocipd task grant --agent ID --out FILE)")
			}
			socket, err := s.KernelSocket()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			link := &mcpproxy.Link{Token: secret, Agent: agent, NewID: uuid.NewString, Now: time.Now, Dial: func(ctx context.Context) (*client.Client, error) {
				return client.Dial(ctx, socket, client.WithDropEvents())
			}}
			defer link.Close()
			if err := link.Check(cmd.Context()); err != nil {
				// The server's other tools are of use without the daemon.
				log.Warn("nothing is sent until this is well", "error", err)
			}
			return mcpproxy.Run(cmd.Context(), &mcpproxy.Options{
				Map: m, Link: link, Command: command, Env: withoutToken(s.Env), In: s.Stdin, Out: s.Stdout, Stderr: s.Stderr, Hold: hold, Log: log, NewID: uuid.NewString, Now: time.Now,
			})
		},
	}
	c.Flags().StringVar(&agent, "agent", "", "send as the agent with this `ID`")
	c.Flags().StringVar(&token, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringVar(&given, "map", "", "use the map in `FILE`, or the one of this name that comes with ocipd")
	c.Flags().StringVar(&unmapped, "unmapped", "", "what becomes of tools that are in no map and look as if they sent messages: `gate`, ask (a person), refuse or pass")
	c.Flags().DurationVar(&hold, "hold", 4*time.Minute, "keep a call open for this `TIME` for a person")
	c.AddCommand(newMCPExplain(s))
	return c
}

func newMCPExplain(s *shell) *cobra.Command {
	var given string
	c := &cobra.Command{
		Use:   "explain [--map FILE] -- SERVER [ARG]...",
		Short: "show which tools of an MCP server are decided about",
		Long: `Start an MCP server, list its tools, and show for each whether the daemon decides about
it: by the map, by a guess from the names of its arguments, or not at all. What is guessed
is written as a map, to be put into a file for --map.`,
		Example: "  ocipd mcp-proxy explain -- npx -y mcp-discord > discord.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, command []string) error {
			m, err := mcpproxy.MapOf(given, command)
			if err != nil {
				return err
			}
			text, err := mcpproxy.Explain(cmd.Context(), m, command, withoutToken(s.Env), s.Stderr, s.Version)
			if err != nil {
				return err
			}
			_, err = s.Stdout.Write(text)
			return err
		},
	}
	c.Flags().StringVar(&given, "map", "", "use the map in `FILE`, or the one of this name that comes with ocipd")
	return c
}

// withoutToken is an environment without what an agent speaks by.
func withoutToken(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "OCIPD_TOKEN=") && !strings.HasPrefix(v, "OCIPD_TOKEN_FILE=") {
			rest = append(rest, v)
		}
	}
	return rest
}
