package main

import (
	"github.com/openclawos/ocipd/internal/doctor"
	"github.com/spf13/cobra"
)

func newDoctor(s *shell) *cobra.Command {
	var asJSON, quiet, fix bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "check everything the daemon needs, and say what to do",
		Long: `Check the machine, the configuration, what holds towards strangers, what apps may do,
who decides, files and their modes, the daemon, its service, the clock, the disk, the
policy and the end of the audit log. It needs no daemon and may run beside one. Each
line is pass, warn or fail, with what to do about it; one that fails makes the exit
code 1. "ocipd audit verify" reads the whole log.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor.New(cmd.Context(), &s.Process).Run(asJSON, quiet, fix)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON lines")
	flags.BoolVarP(&quiet, "quiet", "q", false, "show only what does not pass")
	flags.BoolVar(&fix, "fix", false, "do what is safe: modes of own files, missing directories, dead sockets, the tombstone's copy")
	return c
}
