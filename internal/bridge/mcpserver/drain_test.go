package mcpserver

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// piped is a transport and its connection: its input is a list of messages, and then its end.
type piped struct {
	mcp.Connection
	in  []jsonrpc.Message
	out []jsonrpc.Message
}

func (p *piped) Connect(context.Context) (mcp.Connection, error) { return p, nil }

func (p *piped) Read(context.Context) (jsonrpc.Message, error) {
	if len(p.in) == 0 {
		return nil, io.EOF
	}
	m := p.in[0]
	p.in = p.in[1:]
	return m, nil
}

func (p *piped) Write(_ context.Context, m jsonrpc.Message) error {
	p.out = append(p.out, m)
	return nil
}

func (p *piped) Close() error { return nil }

// The end of the input comes after the answers, after a time, or when the server is stopped.
func TestInputEndsAfterTheAnswers(t *testing.T) {
	one, _ := jsonrpc.MakeID("1")
	two, _ := jsonrpc.MakeID("2")
	call := func(id jsonrpc.ID) jsonrpc.Message { return &jsonrpc.Request{ID: id, Method: "tools/call"} }
	for _, c := range []struct {
		name string
		in   []jsonrpc.Message
		do   func(ctx context.Context, stop context.CancelFunc, conn mcp.Connection)
		// ends is when the input ends.
		ends time.Duration
	}{
		{"no call", []jsonrpc.Message{&jsonrpc.Request{Method: "notifications/initialized"}}, nil, 0},
		{"answered later", []jsonrpc.Message{call(one), call(two)}, func(ctx context.Context, _ context.CancelFunc, conn mcp.Connection) {
			for _, id := range []jsonrpc.ID{two, one} {
				<-time.After(time.Second)
				if err := conn.Write(ctx, &jsonrpc.Response{ID: id}); err != nil {
					t.Error(err)
				}
			}
		}, 2 * time.Second},
		{"a notification is no answer", []jsonrpc.Message{call(one)}, func(ctx context.Context, _ context.CancelFunc, conn mcp.Connection) {
			if err := conn.Write(ctx, &jsonrpc.Request{Method: "notifications/message"}); err != nil {
				t.Error(err)
			}
		}, time.Minute},
		{"never answered", []jsonrpc.Message{call(one)}, nil, time.Minute},
		{"stopped", []jsonrpc.Message{call(one)}, func(_ context.Context, stop context.CancelFunc, _ mcp.Connection) {
			<-time.After(time.Second)
			stop()
		}, time.Second},
		{"closed", []jsonrpc.Message{call(one)}, func(_ context.Context, _ context.CancelFunc, conn mcp.Connection) {
			<-time.After(time.Second)
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				conn, err := (&draining{Transport: &piped{in: c.in}, within: time.Minute}).Connect(ctx)
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				for range c.in {
					if _, err := conn.Read(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if c.do != nil {
					go c.do(ctx, stop, conn)
				}
				if _, err := conn.Read(ctx); !errors.Is(err, io.EOF) {
					t.Errorf("the input ends with %v", err)
				}
				if took := time.Since(begun); took != c.ends {
					t.Errorf("the input ends after %s, want %s", took, c.ends)
				}
			})
		})
	}
}
