package kernelcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

// NewDebug returns the commands that profile a daemon.
func NewDebug(p *cli.Process) *cobra.Command {
	s := &command{p}
	c := cli.Group(&cobra.Command{Use: "debug", Short: "take profiles of the running daemon"})
	c.AddCommand(newDebugPprof(s))
	return c
}

func newDebugPprof(s *command) *cobra.Command {
	var file string
	var length time.Duration
	c := &cobra.Command{
		Use: "pprof NAME",
		Example: "  ocipd debug pprof heap\n" +
			"  ocipd debug pprof cpu --for 30s -o busy.pprof",
		Short: "take a profile of the running daemon (" + strings.Join(api.Profiles(), ", ") + ")",
		Long: "Take a profile of the running daemon, in the format of go tool pprof. It goes over the\n" +
			"operator socket; apps cannot ask for one. Profiles hold names of functions and numbers,\n" +
			"no messages.",
		Args:      cobra.ExactArgs(1),
		ValidArgs: api.Profiles(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if length%time.Second != 0 {
				return cli.Usagef("cannot watch for %s: want whole seconds", length)
			}
			return s.profile(cmd.Context(), api.ProfileParams{Name: args[0], Seconds: int(length / time.Second)}, file)
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "", "write to this `FILE` (default NAME.pprof; - is stdout)")
	c.Flags().DurationVar(&length, "for", 0, "`TIME` to watch the processor for, in whole seconds (default 10s)")
	return c
}

// profile asks the daemon for a profile and writes it.
func (s *command) profile(ctx context.Context, p api.ProfileParams, file string) (err error) {
	if problems := members.Check(&p); len(problems) > 0 {
		return cli.Usagef("cannot take a profile: %s: %s", problems[0].Path, problems[0].Message)
	}
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	out := s.Stdout
	if file == "" {
		file = p.Name + ".pprof"
	}
	if file != "-" {
		f, failure := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if failure != nil {
			return fmt.Errorf("cannot write the profile: %w", failure)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	} else if term.IsTerminal(s.Stdout) {
		return cli.Usagef("cannot write a profile to a terminal; name a file with -o")
	}
	size := 0
	err = c.Each(ctx, "debug.profile", p, func(chunk jsontext.Value) error {
		var part api.ProfileChunk
		if err := json.Unmarshal(chunk, &part); err != nil {
			return fmt.Errorf("cannot read the profile: %w", err)
		}
		size += len(part.Data)
		if _, err := out.Write(part.Data); err != nil {
			return fmt.Errorf("cannot write the profile: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if file != "-" {
		_, err = fmt.Fprintf(s.Stdout, "%s: %d bytes; look at it with: go tool pprof %s\n", term.Printable(file), size, term.Printable(file))
	}
	return err
}
