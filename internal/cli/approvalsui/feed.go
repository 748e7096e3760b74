package approvalsui

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
)

// The messages of a feed: the list begins anew, an approval request, the list is complete,
// the daemon is away, and the daemon has refused.
type (
	newsBegin  struct{}
	newsHeld   struct{ message *api.ApprovalSummary }
	newsCaught struct{}
	newsLost   struct{ err error }
	newsEnd    struct{ err error }
)

// newsMsg holds the messages of a feed since the last question, in order.
type newsMsg []any

const (
	// lookEvery is the interval of attempts to reach a daemon that is away.
	lookEvery = 250 * time.Millisecond
	// gather is how long messages are gathered before they are shown, so that a flood costs
	// no more than one update.
	gather = 40 * time.Millisecond
)

// feed follows pending requests, over as many connections as necessary.
type feed struct {
	dial func(context.Context) (*client.Client, error)
	wake chan struct{}

	mu      sync.Mutex
	news    newsMsg
	current *client.Client
}

func newFeed(dial func(context.Context) (*client.Client, error)) *feed {
	return &feed{dial: dial, wake: make(chan struct{}, 1)}
}

// run follows until the context ends, first over c.
func (f *feed) run(ctx context.Context, c *client.Client) {
	for c != nil {
		err := f.follow(ctx, c)
		refused, ok := errors.AsType[*api.Error](err)
		switch {
		case ctx.Err() != nil:
			return
		case ok && refused.Code != api.ConnectionClosed:
			f.tell(newsEnd{err})
			return
		}
		f.tell(newsLost{err})
		c = f.reach(ctx)
	}
}

// follow passes on the messages of one connection until it ends.
func (f *feed) follow(ctx context.Context, c *client.Client) error {
	defer c.Close()
	f.mu.Lock()
	f.current = c
	f.mu.Unlock()
	stream, err := c.Stream(ctx, "approval.watch", nil)
	if err != nil {
		return err
	}
	f.tell(newsBegin{})
	for {
		chunk, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			err = errors.New("the daemon ended the stream")
		}
		if err != nil {
			return err
		}
		var news api.ApprovalNews
		if err := json.Unmarshal(chunk, &news); err != nil {
			return err
		}
		if news.Approval != nil {
			f.tell(newsHeld{news.Approval})
		}
		if news.Caught {
			f.tell(newsCaught{})
		}
	}
}

// reach tries to reach a daemon. It returns nil when the context ends.
func (f *feed) reach(ctx context.Context) *client.Client {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		if c, err := f.dial(ctx); err == nil {
			return c
		}
	}
}

func (f *feed) tell(news any) {
	f.mu.Lock()
	f.news = append(f.news, news)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// next is the command that waits for messages. It returns nil when the context ends.
func (f *feed) next(ctx context.Context) tea.Cmd {
	return func() tea.Msg {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
		gathered := time.NewTimer(gather)
		defer gathered.Stop()
		select {
		case <-gathered.C:
		case <-ctx.Done():
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		news := f.news
		f.news = nil
		return news
	}
}

// client is the current connection.
func (f *feed) client() *client.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// daemonDecider sends decisions to the daemon that the feed follows.
type daemonDecider struct {
	feed *feed
	keys *cli.Keys
}

func (o *daemonDecider) look(ctx context.Context, id string) (*api.Approval, error) {
	a, err := getApproval(ctx, o.feed.client(), id)
	if err != nil {
		return nil, err
	}
	return &a.Approval, nil
}

func (o *daemonDecider) decide(ctx context.Context, a *api.Approval, p api.ApprovalResolveParams) (result api.ApprovalResolveResult, err error) {
	if a.SignatureRequired || o.keys.Named() {
		text, err := a.TextToSign(p.Decision, p.Content, p.Note, p.Exchange)
		if err != nil {
			return result, err
		}
		if p.Signature, err = o.keys.Sign(ctx, text); err != nil {
			return result, err
		}
	}
	return resolveApproval(ctx, o.feed.client(), p)
}
