package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// serveStreams answers each stream with its number of chunks, or for ever without one, and each call.
func serveStreams(t *testing.T, cancelled chan<- string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			var request struct {
				ID, Method string
				Params     struct {
					Chunks    int
					RequestID string
				}
			}
			if json.Unmarshal(lines.Bytes(), &request) != nil {
				return
			}
			switch request.Method {
			case "stream.cancel":
				cancelled <- request.Params.RequestID
			case "task.watch":
				for n := range max(1, request.Params.Chunks) {
					fmt.Fprintf(conn, `{"id":"1","type":"stream","timestamp":1,"requestId":%q,"chunk":{"n":%d},"done":false}`+"\n", request.ID, n)
				}
				if request.Params.Chunks > 0 {
					fmt.Fprintf(conn, `{"id":"1","type":"stream","timestamp":1,"requestId":%q,"chunk":null,"done":true}`+"\n", request.ID)
				}
				continue
			}
			fmt.Fprintf(conn, `{"id":"1","type":"response","timestamp":1,"requestId":%q,"success":true,"result":{}}`+"\n", request.ID)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return path
}

// A stream gives its chunks in order and then its end. One that is closed asks the daemon to end it, drops
// the chunks that wait, and its end is the end of a finished one. The end of the client ends a stream.
func TestStream(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cancelled := make(chan string, 1)
	p, err := Operate(ctx, &Options{Socket: serveStreams(t, cancelled)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	open := func(chunks int) *Stream {
		t.Helper()
		stream, err := p.Stream(ctx, "task.watch", map[string]any{"chunks": chunks})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	var chunk struct{ N int }
	whole := open(3)
	for n := range 3 {
		if err := whole.Next(ctx, &chunk); err != nil || chunk.N != n {
			t.Fatalf("chunk %d: %v, %v", n, chunk, err)
		}
	}
	for range 2 {
		if err := whole.Next(ctx, nil); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
	if err := whole.Close(); err != nil {
		t.Error(err)
	}
	endless := open(0)
	if err := endless.Next(ctx, &chunk); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := endless.Next(over, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	if err := endless.Close(); err != nil {
		t.Error(err)
	}
	if id := <-cancelled; id == "" {
		t.Error("the daemon was not told which stream to end")
	}
	if err := errors.Join(endless.Close(), endless.Next(ctx, nil)); !errors.Is(err, io.EOF) {
		t.Errorf("after it was closed: %v", err)
	}
	left := open(0)
	if err := left.Next(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := left.Next(ctx, nil); !Is(err, ConnectionClosed) {
		t.Errorf("after the client was closed: %v", err)
	}
	if p.backlog.waiting != 0 {
		t.Errorf("%d chunks count as waiting", p.backlog.waiting)
	}
}
