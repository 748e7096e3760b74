package auditcmd

import (
	"context"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
)

// Entries hands over the records of the daemon's log that each of the filters finds, one filter after the
// other.
func Entries(ctx context.Context, s *cli.Process, each func(*audit.Entry), filters ...audit.Filter) error {
	for _, filter := range filters {
		if err := entriesOf(ctx, s, filter, each); err != nil {
			return err
		}
	}
	return nil
}

func entriesOf(ctx context.Context, s *cli.Process, filter audit.Filter, each func(*audit.Entry)) error {
	search, err := OpenSearch(ctx, s, filter, "")
	if err != nil {
		return err
	}
	defer search.Close()
	return search.Pages(ctx, 0, func(lines [][]byte) error {
		for _, line := range lines {
			e, err := audit.Parse(line)
			if err != nil {
				return err
			}
			each(&e)
		}
		return nil
	})
}
