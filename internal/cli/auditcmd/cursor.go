package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
)

// tailCursor is the position up to which a log was read, in a file. It is written after the
// records were printed. So none is missed, and after a crash a record may be printed twice.
type tailCursor struct {
	file string
	// Seq and Hash identify the last printed record.
	Seq  uint64     `json:"seq"`
	Hash audit.Hash `json:"hash"`
}

// openCursor reads a cursor; a missing file means the beginning.
func openCursor(file string) (*tailCursor, error) {
	c := &tailCursor{file: file}
	text, err := cli.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, c, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cursor in %s: %w", file, err)
	}
	return c, nil
}

// belongs returns an error if the log has a different record at the cursor.
func (c *tailCursor) belongs(ctx context.Context, daemon *client.Client) error {
	if c.Seq == 0 {
		return nil
	}
	var page api.AuditQueryResult
	if err := daemon.Call(ctx, "audit.query", map[string]any{"before": c.Seq + 1, "limit": 1}, &page); err != nil {
		return err
	}
	var head audit.Head
	if len(page.Records) > 0 {
		var err error
		if head, err = audit.HeadOf(page.Records[0]); err != nil {
			return fmt.Errorf("cannot use the cursor: %w", err)
		}
	}
	if head.Seq == c.Seq && head.Hash == c.Hash {
		return nil
	}
	var status api.Status
	if err := daemon.Call(ctx, "kernel.status", map[string]any{}, &status); err != nil {
		return err
	}
	switch {
	case head.Seq == c.Seq:
		return fmt.Errorf("cannot go on at the cursor in %s: record %d of this log is another one than was read; remove the file to begin anew", c.file, c.Seq)
	case status.Audit.Seq < c.Seq:
		return fmt.Errorf("cannot go on at the cursor in %s: it is at record %d, and the log ends at %d, so it was cut or is another one; remove the file to begin anew", c.file, c.Seq, status.Audit.Seq)
	}
	// Retention removed the record; later ones are still there.
	return nil
}

// save moves the cursor. After a crash, the file has the old or the new one.
func (c *tailCursor) save(line []byte) error {
	head, err := audit.HeadOf(line)
	if err != nil {
		return err
	}
	c.Seq, c.Hash = head.Seq, head.Hash
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cannot keep the cursor: %w", err)
	}
	if _, err := cli.ReplaceFile(c.file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot keep the cursor: %w", err)
	}
	return nil
}
