package runtimecmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/bridge/gatelink"
	"github.com/openclawos/ocipd/internal/bridge/mcpprobe"
	"github.com/openclawos/ocipd/internal/bridge/mcpproxy"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewMCPProxy returns the command that decides about the calls of an MCP server.
func NewMCPProxy(s *cli.Process) *cobra.Command {
	p := &mcpProxy{Process: s}
	c := &cobra.Command{
		Use:   "mcp-proxy --agent ID [--map FILE] {-- SERVER [ARG]... | --url URL}",
		Short: "have each call of an MCP server decided first",
		Long: `Start an MCP server over stdin and stdout, and have the daemon decide about each call of its tools,
in the name of an agent: about a call that sends a message as about the agent's own messages, and about
all other calls and their results as tool calls ("tools" of the configuration). A map describes which
tools send what to whom. ocipd has maps for many servers and finds the right one by itself; --map names
another, and ocipd mcp-proxy explain shows it. A tool that is in no map but has a text and a recipient
counts as one that sends.

The agent has no app and speaks by a grant: ocipd task grant --agent ID --out FILE. Its token stands in
--token-file, OCIPD_TOKEN_FILE or OCIPD_TOKEN; the server does not see it. A message that needs a person's
approval keeps its call open for --hold; then the call is answered HELD, and the message is sent once it
is approved. Without a running daemon no tool is called.

With --url, the server is one over HTTP. Its clients connect to an address on this machine, which the
command prints. The address stays the same, and only a holder of the agent's token can know it.`,
		Example: "  ocipd mcp-proxy --agent ann --token-file ~/ann.token -- npx -y mcp-discord\n" +
			"  claude mcp add slack -- ocipd mcp-proxy --agent ann --token-file ~/ann.token \\\n" +
			"    -- npx -y @modelcontextprotocol/server-slack\n" +
			"  ocipd mcp-proxy explain -- npx -y @modelcontextprotocol/server-slack",
		RunE: func(cmd *cobra.Command, command []string) error { return p.run(cmd.Context(), command) },
	}
	c.Flags().StringVar(&p.agent, "agent", "", "send as the agent with this `ID`")
	c.Flags().StringVar(&p.tokenFile, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringVar(&p.given, "map", "", "use the map in `FILE`, or the one of this name that comes with ocipd")
	c.Flags().StringVar(&p.name, "name", "", "the server's `NAME` in its client's list: policies know it by that, and the channel of a server without a map is mcp-NAME")
	c.Flags().StringVar(&p.unmapped, "unmapped", "", "what becomes of tools that are in no map and look as if they sent messages: `gate`, ask (a person), refuse or pass (as calls of tools)")
	c.Flags().StringVar(&p.address, "url", "", "the server is the one over HTTP at `URL`")
	c.Flags().StringVar(&p.listen, "listen", "127.0.0.1:7420", "with --url, serve clients at `ADDRESS`")
	c.Flags().DurationVar(&p.hold, "hold", 4*time.Minute, "keep a call open for this `TIME` for a person")
	c.AddCommand(newMCPExplain(s))
	return c
}

// mcpProxy is one proxy with its options.
type mcpProxy struct {
	*cli.Process
	agent, tokenFile, given, unmapped, address, listen, name string
	hold                                                     time.Duration
}

// run serves the client of a server until one of them ends.
func (p *mcpProxy) run(ctx context.Context, command []string) error {
	target, m, err := serverOf(p.address, p.given, p.name, command)
	if err != nil {
		return err
	}
	if p.unmapped != "" {
		m.Unmapped = p.unmapped
		if err := m.Check(); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	link, err := newLink(p.Process, p.agent, p.tokenFile, "sends")
	if err != nil {
		return err
	}
	defer link.Close()
	log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := link.Check(ctx); err != nil {
		// The daemon may start before the first call.
		log.Warn("no tool is called until this is well", "error", err)
	}
	o := &mcpproxy.Options{
		Given: p.given != "", Name: p.name, Origin: sourceOf(p.Process, p.name, cmp.Or(p.name, m.Name), p.address, command).Origin(link.Token),
		Map: m, Link: link, Command: command, Env: withoutToken(p.Env), In: p.Stdin, Out: p.Stdout, Stderr: p.Stderr, Hold: p.hold, Log: log, NewID: newID, Now: time.Now,
	}
	if target == nil {
		return mcpproxy.Run(ctx, o)
	}
	if err := speaks(ctx, target, log); err != nil {
		return err
	}
	l, err := mcpproxy.Listen(ctx, p.listen)
	if err != nil {
		return err
	}
	path := mcpproxy.Path(link.Token, target)
	fmt.Fprintf(p.Stdout, "http://%s%s\n", l.Addr(), path)
	return mcpproxy.Serve(ctx, o, l, target, path)
}

// newLink returns the link of a proxy to the daemon. does is the verb for the agent in an error.
func newLink(s *cli.Process, agent, tokenFile, does string) (*gatelink.Link, error) {
	secret, err := s.Token(tokenFile)
	if err != nil {
		return nil, err
	}
	if agent == "" || secret == "" {
		return nil, cli.Usagef("cannot say who %s: name the agent with --agent, and its token's file with --token-file (ocipd task grant --agent ID --out FILE)", does)
	}
	socket, err := s.KernelSocket()
	if err != nil {
		return nil, err
	}
	return &gatelink.Link{Token: secret, Agent: agent, NewID: newID, Now: time.Now, Dial: func(ctx context.Context) (*client.Client, error) {
		return client.Dial(ctx, socket, client.WithDropEvents())
	}}, nil
}

func newMCPExplain(s *cli.Process) *cobra.Command {
	var given, address string
	c := &cobra.Command{
		Use:   "explain [--map FILE] {-- SERVER [ARG]... | --url URL}",
		Short: "show which tools of an MCP server are decided about",
		Long: `Start an MCP server and list its tools. For each, show whether the daemon
decides about it as a message (by the map, or by a guess from the names of its
arguments) or as a tool call. The output is a map, which you can put into a file for
--map.`,
		Example: "  ocipd mcp-proxy explain -- npx -y mcp-discord > discord.yaml",
		RunE: func(cmd *cobra.Command, command []string) error {
			target, m, err := serverOf(address, given, "", command)
			if err != nil {
				return err
			}
			text, err := mcpproxy.Explain(cmd.Context(), m, given != "", target, command, withoutToken(s.Env), s.Stderr, s.Version)
			if err != nil {
				return err
			}
			_, err = s.Stdout.Write(text)
			return err
		},
	}
	c.Flags().StringVar(&given, "map", "", "use the map in `FILE`, or the one of this name that comes with ocipd")
	c.Flags().StringVar(&address, "url", "", "the server is the one over HTTP at `URL`")
	return c
}

// newID makes an id that sorts after earlier ones, so that the daemon's rows with new ids
// are next to each other.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// speaks refuses a server that does not speak MCP.
func speaks(ctx context.Context, target *url.URL, log *slog.Logger) error {
	unsure, err := mcpprobe.Speaks(ctx, target)
	if unsure != "" {
		log.Warn("it is not known whether the server speaks MCP; what its clients say is decided in any case", "asked to begin, it says", unsure)
	}
	return err
}

// sourceOf distinguishes the server from others with its name. A server over HTTP gets
// nothing from this process's environment.
func sourceOf(s *cli.Process, name, shown, address string, command []string) *mcpproxy.Source {
	if address != "" {
		return &mcpproxy.Source{Name: name, Shown: shown, Address: address}
	}
	return &mcpproxy.Source{Name: name, Shown: shown, Command: command, Env: withoutToken(s.Env), Folder: workingFolder()}
}

// workingFolder is the folder in which the server starts. If it is unknown, it is unique to
// this session.
func workingFolder() string {
	folder, err := os.Getwd()
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return newID()
	}
	return folder
}

// serverOf is the server over HTTP or the command, with its map.
func serverOf(address, given, name string, command []string) (target *url.URL, m *toolmap.Map, err error) {
	if (address == "") == (len(command) == 0) {
		return nil, nil, cli.Usagef("name either the server's command, behind --, or its address with --url")
	}
	if address != "" {
		if target, err = mcpproxy.Target(address); err != nil {
			return nil, nil, cli.Usagef("%v", err)
		}
		command = []string{target.Hostname()}
	}
	m, err = toolmap.Of(given, name, command)
	return target, m, err
}

// withoutToken removes the agent's token from an environment.
func withoutToken(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "OCIPD_TOKEN=") && !strings.HasPrefix(v, "OCIPD_TOKEN_FILE=") {
			rest = append(rest, v)
		}
	}
	return rest
}
