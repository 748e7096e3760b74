package client

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// FuzzRead feeds the client whatever a daemon might send, with a call and a
// stream under way. However it goes, both end, nothing hangs, and what was
// handed out is JSON.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"", "\n\r\n", "{}\n", "null\n",
		response("1", `{"a":1}`) + "\n" + response("1", "2") + "\n",
		refusal("1", "NOT_FOUND", "no") + "\n" + refusal("", "FORBIDDEN", "no") + "\n",
		event("kernel:lagging", 1) + "\n" + event("", 2) + "\n",
		chunk("2", "1", false) + "\n" + chunk("2", "null", true) + "\n" + chunk("2", "3", true) + "\n",
		chunk("1", "1", false) + "\n" + response("2", `"once"`) + "\n",
		`{"type":"response","requestId":"1","success":true}` + "\n",
		`{"type":"stream","requestId":"2","done":true}` + "\n" + `{"type":"response","requestId":"99999999999999999999"}` + "\n",
		response("1", "1"), "\xff\xfe\n", `{"type":"event","payload":` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		c := newClient("fuzz", ours, WithEventBuffer(1), WithDropEvents(), WithMaxLine(4096))
		called := make(chan error, 1)
		go func() {
			var result jsontext.Value
			err := c.Call(t.Context(), "call", nil, &result)
			if err == nil && len(result) > 0 && !result.IsValid() {
				t.Errorf("the result is not JSON: %q", result)
			}
			called <- err
		}()
		// The call goes first, so that it has id 1 and the stream id 2.
		requests := wire.NewLineReader(theirs, 1<<16, readBuffer)
		if _, err := requests.Next(); err != nil {
			t.Fatal(err)
		}
		s, err := c.Stream(t.Context(), "stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := requests.Next(); err != nil {
			t.Fatal(err)
		}
		go func() {
			// The client may hang up, and may ask to end a stream.
			_, _ = theirs.Write(sent)
			theirs.Close()
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		for {
			v, err := s.Next(t.Context())
			if err != nil {
				var e *api.Error
				if !errors.Is(err, io.EOF) && !errors.As(err, &e) {
					t.Errorf("the stream ended with %v", err)
				}
				break
			}
			if len(v) > 0 && !v.IsValid() {
				t.Errorf("the chunk is not JSON: %q", v)
			}
		}
		<-called
		<-c.Done()
		if c.Err() == nil {
			t.Error("the connection ended and nothing says why")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
