package auditcmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/spf13/cobra"
)

func newRebuild(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:     "rebuild-state FILE",
		Example: "  ocipd audit rebuild-state new.db",
		Short:   "make the rows of a stopped daemon anew from its log, in a new database",
		Long: `Make the rows of a stopped daemon anew from its log, in a new database, and say what
differed. The daemon's own database is not changed. Columns that no record holds are
copied from it: who the counterparty of an exchange is, its session and transcript;
texts of requests; words and receivers of grants; who paused. Look at them, and then
put FILE in the place of the database. What the log does not say enough of, such as a
request that was deleted, is left as it is and named, and ends the command with exit
code 4.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.Places("store.url", "audit.keys")
			if err != nil {
				return err
			}
			database := config.DatabasePath(cfg, s.Getenv)
			if _, err := os.Lstat(args[0]); err == nil {
				return cli.Usagef("%s is there already: name a new file", args[0])
			}
			key, err := keyring.ReadRows(config.KeysPath(cfg, database))
			if err != nil {
				return fmt.Errorf("cannot seal rows: %w", err)
			}
			reader, err := store.OpenReader(cmd.Context(), database)
			if err != nil {
				return err
			}
			defer reader.Close()
			differed, left, err := reader.Rebuild(cmd.Context(), args[0], key.Key())
			if err != nil {
				return errors.Join(err, os.RemoveAll(args[0]))
			}
			for i := range differed {
				s.Say("%s", term.Printable(differed[i].String()))
			}
			s.Say("%s in %s; what no record holds was copied: ocipd audit rebuild-state --help", term.Count(len(differed), "difference"), term.Printable(database))
			if len(left) > 0 {
				for i := range left {
					s.Say("left as it is: %s", term.Printable(left[i].String()))
				}
				return fmt.Errorf("%s is not yet what the log says: %w", args[0], &audit.Fault{Problem: term.Count(len(left), "difference") + " left, of which the log does not say enough"})
			}
			s.Say("ok: the rows in %s are what the log says", term.Printable(args[0]))
			return nil
		},
	}
}
