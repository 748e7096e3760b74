package main

import (
	"github.com/openclawos/ocipd/internal/cli/doctor"
	"github.com/openclawos/ocipd/internal/cli/runtimecmd"
	"github.com/spf13/cobra"
)

func newDoctor(s *shell) *cobra.Command {
	var asJSON, quiet, fix, noCanary bool
	c := &cobra.Command{
		Use: "doctor",
		Example: "  ocipd doctor\n" +
			"  ocipd doctor --quiet\n" +
			"  ocipd doctor --fix",
		Short: "check everything the daemon needs, and print the fix",
		Long: `Check the machine, the configuration, the rules for strangers, grants of
apps, signers, files and their modes, the daemon, its service, clock, disk, policy and
the end of the audit log. It also tries the gate of each agent runtime that ocipd
integrate has put behind the daemon with a canary, a message that the daemon must
refuse. OpenClaw's canary takes a turn of the agent's model; --no-canary leaves all of
them out. No daemon is needed; one may run. Each line is pass, warn or fail with the
fix; a fail makes the exit code 1. "ocipd audit verify" reads the whole log.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := doctor.New(cmd.Context(), &s.Process)
			if !noCanary {
				// Without a known place, there is no gate to test.
				d.Gates, _ = runtimecmd.Place(&s.Process)
			}
			return d.Run(asJSON, quiet, fix)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON lines")
	flags.BoolVarP(&quiet, "quiet", "q", false, "show only what does not pass")
	flags.BoolVar(&noCanary, "no-canary", false, "do not try the gates of agent runtimes")
	flags.BoolVar(&fix, "fix", false, "do what is safe: modes of own files, missing directories, dead sockets, the tombstone's copy")
	return c
}
