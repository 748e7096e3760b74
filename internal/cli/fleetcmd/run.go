package fleetcmd

import (
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/natsline"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/memory"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/spf13/cobra"
)

func newRun(s *cli.Process) *cobra.Command {
	var ca string
	c := &cobra.Command{
		Use:   "run BROKER",
		Short: "carry messages between this daemon and the other hosts, over a broker",
		Long: `Carry the messages of the fleet between this daemon and the other hosts, over
the NATS broker at the URL BROKER, until interrupted. Each host of the fleet runs
this beside its daemon; "ocipd fleet broker" writes the broker's configuration.

The daemons seal and sign the messages: this command and the broker can delay
them, and nothing else. It logs in with a key of its own, which "ocipd fleet
join" has made. A message goes to the other host directly if that is there; else
the broker stores up to 64 of them, and the others wait at this daemon.`,
		Example: "  ocipd fleet run tls://broker.example.com:4222",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.Places("store.url", "audit.keys")
			if err != nil {
				return err
			}
			if err := boundMemory(); err != nil {
				return err
			}
			key, err := keyring.ReadLine(config.KeysPath(cfg, config.DatabasePath(cfg, s.Getenv)))
			if err != nil {
				return err
			}
			looks := time.NewTicker(memory.Every)
			defer looks.Stop()
			go memory.GiveBack(cmd.Context(), memory.Options{Looks: looks.C, Shrink: func() {}})
			return natsline.Run(cmd.Context(), natsline.Options{Dial: s.DialOperator, Broker: args[0], CA: ca, Key: key, Say: said(s)})
		},
	}
	c.Flags().StringVar(&ca, "ca", "", "trust the broker's certificate if one of this `FILE` has signed it")
	return c
}

// said prints what a carrier says.
func said(s *cli.Process) func(format string, args ...any) {
	return func(format string, args ...any) { s.Say("%s", term.Printable(fmt.Sprintf(format, args...))) }
}
