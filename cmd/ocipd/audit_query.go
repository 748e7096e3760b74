package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/client"
	"github.com/spf13/cobra"
)

func newAuditQuery(s *shell) *cobra.Command {
	var f filterFlags
	var limit int
	var before uint64
	var asJSON bool
	c := &cobra.Command{
		Use:   "query",
		Short: "search the record, newest first",
		Long: "Search the record, newest first. Where no daemon runs, its database is read, or the\n" +
			"mirror file where that is all there is. --json prints each record exactly as it was sealed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.resolve(time.Now())
			if err != nil {
				return err
			}
			if limit < 1 {
				return usagef("cannot read --limit %d: want at least 1", limit)
			}
			lines, next, err := s.query(cmd.Context(), filter, before, limit)
			if err != nil {
				return err
			}
			if err := s.printRecords(lines, asJSON); err != nil {
				return err
			}
			if next > 0 && !asJSON {
				fmt.Fprintf(s.stderr, "there may be more: --before %d goes on\n", next)
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().IntVar(&limit, "limit", api.DefaultPage, "print at most `N` records")
	c.Flags().Uint64Var(&before, "before", 0, "print records before this `SEQ`")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one record a line")
	return c
}

func (s *shell) printRecords(lines [][]byte, asJSON bool) error {
	scr := s.screen()
	if !asJSON {
		t, err := recordTable(lines, scr.width)
		if err != nil {
			return err
		}
		return t.write(s.stdout, scr)
	}
	for _, line := range lines {
		if _, err := s.stdout.Write(scr.line(line)); err != nil {
			return err
		}
	}
	return nil
}

// query asks the daemon, page by page, or what it left behind where none runs.
// Next is where to go on, zero where nothing more can match.
func (s *shell) query(ctx context.Context, filter audit.Filter, before uint64, limit int) (lines [][]byte, next uint64, err error) {
	c, err := s.dialOperator(ctx)
	if errors.Is(err, client.ErrNotRunning) {
		left, err := s.openEvidence(ctx, err)
		if err != nil {
			return nil, 0, err
		}
		defer left.Close()
		return left.Query(ctx, filter, before, limit)
	}
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	for next = before; len(lines) < limit; {
		page := min(limit-len(lines), api.MaxPage)
		var answer api.AuditQueryResult
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		err := c.Call(ctx, "audit.query", api.AuditQueryParams{Filter: filter, Limit: &page, Before: next}, &answer)
		cancel()
		if err != nil {
			return nil, 0, err
		}
		for _, record := range answer.Records {
			lines = append(lines, record)
		}
		if next = answer.NextBefore; next == 0 {
			break
		}
	}
	return lines, next, nil
}
