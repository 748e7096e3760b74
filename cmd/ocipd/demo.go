package main

import (
	"github.com/openclawos/ocipd/internal/cli/demo"
	"github.com/spf13/cobra"
)

func newDemo(s *shell) *cobra.Command {
	var fast bool
	c := &cobra.Command{
		Use: "demo",
		Example: "  ocipd demo\n" +
			"  ocipd demo --fast",
		Short: "show messages decided, delivered and recorded",
		Long: `Start a daemon on a private socket in a temporary directory, connect apps to it,
and play short scenes. Each scene shows what the apps saw beside what the log
recorded; at the end the log is verified. Everything is removed afterwards. On a
terminal the demo waits for Enter after each scene.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Options{
				Stdin: s.Stdin, Stdout: s.Stdout, Screen: s.Screen(), Getenv: s.Getenv, Pause: s.Interactive() && !fast,
			})
		},
	}
	c.Flags().BoolVar(&fast, "fast", false, "do not wait between scenes")
	return c
}
