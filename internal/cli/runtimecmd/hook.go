package runtimecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/bridge/hook"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/spf13/cobra"
)

// gateIdle ends a resident gate that nobody has asked for so long.
const gateIdle = 10 * time.Minute

// passedSocket is the file of the socket that the starter of the gate passes, as service managers
// number them: sd_listen_fds(3).
const passedSocket = 3

// NewHook returns the command that runtimes run before each call of a tool.
func NewHook(s *cli.Process) *cobra.Command {
	var file string
	var without []string
	var serve bool
	c := &cobra.Command{
		Use:   "hook RUNTIME [--token-file FILE]",
		Short: "answer one hook of an agent runtime",
		Long: `Answer one hook of an agent runtime: read its JSON from stdin, have the daemon decide about
the call of a tool, and answer in the form and with the exit code of the runtime. ocipd
integrate enters this command. A call that cannot be decided is refused.

The first hook starts the resident gate, which holds the connection to the daemon and ends
after 10 minutes without a question. It listens at hooks.sock beside the daemon's default
socket. With --serve the command is that gate, on the socket that it gets as file 3.

Runtimes: ` + strings.Join(hook.Names(), ", ") + `.`,
		Example: "  ocipd integrate gemini\n" +
			"  ocipd hook gemini --token-file ~/ann.token",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return hook.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if serve {
				if len(args) > 0 || file != "" || without != nil {
					return cli.Usagef("the gate serves all runtimes: leave the others out beside --serve")
				}
				return serveHooks(cmd.Context(), s)
			}
			if len(args) == 0 {
				return cli.Usagef("cannot say whose hook this is: name the runtime: %s", strings.Join(hook.Names(), ", "))
			}
			row := hook.Find(args[0])
			if row == nil {
				return cli.Usagef("there is no runtime %q with such hooks: %s", args[0], strings.Join(hook.Names(), ", "))
			}
			said := answerHook(cmd.Context(), s, row, file, without)
			if _, err := s.Stdout.Write(said.Out); err != nil {
				return err
			}
			if _, err := s.Stderr.Write(said.Err); err != nil {
				return err
			}
			if said.Exit != 0 {
				return &cli.Verdict{Code: said.Exit}
			}
			return nil
		},
	}
	c.Flags().StringVar(&file, "token-file", "", "act by the grant whose token stands in `FILE`")
	c.Flags().StringArrayVar(&without, "without", nil, "MCP `SERVER` whose calls are decided by ocipd mcp-proxy; give the flag once for each")
	c.Flags().BoolVar(&serve, "serve", false, "be the resident gate")
	return c
}

// answerHook answers one hook. What keeps it from asking is the reason of a refusal.
func answerHook(ctx context.Context, s *cli.Process, row *hook.Row, file string, without []string) hook.Said {
	self, err := os.Executable()
	if err != nil {
		return hook.Refuse(row, err)
	}
	token, err := s.Token(file)
	if err == nil && token == "" {
		err = errors.New("nothing says whose agent this is: name the file of its token with --token-file")
	}
	if err != nil {
		return hook.Refuse(row, err)
	}
	daemon, err := s.KernelSocket()
	if err == nil {
		daemon, err = filepath.Abs(daemon)
	}
	if err != nil {
		return hook.Refuse(row, err)
	}
	return hook.Run(ctx, &hook.Options{
		Row: row, In: s.Stdin, Getenv: s.Getenv, Gate: config.HooksPath(s.Getenv),
		Daemon: daemon, Token: token, Without: without, Start: []string{self, "hook", "--serve"},
	})
}

// serveHooks serves the resident gate on the socket that was passed.
func serveHooks(ctx context.Context, s *cli.Process) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	g := &hook.Gate{Program: self, Idle: gateIdle, Log: slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	// A service manager keeps its socket.
	if err := g.Listen(os.NewFile(passedSocket, "hooks.sock"), s.Getenv("LISTEN_FDS") != ""); err != nil {
		return fmt.Errorf("cannot serve hooks: no socket was passed as file %d; a hook starts the gate by itself: %w", passedSocket, err)
	}
	return g.Serve(ctx)
}
