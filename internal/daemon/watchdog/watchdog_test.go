package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/daemon/watchdog"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

type manager struct {
	mu    sync.Mutex
	heard []string
}

func (m *manager) hear(word string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, word)
}
func (m *manager) Alive()          { m.hear("alive") }
func (m *manager) Broken(string)   { m.hear("broken") }
func (m *manager) Status(s string) { m.hear(s) }

// A sign of life follows only a complete probe; a hanging one gives none, and a store that
// needs a restart asks for one.
func TestFeed(t *testing.T) {
	hanging := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, test := range map[string]struct {
		probe func(context.Context) error
		want  []string
	}{
		"well":    {func(context.Context) error { return nil }, []string{"alive", "alive", "alive"}},
		"fails":   {func(context.Context) error { return errors.New("no policy") }, slices.Repeat([]string{"no decision gets through: no policy"}, 3)},
		"latched": {func(context.Context) error { return fmt.Errorf("cannot commit: %w", store.ErrLatched) }, []string{"broken", "broken", "broken"}},
		"hangs":   {hanging, []string{"no decision gets through"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &manager{}
				ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
				defer stop()
				watchdog.Feed(ctx, watchdog.Options{Manager: m, Every: 10 * time.Second, Probe: test.probe, Log: zap.NewNop()})
				if !slices.Equal(m.heard, test.want) {
					t.Errorf("the service manager hears %q, want %q", m.heard, test.want)
				}
			})
		})
	}
}
