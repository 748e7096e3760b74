// Command ocipd is the kernel daemon of OpenClawOS: it stands between agents, decides which
// messages they may send to each other, and records the decisions.
//
// `ocipd serve` runs it in the foreground. The other commands talk to a running daemon over
// its operator socket, or read its files. Each command is one file. This package has flags,
// signals and exit codes; the packages under internal do everything else.
//
// Exit codes: 0 done, 1 failed, 2 used wrongly, 3 no daemon is running,
// 4 verification found a fault, 5 a message is held, 6 a message is refused.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/approvalcmd"
	"github.com/openclawos/ocipd/internal/cli/auditcmd"
	"github.com/openclawos/ocipd/internal/cli/configcmd"
	"github.com/openclawos/ocipd/internal/cli/consolecmd"
	"github.com/openclawos/ocipd/internal/cli/contactcmd"
	"github.com/openclawos/ocipd/internal/cli/contentcmd"
	"github.com/openclawos/ocipd/internal/cli/exchangecmd"
	"github.com/openclawos/ocipd/internal/cli/fleetcmd"
	"github.com/openclawos/ocipd/internal/cli/kernelcmd"
	"github.com/openclawos/ocipd/internal/cli/runtimecmd"
	"github.com/openclawos/ocipd/internal/cli/sendcmd"
	"github.com/openclawos/ocipd/internal/cli/taskcmd"
	"github.com/spf13/cobra"
)

// The linker sets these in released builds.
var version, commit string

func main() {
	os.Exit(run(catchSignals(os.Stderr), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// run is the whole program with its process's inputs as parameters, and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	s := &shell{Process: cli.Process{Stdin: stdin, Stdout: stdout, Stderr: stderr, Env: env, Version: buildVersion(), Interrupted: ctx.Done()}}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitDone
	}
	var wrong *cli.UsageError
	if !s.ran || errors.As(err, &wrong) {
		_ = term.Line(stderr, fmt.Sprintf("ocipd: %s (see: %s --help)", term.OneLine(err.Error()), cmd.CommandPath())) // nobody is left to be told
		return cli.ExitUsage
	}
	cli.Complain(stderr, err)
	return cli.ExitCode(err)
}

func newRoot(s *shell) *cobra.Command {
	root := &cobra.Command{
		Use:   "ocipd",
		Short: "the kernel daemon of OpenClawOS",
		Long: "ocipd stands between agents, decides what they may say to each other, and keeps the record of it.\n\n" +
			"Without a command, at a terminal, it shows one live screen: status, approval requests, the log, and exchanges.",
		Example: "  ocipd demo\n" +
			"  ocipd config init\n" +
			"  ocipd check telegram:4711 'I promise it by Friday.'",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cli.Group(root)
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && s.Interactive() {
			return kernelcmd.Home(cmd.Context(), &s.Process)
		}
		return help(cmd, args)
	}
	cli.ShowHelp(root)
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "print the version")
	flags := root.PersistentFlags()
	flags.StringVar(&s.ConfigFile, "config", "", "read this configuration `FILE`, not $XDG_CONFIG_HOME/openclawos/ocipd.yaml")
	flags.StringVar(&s.Socket, "socket", "", "`PATH` of the kernel socket; the operator socket is beside it")
	for _, g := range commandGroups(s) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(toolsGroup)
	root.SetCompletionCommandGroupID(toolsGroup)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "print the completion script of a shell"
			cli.Group(c)
			for _, of := range c.Commands() {
				of.Short, of.Example = "print the completion script of "+of.Name(), "  ocipd completion "+of.Name()
			}
		}
	}
	s.complete(root)
	s.mark(root)
	return root
}

// commandGroup is a group of subcommands in the help.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// toolsGroup is the group of cobra's own commands.
const toolsGroup = "Tools"

// commandGroups lists the subcommands in the order of the help.
func commandGroups(s *shell) []commandGroup {
	p := &s.Process
	return []commandGroup{
		{"Run", []*cobra.Command{newDemo(s), newServe(s), newService(s), kernelcmd.NewStatus(p), newDoctor(s), newBackup(s), newRestore(s), fleetcmd.New(p), runtimecmd.NewIntegrate(p), sendcmd.NewSend(p), sendcmd.NewCheck(p)}},
		{"Decide", []*cobra.Command{consolecmd.New(p), approvalcmd.New(p), approvalcmd.NewPreapprovals(p), approvalcmd.NewJudge(p), exchangecmd.New(p), contactcmd.New(p), kernelcmd.NewPause(p), kernelcmd.NewResume(p), kernelcmd.NewQueue(p)}},
		{"Agents and tasks", []*cobra.Command{taskcmd.New(p), taskcmd.NewRunner(p), taskcmd.NewProse(p), taskcmd.NewLobster(p), runtimecmd.NewACP(p), runtimecmd.NewMCP(p), runtimecmd.NewMCPProxy(p), runtimecmd.NewMCPConnect(p), runtimecmd.NewA2AProxy(p), runtimecmd.NewToolGate(p), runtimecmd.NewHook(p)}},
		{"Evidence", []*cobra.Command{auditcmd.New(p)}},
		{"Rules", []*cobra.Command{configcmd.New(p), configcmd.NewPolicy(p), contentcmd.New(p), contentcmd.NewMeasure(p)}},
		{toolsGroup, []*cobra.Command{kernelcmd.NewCall(p), newProtocol(s), kernelcmd.NewDebug(p), newVersion(s), newMan(s)}},
	}
}
