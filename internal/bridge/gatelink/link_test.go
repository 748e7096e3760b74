package gatelink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
)

// A question for news does not wait for a connection to a daemon that does not answer.
func TestLinkDialsBesideTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &Link{Dial: func(ctx context.Context) (*client.Client, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, Now: time.Now}
		go func() { _ = l.Check(t.Context()) }()
		synctest.Wait()
		begun := time.Now()
		l.Wake()
		if _, live := l.News(); live || time.Since(begun) > 0 {
			t.Errorf("it took %s", time.Since(begun))
		}
	})
}
