package kernel

import (
	"context"
	"errors"
	"maps"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// origins knows what the last messages of a session brought of their addresses:
// where answers go.
type origins struct {
	store *store.Store
	known *lru.Cache[string, map[string]string]
}

const rememberedOrigins = 8192

func newOrigins(s *store.Store) (*origins, error) {
	known, err := lru.New[string, map[string]string](rememberedOrigins)
	return &origins{store: s, known: known}, err
}

// of returns what was brought of a session, nothing where no message came from it.
func (o *origins) of(ctx context.Context, key string) (map[string]string, error) {
	if members, ok := o.known.Get(key); ok {
		return members, nil
	}
	found, err := o.store.Brought(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	o.known.Add(key, found.Members)
	return found.Members, nil
}

// enter puts into a change what a message brings of its session, where that is not
// known already.
func (o *origins) enter(ctx context.Context, c *store.Change, key, account string, members map[string]string, now time.Time) error {
	before, err := o.of(ctx, key)
	if err != nil {
		return err
	}
	if members = directory.Keep(before, members); maps.Equal(before, members) {
		return nil
	}
	c.Parts = append(c.Parts, store.Brought{SessionKey: key, Account: account, Members: members, At: now})
	c.OnDurable(func(store.Receipt) { o.known.Add(key, members) })
	return nil
}
