package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/audit/redact"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/casefile"
	"github.com/openclawos/ocipd/internal/evidence/logreader"
	"github.com/spf13/cobra"
)

type caseFlags struct {
	out, database, identity                       string
	task, exchange, approval, agent, since, until string
	asJSON                                        bool
}

func newCase(s *cli.Process) *cobra.Command {
	var f caseFlags
	c := &cobra.Command{
		Use:   "case DIR",
		Short: "write the records of one case, with their proofs, into a folder",
		Long: `Write a folder for an investigator or a court: the records of one task,
exchange, approval request or agent, or of a time; the receipt of each; the
configuration, policies and signers that were in force at them; a page in plain language
with a timeline (case.html); and verify.py, which checks the folder with nothing but
Python. The case of a message or a request includes all that followed from it.
--identity adds the texts that were kept encrypted (audit.content), with secrets masked.
Write down the SHA-256 that is printed: it stands for the whole folder.`,
		Example: "  ocipd audit case --exchange 01a1fa2b-9a2e-761b-b52b-6f34bf753fca case-17\n" +
			"  ocipd audit case --agent agent-alice-1 --since 2026-11-01 --until 2026-11-08 week-45",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.out = args[0]
			return makeCase(cmd.Context(), s, &f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.task, "task", "", "the task with this `ID`")
	flags.StringVar(&f.exchange, "exchange", "", "the exchange with this `ID`")
	flags.StringVar(&f.approval, "approval", "", "the approval request with this `ID`")
	flags.StringVar(&f.agent, "agent", "", "the agent with this instance `ID`, on either side")
	flags.StringVar(&f.since, "since", "", "records from this `TIME` on: RFC 3339, a date, a duration back such as 2h or 7d, today, yesterday")
	flags.StringVar(&f.until, "until", "", "records before this `TIME`")
	flags.StringVar(&f.identity, "identity", "", "`FILE` of the age identity that reads the records' texts")
	flags.StringVar(&f.database, "database", "", "`FILE` of another database")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	c.MarkFlagsMutuallyExclusive("task", "exchange", "approval", "agent")
	c.MarkFlagsOneRequired("task", "exchange", "approval", "agent", "since")
	return c
}

// about returns the records of a case, and its subject in words.
func (f *caseFlags) about(now time.Time) (filter audit.Filter, of string, err error) {
	times := filterFlags{since: f.since, until: f.until}
	if filter, err = times.resolve(now); err != nil {
		return filter, "", err
	}
	filter.Like.TaskID, filter.Like.ExchangeID, filter.Like.ApprovalID = f.task, f.exchange, f.approval
	var parts []string
	for _, one := range []struct{ what, id string }{{"Task", f.task}, {"Exchange", f.exchange}, {"Approval request", f.approval}, {"Agent", f.agent}} {
		if one.id != "" {
			parts = append(parts, one.what+" "+term.Printable(one.id))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "All records")
	}
	if !filter.Since.IsZero() {
		parts = append(parts, "since "+filter.Since.UTC().Format(time.RFC3339))
	}
	if !filter.Until.IsZero() {
		parts = append(parts, "before "+filter.Until.UTC().Format(time.RFC3339))
	}
	return filter, strings.Join(parts, " "), nil
}

// caseReport is the output of `ocipd audit case --json`.
type caseReport struct {
	Dir      string `json:"dir"`
	Records  int    `json:"records"`
	Context  int    `json:"context"`
	Unsigned int    `json:"unsigned"`
	Unread   int    `json:"textsLeftOut"`
	Digest   string `json:"sha256"`
}

// noteExport has the daemon record that records or a text are being exported from its log. If no
// daemon runs, it says that there will be no record of it. For another database it does nothing.
func noteExport(ctx context.Context, s *cli.Process, database string, filter audit.Filter, what string) error {
	if database != "" {
		return nil
	}
	c, err := s.DialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) {
		fmt.Fprintf(s.Stderr, "%s is not on record: the daemon does not run\n", what)
		return nil
	}
	if err == nil {
		defer c.Close()
		// No record comes: all are before this one.
		after := uint64(math.MaxInt64)
		err = c.Each(ctx, "audit.tail", api.AuditTailParams{Filter: filter, After: &after, Export: true}, func(jsontext.Value) error { return nil })
	}
	if err != nil {
		return fmt.Errorf("cannot put it on record that %s is taken from the log: %w", what, err)
	}
	return nil
}

func makeCase(ctx context.Context, s *cli.Process, f *caseFlags) error {
	now := time.Now()
	filter, of, err := f.about(now)
	if err != nil {
		return err
	}
	database := f.database
	if database == "" {
		cfg, err := s.Places("store.url")
		if err != nil {
			return err
		}
		if database = config.DatabasePath(cfg, s.Getenv); database == "" {
			return errors.New("cannot tell where the database is: HOME is not set, and store.url names no file")
		}
	}
	o := casefile.Options{Of: of, Wanted: filter, Agent: f.agent, Now: now, Version: s.Version}
	if f.identity != "" {
		keys, err := sealedtext.ReadIdentities(f.identity)
		if err != nil {
			return err
		}
		masker, err := redact.New(redact.Options{})
		if err != nil {
			return err
		}
		o.Unseal, o.Mask = keys.Unseal, masker.Text
	}
	noted := filter
	noted.Like.AgentID = f.agent
	if err := noteExport(ctx, s, f.database, noted, "the case"); err != nil {
		return err
	}
	log, err := logreader.OpenWhole(ctx, database, s.OperatorSocket)
	if err != nil {
		return err
	}
	defer log.Close()
	made, err := casefile.Write(ctx, log, f.out, &o)
	if err != nil {
		return fmt.Errorf("cannot make the case: %w", err)
	}
	if f.asJSON {
		return s.PrintJSON(caseReport{f.out, made.Records, made.Context, made.Unsigned, made.Unread, made.Digest})
	}
	s.Say("%s: %s, and %d that say what was in force", term.Printable(f.out), term.Count(made.Records, "record"), made.Context)
	if made.Unsigned > 0 {
		s.Say("%s are under no checkpoint yet and have no receipt: a running daemon signs within a minute", term.Count(made.Unsigned, "record"))
	}
	if made.Unread > 0 {
		s.Say("%s were kept and are left out; case.json says why", term.Count(made.Unread, "text"))
	}
	s.Say("SHA-256 of case.json: %s", made.Digest)
	s.Say("check it: python3 -I %s", term.Printable(f.out+"/verify.py"))
	return nil
}
