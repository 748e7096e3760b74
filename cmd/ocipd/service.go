package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/consolecmd"
	"github.com/openclawos/ocipd/internal/cli/service"
	"github.com/spf13/cobra"
)

func newService(s *shell) *cobra.Command {
	c := &cobra.Command{
		Use:   "service",
		Short: "run the daemon as a systemd user service",
	}
	cli.Group(c)
	c.AddCommand(newServiceInstall(s), newServiceUninstall(s), newServiceStatus(s))
	return c
}

func newServiceInstall(s *shell) *cobra.Command {
	var dryRun bool
	var want service.Wanted
	c := &cobra.Command{
		Use: "install",
		Example: "  ocipd service install\n" +
			"  ocipd service install --runner\n" +
			"  ocipd service install --console\n" +
			"  ocipd service install --dry-run",
		Short: "install the service and start it now and at each login",
		Long: `Write ocipd.service, ocipd.socket and ocipd-runner.service for your service
manager, with the path of this program, its manual pages and its completion for
bash, zsh and fish; then enable and start the first two, and with --runner the
third, which runs commands that a person has approved. With --console also write
ocipd-console.socket, which holds the address of the console's page from login on,
and ocipd-console.service, which a visit or "ocipd console" starts. Another
installed version is replaced and restarted. With --config the services read that
file. What a system package has installed for this program is not written again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := s.manager().Installation(cmd.Context(), s.shellFiles(cmd.Root()), dryRun)
			if err != nil {
				return err
			}
			want.Addresses = func(ctx context.Context, dry bool) ([]string, error) {
				return consolecmd.Addresses(ctx, &s.Process, dry)
			}
			return i.Install(want)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	c.Flags().BoolVar(&want.Runner, "runner", false, "run approved commands too, now and at each login")
	c.Flags().BoolVar(&want.Console, "console", false, "hold the console's address too, now and at each login")
	c.Flags().BoolVar(&want.NoStart, "no-start", false, "write the files alone")
	return c
}

func newServiceUninstall(s *shell) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:     "uninstall",
		Example: "  ocipd service uninstall",
		Short:   "stop the service and remove what install wrote",
		Long: `Stop the service and remove what "install" wrote. Configuration, state and the
program stay.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := s.manager().Installation(cmd.Context(), s.shellFiles(cmd.Root()), dryRun)
			if err != nil {
				return err
			}
			return i.Uninstall()
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	return c
}

func newServiceStatus(s *shell) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "status",
		Example: "  ocipd service status",
		Short:   "show the units and the running version",
		Long:    `Show the units and the running version. Exits with 3 if the service is not running.`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.manager().Report(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = s.PrintJSON(r)
			} else {
				err = s.manager().Print(r)
			}
			if err == nil && r.Service.State != "active" {
				return errors.Join(cli.ErrSaid, client.ErrNotRunning)
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// shellFiles returns the completion and the manual pages to install with the units, given
// the directories of data and configuration.
func (s *shell) shellFiles(root *cobra.Command) func(dataHome, configHome string) ([]service.File, error) {
	return func(dataHome, configHome string) ([]service.File, error) {
		var files []service.File
		for _, shell := range []struct {
			path string
			make func(*bytes.Buffer) error
		}{
			{filepath.Join(dataHome, "bash-completion", "completions", "ocipd"), func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) }},
			{filepath.Join(dataHome, "zsh", "site-functions", "_ocipd"), func(b *bytes.Buffer) error { return root.GenZshCompletion(b) }},
			{filepath.Join(configHome, "fish", "completions", "ocipd.fish"), func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) }},
		} {
			var text bytes.Buffer
			if err := shell.make(&text); err != nil {
				return nil, fmt.Errorf("cannot make %s: %w", shell.path, err)
			}
			files = append(files, service.File{Path: shell.path, Text: text.Bytes()})
		}
		pages, err := s.manPages(root)
		if err != nil {
			return nil, err
		}
		for _, p := range pages {
			files = append(files, service.File{Path: filepath.Join(dataHome, "man", "man1", p.name), Text: p.text})
		}
		return files, nil
	}
}

// manager is the service manager for the commands about the service.
func (s *shell) manager() *service.Manager { return &service.Manager{Process: &s.Process} }
