package kernel

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/store"
)

// sessions remembers which sessions exist and whose they are, so that a known
// one costs no look-up in the store.
type sessions struct {
	store *store.Store
	known *lru.Cache[string, string]
}

const rememberedSessions = 8192

func newSessions(s *store.Store) (*sessions, error) {
	known, err := lru.New[string, string](rememberedSessions)
	return &sessions{store: s, known: known}, err
}

// agent returns the agent that a session has, empty where the session is new.
func (s *sessions) agent(ctx context.Context, key string) (string, error) {
	if agent, ok := s.known.Get(key); ok {
		return agent, nil
	}
	found, err := s.store.Session(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s.known.Add(key, found.AgentID)
	return found.AgentID, nil
}

// use enters a session into a change: as new, or as used once more when the
// change is durable. It reports whether the session is new.
func (s *sessions) use(ctx context.Context, key, agent, account string, now time.Time, c *store.Change) (fresh bool, err error) {
	known, err := s.agent(ctx, key)
	if err != nil {
		return false, err
	}
	if known == "" {
		channel, _ := directory.Split(key)
		c.Sessions = append(c.Sessions, store.Session{
			Key: key, AgentID: agent, ChannelID: channel, AccountID: account, CreatedAt: now, LastActiveAt: now, MessageCount: 1,
		})
	}
	return known == "", nil
}

// used is called when the change of [sessions.use] is durable.
func (s *sessions) used(key, agent string, fresh bool, now time.Time) {
	if fresh {
		s.known.Add(key, agent)
		return
	}
	s.store.TouchSession(key, now)
}

// Session returns one session, or null.
func (c *Client) Session(ctx context.Context, p *api.SessionGetParams) (api.SessionResult, error) {
	found, err := c.kernel.store.FreshSession(ctx, p.Key)
	if errors.Is(err, store.ErrNotFound) {
		return api.SessionResult{}, nil
	}
	if err != nil {
		return api.SessionResult{}, err
	}
	entry := sessionEntry(&found)
	return api.SessionResult{Session: &entry}, nil
}

// Sessions returns a page of sessions, last used first.
func (c *Client) Sessions(ctx context.Context, p *api.SessionListParams) (api.SessionListResult, error) {
	f := store.SessionFilter{AgentID: p.Filter.AgentID, ChannelID: p.Filter.ChannelID, AccountID: p.Filter.AccountID}
	if p.Filter.Active != nil {
		edge := c.kernel.now().Add(-c.kernel.rules().cfg.ActiveWindow)
		if *p.Filter.Active {
			f.ActiveSince = edge
		} else {
			f.IdleSince = edge
		}
	}
	page, total, err := c.kernel.store.Sessions(ctx, f, p.Page(), p.Offset)
	if err != nil {
		return api.SessionListResult{}, err
	}
	result := api.SessionListResult{Sessions: make([]api.SessionEntry, len(page)), Total: total}
	for i := range page {
		result.Sessions[i] = sessionEntry(&page[i])
	}
	return result, nil
}

func sessionEntry(s *store.Session) api.SessionEntry {
	return api.SessionEntry{
		Key: s.Key, AgentID: s.AgentID, ChannelID: s.ChannelID, AccountID: s.AccountID,
		CreatedAt: s.CreatedAt.UnixMilli(), LastActiveAt: s.LastActiveAt.UnixMilli(), MessageCount: s.MessageCount,
	}
}
