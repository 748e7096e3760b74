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
		Long: `Make the rows of a stopped daemon anew from its log, in a new database,
and say what differed. The daemon's own database is not changed. Columns that no record
holds are copied from it: who the counterparty of an exchange is, its session and
transcript; texts of requests; words and receivers of grants; who paused. Look at them,
and then put FILE in the place of the database. The command leaves and names each row
that the log does not fully describe, such as a deleted request, and each row that was
not written by the daemon. It then exits with 4, because a daemon may not start with the
new database.`,
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
			made, err := reader.Rebuild(cmd.Context(), args[0], key.Key())
			if err != nil {
				return errors.Join(err, os.RemoveAll(args[0]))
			}
			for i := range made.Differed {
				s.Say("%s", term.Printable(made.Differed[i].String()))
			}
			s.Say("%s in %s; what no record holds was copied: ocipd audit rebuild-state --help", term.Count(len(made.Differed), "difference"), term.Printable(database))
			for i := range made.Left {
				s.Say("left as it is: %s", term.Printable(made.Left[i].String()))
			}
			for _, row := range made.Altered {
				s.Say("not the daemon's: %s %s: somebody else has written it, and no daemon uses it", row.Table, term.Printable(row.Key))
			}
			if n := len(made.Left) + len(made.Altered); n > 0 {
				return fmt.Errorf("%s is not yet what the log says: %w; put a backup back (ocipd restore DIR), or look at them, put %[1]s in the place of the database, and go on with the rows as they are: %[3]s",
					term.Printable(args[0]), &audit.Fault{Problem: term.Count(n, "row") + " named above, of which the log does not say enough, or which somebody else has written"}, key.HowToAccept())
			}
			s.Say("ok: the rows in %s are what the log says", term.Printable(args[0]))
			return nil
		},
	}
}
