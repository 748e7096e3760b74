package grants

import (
	"context"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// Restored revokes every grant in force, since a copy of the state was restored: it may have been
// used up or revoked after the copy was made. People make new ones.
func (g *Grants) Restored(ctx context.Context, by, why string) error {
	rows, err := g.o.Store.CommitmentGrantsInForce(ctx, g.o.Now())
	for i := 0; err == nil && i < len(rows); i++ {
		var one *Grant
		if one, err = decode(rows[i]); err != nil {
			return err
		}
		r := g.record(one, "grant_revoked")
		r.Details["by"], r.Details["note"] = by, why
		change := &store.Change{Records: []*audit.Record{r}, Last: true}
		g.enterEnd(change, one.Agent, one.GrantID)
		_, err = g.o.Commit(change)
	}
	return err
}
