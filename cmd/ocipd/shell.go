package main

import (
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// shell is a process with the commands in it.
type shell struct {
	cli.Process

	// ran is set when a command begins: an earlier error is wrong usage.
	ran bool
}

// mark makes every command below c set ran.
func (s *shell) mark(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			s.ran = true
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		s.mark(sub)
	}
}
