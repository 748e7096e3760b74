package kernel

import (
	"context"
	"maps"
	"time"

	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// origins knows what the last messages of a session brought of their addresses:
// where answers go.
type origins struct {
	*recent[string, map[string]string]
}

const rememberedOrigins = 8192

func newOrigins(s *store.Store) origins {
	return origins{newRecent(rememberedOrigins, func(ctx context.Context, key string) (map[string]string, error) {
		found, err := s.Brought(ctx, key)
		return found.Members, err
	})}
}

// enter puts into a change what a message brings of its session, where that is not
// known already.
func (o origins) enter(ctx context.Context, c *store.Change, key, account string, members map[string]string, now time.Time) error {
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
