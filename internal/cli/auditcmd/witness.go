package auditcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/spf13/cobra"
)

func newWitness(s *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "witness", Short: "have the log's checkpoints cosigned, or cosign others'"})
	c.AddCommand(newWitnessAdd(s), newWitnessRemove(s), newWitnessList(s), newWitnessServe(s))
	return c
}

func newWitnessAdd(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "add KEY URL",
		Short: "have a witness cosign this daemon's checkpoints",
		Long: `Add a witness: its public key, as "ocipd audit witness serve" prints it, and its
address, http://HOST/PREFIX, https://HOST/PREFIX or unix:/PATH. The daemon sends
it each checkpoint from now on, and records that it was added. If the witness has
signed other records of the log, or more than there are, the daemon does not
start; a running daemon pauses all sending until you resume it.`,
		Example: "  ocipd audit witness add backup.example+1a2b3c4d+BF… http://backup.example:7421\n" +
			"  ocipd audit witness add other-user+1a2b3c4d+BF… unix:/run/witness/witness.sock",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := witness.ParsePlace(args[0], args[1])
			if err != nil {
				return cli.Usagef("cannot add the witness: %v", err)
			}
			dir, err := keysDir(s)
			if err != nil {
				return err
			}
			if err := witness.AddPlace(dir, p); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Stdout, "ok: %s is shown each checkpoint; it must know the log: ocipd audit witness serve --log KEY, with the key that ocipd audit key show prints\n", term.Printable(p.Key.Name()))
			return err
		},
	}
}

func newWitnessRemove(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "remove WITNESS",
		Short: "have a witness cosign this daemon's checkpoints no more",
		Long: `Take a witness off the list, by its name or its key. The daemon records that, at
once if it runs, else at its next start. What the witness has cosigned stays in
the directory of keys.`,
		Example: "  ocipd audit witness remove backup.example",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := keysDir(s)
			if err != nil {
				return err
			}
			removed, err := witness.RemovePlace(dir, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Stdout, "ok: %s is shown no more checkpoints\n", term.Printable(removed.Key.Name()))
			return err
		},
	}
}

// keysDir is the directory of this daemon's keys.
func keysDir(s *cli.Process) (string, error) {
	cfg, err := s.Places("store.url", "audit.keys")
	if err != nil {
		return "", err
	}
	return config.KeysPath(cfg, config.DatabasePath(cfg, s.Getenv)), nil
}

func newWitnessList(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Example: "  ocipd audit witness list",
		Short:   "list the witnesses of this daemon's log",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := keysDir(s)
			if err != nil {
				return err
			}
			list, err := witness.Places(dir)
			if err != nil {
				return err
			}
			notes, err := witness.Kept(dir)
			if err != nil {
				return err
			}
			for _, p := range list {
				seen := "has cosigned nothing yet"
				if size, at := p.Key.Largest(notes); size > 0 {
					seen = fmt.Sprintf("has cosigned %s, at %s", term.Count(int(size), "record"), at.Local().Format(time.DateTime))
				}
				fmt.Fprintf(s.Stdout, "%s %s\n  %s\n", term.Printable(p.Key.String()), term.Printable(p.URL), seen)
			}
			return nil
		},
	}
}

type witnessFlags struct {
	dir, listen, name string
	logs              []string
}

func newWitnessServe(s *cli.Process) *cobra.Command {
	var f witnessFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "cosign the checkpoints of other daemons' logs",
		Long: `Cosign checkpoints of logs (C2SP tlog-witness): of each log only those that extend
what was seen of it. No daemon is needed here. Run the witness as another user, or
on another machine, than the daemon whose log it cosigns. The first start creates
its key; each start prints the public key. The witness speaks plain HTTP: all it
says is signed, and nothing it is sent is secret.`,
		Example: "  ocipd audit witness serve --dir /var/lib/witness --name backup.example --listen 0.0.0.0:7421 --log log.pub\n" +
			"  ocipd audit witness serve --dir ~/witness --name other-user --listen unix:/run/witness/witness.sock --log log.pub",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveWitness(cmd.Context(), s, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.dir, "dir", "", "`DIR` of the witness's key and of what it has seen")
	flags.StringVar(&f.name, "name", "", "`NAME` of the witness, such as a host's")
	flags.StringVar(&f.listen, "listen", "", "`ADDRESS` to answer at: HOST:PORT or unix:/PATH")
	flags.StringArrayVar(&f.logs, "log", nil, "public `KEY` of a log to witness, or a file that holds it")
	cli.Required(c, "dir", "name", "listen", "log")
	return c
}

func serveWitness(ctx context.Context, s *cli.Process, f witnessFlags) error {
	keys := make([]string, len(f.logs))
	for i, text := range f.logs {
		if _, err := publicKey(text); err != nil {
			return err
		}
		keys[i] = textOrFile(text)
	}
	w, err := witness.Open(f.dir, f.name, time.Now, keys...)
	if err != nil {
		return err
	}
	return w.Serve(ctx, f.listen, func(address string) {
		fmt.Fprintln(s.Stdout, w.Key())
		fmt.Fprintf(s.Stderr, "answering at %s\n", term.Printable(address))
	})
}
