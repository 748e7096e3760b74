package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/spf13/cobra"
)

type configFlags struct {
	at                uint64
	database          string
	directory, asJSON bool
}

func newConfig(s *cli.Process) *cobra.Command {
	var f configFlags
	c := &cobra.Command{
		Use:   "config [PATH]",
		Short: "print the configuration that was in force at a record",
		Long: `Print the configuration that was in force at a record, as YAML with secrets
masked: from the log alone, by the records of all configurations that were put in
force. Its SHA-256 is the digest on record. With PATH, a copy of the log is read: a
database, a directory with the files of a mirror, or one of these files. --directory
prints the entries of its directory file instead, a line of JSON each.`,
		Example: "  ocipd audit config\n" +
			"  ocipd audit config --at 4711 >then.yaml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pathOf(args, f.database)
			if err != nil {
				return err
			}
			return showConfig(cmd.Context(), s, path, f)
		},
	}
	c.Flags().Uint64Var(&f.at, "at", 0, "the number of the `RECORD`; the last one unless set")
	c.Flags().BoolVar(&f.directory, "directory", false, "print the entries of the directory file")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&f.database, "database", "", "read this database `FILE`, such as a copy")
	c.MarkFlagsMutuallyExclusive("directory", "json")
	return c
}

// errEnough ends the reading of a log.
var errEnough = errors.New("no more is wanted")

func showConfig(ctx context.Context, s *cli.Process, path string, f configFlags) error {
	log, err := openAll(ctx, s, path)
	if err != nil {
		return err
	}
	defer log.Close()
	target, last := f.at, uint64(0)
	if target == 0 {
		target = 1<<64 - 1
	}
	replay := configlog.NewReplay(target)
	err = log.EachLine(ctx, 0, func(seq uint64, line []byte) error {
		last = seq
		more, err := replay.Add(seq, line)
		if err == nil && !more {
			err = errEnough
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("cannot tell which configuration was in force: %w", err)
	}
	if f.at > last {
		return fmt.Errorf("there is no record %d: the last one is %d", f.at, last)
	}
	found, err := replay.InForce()
	if errors.Is(err, configlog.ErrUnknown) {
		return fmt.Errorf("cannot tell which configuration was in force at record %d: the records that say it were removed, or are of a version that wrote none", min(target, last))
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		return s.PrintJSON(configReport{At: min(target, last), Seq: found.Seq, Time: found.Time, By: found.By, File: found.File, Digest: found.Digest, Config: found.Text, Directory: found.Directory})
	}
	since := "since a record that was removed"
	if found.Seq > 0 {
		since = fmt.Sprintf("since record %d of %s, by %s", found.Seq, found.Time.Local().Format(time.DateTime), term.Printable(found.By))
	}
	fmt.Fprintf(s.Stderr, "in force at record %d, %s: %s\n", min(target, last), since, found.Digest)
	out := found.Text
	if f.directory {
		out = strings.Join(append(found.Directory, ""), "\n")
	}
	_, err = fmt.Fprint(s.Stdout, out)
	return err
}

// configReport is the output of `ocipd audit config --json`.
type configReport struct {
	At        uint64    `json:"at"`
	Seq       uint64    `json:"since,omitzero"`
	Time      time.Time `json:"time,omitzero"`
	By        string    `json:"by,omitempty"`
	File      string    `json:"file,omitempty"`
	Digest    string    `json:"digest"`
	Config    string    `json:"config"`
	Directory []string  `json:"directory,omitempty"`
}

// wholeLog reads every record of a log.
type wholeLog interface {
	EachLine(ctx context.Context, after uint64, visit func(seq uint64, line []byte) error) error
	Close() error
}

// openAll opens a log from its first record: a copy, or this daemon's log whether or not it runs.
func openAll(ctx context.Context, s *cli.Process, path string) (wholeLog, error) {
	if path != "" {
		return logreader.OpenPath(ctx, path, s.OperatorSocket)
	}
	log, _, err := openRecord(ctx, s, "")
	if errors.Is(err, fs.ErrNotExist) {
		return openLeft(ctx, s, err)
	}
	return log, err
}
