package auditcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

func newForget(s *cli.Process) *cobra.Command {
	var tenant, key string
	var yes, asJSON bool
	c := &cobra.Command{
		Use:     "forget --tenant TENANT",
		Example: "  ocipd audit forget --tenant acme-corp",
		Short:   "destroy a tenant's digest key, so that no text can be matched with its records",
		Long: `Destroy the key of a tenant's digests. The records stay and the log still
verifies, but nobody can match a text with its digest any more, not by guessing
and not with this daemon. This cannot be undone. The tenant's next message
creates a new key. TENANT is "" for records of no tenant.

The act is recorded first; if it fails afterwards, repeat it. Copies of the key
in your backups are yours to destroy.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !s.Interactive() {
				return cli.Usagef("cannot ask where there is no terminal: --yes says that you mean it")
			}
			if !yes {
				agreed, err := s.Ask(cmd.Context(), fmt.Sprintf("Destroy the digest key of tenant %q for good?", term.Printable(tenant)))
				if err != nil {
					return err
				}
				if !agreed {
					return errors.New("nothing was destroyed")
				}
			}
			return forget(cmd.Context(), s, tenant, key, asJSON)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "destroy the key of this `TENANT`")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.KeyFlag(c, &key)
	cli.Required(c, "tenant")
	return c
}

func forget(ctx context.Context, s *cli.Process, tenant, key string, asJSON bool) error {
	var result api.AuditForgetResult
	if err := s.OperateSigned(ctx, key, "audit.forget", api.AuditForgetParams{Tenant: &tenant}, &result); err != nil {
		return fmt.Errorf("cannot forget: %w", err)
	}
	return s.Report(asJSON, result, "ok: the digest key of tenant %q is destroyed (record %d)\n", term.Printable(result.Tenant), result.AuditSeq)
}
