package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/backup"
	"github.com/spf13/cobra"
)

func newBackup(s *shell) *cobra.Command {
	var without backup.Without
	var asJSON bool
	c := &cobra.Command{
		Use:     "backup DIR",
		Example: "  ocipd backup /mnt/backup/ocipd-monday",
		Short:   "copy the daemon's state, also while it runs",
		Long: `Copy the database, the checkpoints kept outside it, the signing key and the digest
keys into DIR. The daemon may be running. DIR is created, whole or not at all, and
the copy is verified. A daemon that runs records that it was made. Each part but the database can be left out; configuration
and policy are not included. Store the backup as safely as the original: it holds
pending messages in the clear, and its keys can sign as this log.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.statePlaces()
			if err != nil {
				return err
			}
			// A running daemon records the backup, and the copy contains that record.
			err = s.Operate(cmd.Context(), "backup.note", &api.BackupNoteParams{Directory: cli.Absolute(args[0])}, nil)
			noted := err == nil
			if err != nil && !errors.Is(err, client.ErrNotRunning) {
				return fmt.Errorf("cannot put the backup on record: %w", err)
			}
			made, err := backup.Make(cmd.Context(), p, cli.Absolute(args[0]), without)
			if err != nil {
				return err
			}
			if !noted {
				fmt.Fprintln(s.Stderr, "the backup is not on record: the daemon does not run")
			}
			return s.Report(asJSON, made, "backed up to %s: %s, with messages that wait in the clear\n", term.Printable(args[0]), contents(&made))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&without.Checkpoints, "without-checkpoints", false, "leave out the checkpoints kept outside the log")
	flags.BoolVar(&without.SigningKey, "without-signing-key", false, "leave out the key that signs the log; a restored daemon needs it")
	flags.BoolVar(&without.DigestKeys, "without-digest-keys", false, "leave out the keys of digests; a restored daemon needs them, and audit forget does not reach a copy")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newRestore(s *shell) *cobra.Command {
	var older, anew, yes, asJSON bool
	c := &cobra.Command{
		Use: "restore DIR | --new-log",
		Example: "  ocipd restore /mnt/backup/ocipd-monday\n" +
			"  ocipd restore --new-log",
		Short: "put a backup in the place of a stopped daemon's state",
		Long: `Verify a backup and replace the state of this daemon with it; the daemon must not
be running. The present state is moved aside into a directory
before-restore-TIME, and keys that fit the backup stay in place. If the
checkpoints kept here know a longer log, the backup is older and its use would
lose records: it is refused unless --older is given, and the next start records
the loss.

If there is no backup, and the signing key, the database or both are lost,
--new-log moves what is left aside. The next start begins a new log with a new
key; its first records say what is known of the former one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.statePlaces()
			switch {
			case err != nil:
				return err
			case anew == (len(args) == 1) || anew && older:
				return cli.Usagef("name the backup, or say --new-log if there is none")
			case anew:
				return s.beginLog(cmd.Context(), p, yes, asJSON)
			}
			done, err := backup.Restore(cmd.Context(), p, cli.Absolute(args[0]), older, time.Now())
			if _, is := errors.AsType[*backup.OlderError](err); is {
				return fmt.Errorf("%w; nothing was done: if you mean it, repeat with --older", err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(done)
			}
			fmt.Fprintf(s.Stdout, "restored: %s\nwhat was there is in %s, beside its place\n", contents(&done.Contents), done.Aside)
			if done.RowKeyLeft {
				fmt.Fprintln(s.Stdout, "keys/rows.json of the backup was not taken: a backup without the signing key has none, so somebody else put it there; if the rows are not sealed with the key of this daemon, the next start says how to accept them")
			}
			if done.Lost > 0 {
				fmt.Fprintf(s.Stdout, "%s that were signed since are not in it\n", term.Count(int(done.Lost), "record"))
			}
			fmt.Fprintln(s.Stdout, "the next start puts the restoration on record, pauses sending until you resume it, and takes back approvals, grants and tokens; the runner's ledger is in no backup")
			fmt.Fprintln(s.Stdout, "start the daemon as before: ocipd serve, or ocipd service")
			return nil
		},
	}
	flags := c.Flags()
	flags.BoolVar(&older, "older", false, "restore a state that is older than what checkpoints kept here have seen")
	flags.BoolVar(&anew, "new-log", false, "restore nothing: move the state aside, and begin a new log that says what is known of the former one")
	flags.BoolVar(&yes, "yes", false, "do not ask before a new log begins")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// beginLog moves the state aside for a new log.
func (s *shell) beginLog(ctx context.Context, p backup.Places, yes, asJSON bool) error {
	f, err := backup.KnownOf(ctx, p)
	if err != nil {
		return fmt.Errorf("cannot begin a new log: %w", err)
	}
	if !asJSON {
		for _, fact := range [][2]string{
			{"log", f.Origin}, {"records", strconv.FormatUint(f.Records, 10)}, {"last hash", f.Hash}, {"public keys", strings.Join(f.Keys, ", ")}, {"problem", f.Problem},
		} {
			if fact[1] != "" {
				fmt.Fprintf(s.Stdout, "  %-12s %s\n", fact[0], term.Printable(fact[1]))
			}
		}
	}
	if !yes {
		if agreed, err := s.Ask(ctx, "Move this log aside? What waits is not sent, and approvals, grants and tokens end."); err != nil || !agreed {
			return err
		}
	}
	aside, err := backup.BeginAnew(ctx, p, f, time.Now())
	if err != nil {
		return fmt.Errorf("cannot begin a new log: %w; what was moved is in %s, beside its place", err, aside)
	}
	return s.Report(asJSON, struct {
		*backup.Former
		Aside string `json:"aside"`
	}{f, aside}, "moved to %s, beside its place; keep it: it is the evidence\nthe next start begins a new log, puts these facts on record and pauses sending until you resume it\n", aside)
}

// contents describes a backup.
func contents(c *backup.Contents) string {
	has := func(is bool) string {
		if is {
			return "with"
		}
		return "without"
	}
	return fmt.Sprintf("%s (%s), %s checkpoints, %s the signing key, %s the keys of digests, without the runner's ledger", term.Count(int(c.Records), "record"), term.Mebibytes(c.Bytes),
		has(c.Witnessed > 0), has(c.SigningKey), has(c.DigestKeys))
}

// statePlaces are the places of this daemon's state.
func (s *shell) statePlaces() (backup.Places, error) {
	cfg, err := s.Places("store.url", "audit.keys", "audit.checkpoints", "audit.mirror")
	if err != nil {
		return backup.Places{}, err
	}
	database := config.DatabasePath(cfg, s.Getenv)
	if database == "" {
		return backup.Places{}, errors.New("cannot tell where the database is: HOME is not set, and store.url names no file")
	}
	return backup.Places{
		Database: database, Checkpoints: config.CheckpointsPath(cfg, database), Keys: config.KeysPath(cfg, database),
		Mirror: config.MirrorPath(cfg, database), Socket: s.OperatorSocket,
	}, nil
}
