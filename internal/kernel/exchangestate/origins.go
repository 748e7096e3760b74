package exchangestate

import (
	"context"
	"maps"
	"time"

	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// Origins knows the addresses that the last messages of a session brought. Answers go there.
type Origins struct {
	*recent[string, map[string]string]
}

const rememberedOrigins = 8192

func newOrigins(s *store.Store) Origins {
	return Origins{newRecent(rememberedOrigins, func(ctx context.Context, key string) (map[string]string, error) {
		found, err := s.Brought(ctx, key)
		return found.Members, err
	})}
}

// OriginKey names the addresses that messages of a session brought to the agents of one tenant.
// Other tenants' agents do not see them.
func OriginKey(d *directory.Directory, a *directory.Agent, session string) string {
	if d.SeveralTenants() {
		return store.TenantSession(a.TenantID, session)
	}
	return session
}

// OriginKeys are the names that a session has for all tenants, now or before there were
// several.
func OriginKeys(d *directory.Directory, session string) []string {
	keys := []string{session}
	for _, tenant := range d.AllTenants() {
		keys = append(keys, store.TenantSession(tenant, session))
	}
	return keys
}

// Of returns the addresses that messages of a session brought.
func (o Origins) Of(ctx context.Context, key string) (map[string]string, error) {
	return o.of(ctx, key)
}

// Enter puts the addresses that a message brings into a change, if they are not known already.
func (o Origins) Enter(ctx context.Context, c *store.Change, key, account string, members map[string]string, now time.Time) error {
	before, err := o.of(ctx, key)
	if err != nil {
		return err
	}
	if members = directory.Keep(before, members); maps.Equal(before, members) {
		return nil
	}
	c.Add(store.Brought{SessionKey: key, Account: account, Members: members, At: now})
	c.OnDurable(func(store.Receipt) { o.put(key, members) })
	return nil
}
