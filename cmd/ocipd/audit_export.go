package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/openclawos/ocipd/internal/export"
	"github.com/openclawos/ocipd/internal/logreader"
	"github.com/openclawos/ocipd/internal/term"
	"github.com/spf13/cobra"
)

// Formats of audit export.
const (
	formatJSONL  = "jsonl"
	formatOCSF   = "ocsf"
	formatSyslog = "syslog"
	formatOTLP   = "otlp"
)

type exportFlags struct {
	filterFlags
	format, database string
	after            uint64
	enterprise       int
}

func newAuditExport(s *shell) *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use: "export [FILE]",
		Example: "  ocipd audit export --since 7d > week.ocsf.jsonl\n" +
			"  ocipd audit export --format syslog --result deny",
		Short: "print records as OCSF, OTLP, syslog or JSON lines",
		Long: "Print the record as it is now: of the running daemon, or what it left behind; of a mirror file\n" +
			"or a copy of one; with --database of a database file. One line a record, as\n" +
			"  ocsf    OCSF " + export.OCSFVersion + ", class API Activity (6003)\n" +
			"  otlp    OTLP logs in JSON, up to 512 records a line\n" +
			"  syslog  RFC 5424 messages, long records in several parts\n" +
			"  jsonl   as it was sealed\n" +
			"The sinks of audit.sinks get the same as it is written, and lose nothing.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			formats := []string{formatOCSF, formatOTLP, formatSyslog, formatJSONL}
			if !slices.Contains(formats, f.format) {
				return cli.Usagef("cannot print as --format %q: want one of %s", f.format, strings.Join(formats, ", "))
			}
			if len(args) == 1 && f.database != "" {
				return cli.Usagef("cannot read %s with --database: name one of them", args[0])
			}
			if f.enterprise < 0 || f.enterprise > math.MaxUint32 {
				return cli.Usagef("cannot read --enterprise-number %d: want a number that IANA could have given", f.enterprise)
			}
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			file := ""
			if len(args) == 1 {
				file = args[0]
			}
			return s.export(cmd.Context(), &f, filter, file)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.format, "format", formatOCSF, "`FORMAT`: ocsf, otlp, syslog or jsonl")
	flags.StringVar(&f.database, "database", "", "read this database `FILE`")
	flags.IntVar(&f.enterprise, "enterprise-number", export.DefaultEnterprise, "private enterprise `NUMBER` in syslog's structured data")
	// It fails for a flag that does not exist, and this one does.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{formatOCSF, formatOTLP, formatSyslog, formatJSONL}, cobra.ShellCompDirectiveNoFileComp))
	flags.Uint64Var(&f.after, "after", 0, "begin behind the record with this `SEQ`")
	f.add(c)
	return c
}

func (s *shell) export(ctx context.Context, f *exportFlags, filter audit.Filter, file string) error {
	out := newExporter(s.Stdout, s.Screen(), f.format)
	out.mapping.Enterprise = f.enterprise
	each := func(line []byte) error {
		if !filter.Unbounded() && !filter.Match(line) {
			return nil
		}
		return out.add(line)
	}
	err := s.eachRecord(ctx, f, filter, file, each)
	return errors.Join(err, out.flush())
}

// eachRecord visits the records of wherever they are to be read from. A daemon
// selects them already.
func (s *shell) eachRecord(ctx context.Context, f *exportFlags, filter audit.Filter, file string, visit func(line []byte) error) error {
	var left evidence
	switch {
	case f.database != "":
		reader, err := logreader.OpenWhole(ctx, f.database, s.operatorSocket)
		if err != nil {
			return err
		}
		left = reader
	case file != "":
		opened, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("cannot read the audit log: %w", err)
		}
		left = &mirrorFile{file: opened}
	default:
		c, err := s.DialOperator(ctx)
		if err == nil {
			defer c.Close()
			return logreader.Stream(ctx, c, api.AuditTailParams{Filter: filter, After: &f.after}, visit)
		}
		if !errors.Is(err, client.ErrNotRunning) {
			return err
		}
		if left, err = s.openEvidence(ctx, err); err != nil {
			return err
		}
	}
	defer left.Close()
	return left.EachLine(ctx, f.after, func(_ uint64, line []byte) error { return visit(line) })
}

// exporter prints records in a format.
type exporter struct {
	w       *bufio.Writer
	screen  term.Screen
	format  string
	mapping export.Mapping
	// page holds the records of a line of OTLP.
	page  []export.Record
	bytes int
}

// A line of OTLP holds up to so many records, and not much more than so many
// bytes of them.
const (
	exportPage  = 512
	exportBytes = 1 << 20
)

func newExporter(w io.Writer, scr term.Screen, format string) *exporter {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people to read
	}
	return &exporter{w: bufio.NewWriterSize(w, 64<<10), screen: scr, format: format, mapping: export.Mapping{Version: buildVersion(), Host: host}}
}

// add prints a record. The line is the caller's afterwards.
func (x *exporter) add(line []byte) error {
	r := export.Read(line)
	switch x.format {
	case formatOCSF:
		return x.print(x.mapping.OCSF(&r))
	case formatSyslog:
		for _, message := range x.mapping.Syslog(&r, export.DefaultMaxBytes) {
			if err := x.print(message); err != nil {
				return err
			}
		}
		return nil
	case formatOTLP:
		r.Line = slices.Clone(line)
		x.page, x.bytes = append(x.page, r), x.bytes+len(line)
		if len(x.page) < exportPage && x.bytes < exportBytes {
			return nil
		}
		return x.turn()
	}
	return x.print(line)
}

// print writes a line: as it is for a program, and for a terminal with escapes in
// place of what would steer it.
func (x *exporter) print(line []byte) error {
	switch {
	case !x.screen.Terminal:
	case x.format == formatSyslog:
		line = []byte(term.Printable(string(line)))
	default:
		line = term.PrintableJSON(line)
	}
	if _, err := x.w.Write(line); err != nil {
		return err
	}
	return x.w.WriteByte('\n')
}

// turn prints a line of OTLP.
func (x *exporter) turn() error {
	text, err := x.mapping.OTLPJSON(x.page)
	if err != nil {
		return fmt.Errorf("cannot print as OTLP: %w", err)
	}
	x.page, x.bytes = x.page[:0], 0
	return x.print(text)
}

func (x *exporter) flush() error {
	if len(x.page) > 0 {
		if err := x.turn(); err != nil {
			return err
		}
	}
	return x.w.Flush()
}
