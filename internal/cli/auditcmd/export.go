package auditcmd

import (
	"bufio"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/export"
	"github.com/spf13/cobra"
)

type exportFlags struct {
	filterFlags
	format, database string
	after            uint64
	enterprise       int
}

func newExport(s *cli.Process) *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use: "export [PATH]",
		Example: "  ocipd audit export --since 7d > week.ocsf.jsonl\n" +
			"  ocipd audit export --format syslog --result deny",
		Short: "print records as OCSF, OTLP, syslog or JSON lines",
		Long: "Print the record as it is now: of the running daemon, or what it left behind; with PATH of a\n" +
			"copy: a database, a directory with the files of a mirror, or one of these files. As\n" +
			"  ocsf    OCSF " + export.OCSFVersion + ", class API Activity (6003)\n" +
			"  otlp    OTLP logs in JSON, up to 512 records a line\n" +
			"  syslog  RFC 5424 messages, long records in several parts\n" +
			"  jsonl   as it was sealed\n" +
			"The sinks of audit.sinks get the same as it is written, and lose nothing.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if formats := export.Formats(); !slices.Contains(formats, f.format) {
				return cli.Usagef("cannot print as --format %q: want one of %s", f.format, strings.Join(formats, ", "))
			}
			if f.enterprise < 0 || f.enterprise > math.MaxUint32 {
				return cli.Usagef("cannot read --enterprise-number %d: want a number that IANA could have given", f.enterprise)
			}
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			path, err := pathOf(args, f.database)
			if err != nil {
				return err
			}
			return exportRecords(cmd.Context(), s, &f, filter, path)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.format, "format", export.TypeOCSF, "`FORMAT`: ocsf, otlp, syslog or jsonl")
	flags.StringVar(&f.database, "database", "", "read this database `FILE`")
	flags.IntVar(&f.enterprise, "enterprise-number", export.DefaultEnterprise, "private enterprise `NUMBER` in syslog's structured data")
	cli.Choices(c, "format", export.Formats())
	flags.Uint64Var(&f.after, "after", 0, "begin behind the record with this `SEQ`")
	f.add(c)
	return c
}

func exportRecords(ctx context.Context, s *cli.Process, f *exportFlags, filter audit.Filter, path string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people to read
	}
	out := &export.Printer{Format: f.format, Mapping: export.Mapping{Version: s.Version, Host: host, Enterprise: f.enterprise}, W: bufio.NewWriterSize(s.Stdout, 64<<10)}
	if s.Screen().Terminal {
		out.Shown = func(line []byte) []byte { return term.PrintableJSON(line) }
		if f.format == export.TypeSyslog {
			out.Shown = func(line []byte) []byte { return []byte(term.Printable(string(line))) }
		}
	}
	err = eachRecord(ctx, s, f, filter, path, func(line []byte) error {
		if !filter.Unbounded() && !filter.Match(line) {
			return nil
		}
		return out.Add(line)
	})
	return errors.Join(err, out.Flush())
}

// eachRecord visits the records from a copy or the daemon. The daemon already filters them.
func eachRecord(ctx context.Context, s *cli.Process, f *exportFlags, filter audit.Filter, path string, visit func(line []byte) error) error {
	c, left, err := openLog(ctx, s, path)
	if err != nil {
		return err
	}
	if c != nil {
		defer c.Close()
		return c.Each(ctx, "audit.tail", api.AuditTailParams{Filter: filter, After: &f.after, Export: true}, func(line jsontext.Value) error { return visit(line) })
	}
	defer left.Close()
	return left.EachLine(ctx, f.after, func(_ uint64, line []byte) error { return visit(line) })
}
