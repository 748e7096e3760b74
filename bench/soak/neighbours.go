package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
)

// A neighbour is a process of the same user that misbehaves in one way for as long
// as the daemon runs; the daemon's bounds protect the others from it. It is a process
// of its own because some bounds are counted by process.
type neighbour struct {
	name string
	// misbehave goes on until the context ends. It counts what it did.
	misbehave func(ctx context.Context, p place, did *atomic.Int64) error
}

func neighbours() []neighbour {
	return []neighbour{
		{"unread observers", observeUnread},
		{"connections", floodConnections},
		{"registrations", floodRegistrations},
		{"waiting messages", floodWaiting},
	}
}

// misbehaveAs is the whole life of a neighbour's process. What it did is its last
// word.
func misbehaveAs(ctx context.Context, name string, p place) error {
	for _, n := range neighbours() {
		if n.name != name {
			continue
		}
		var did atomic.Int64
		err := n.misbehave(ctx, p, &did)
		fmt.Println(did.Load())
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return fmt.Errorf("there is no neighbour %q", name)
}

// live has a neighbour misbehave until the context ends, and notes what it did.
func (s *soak) live(ctx context.Context, n neighbour) {
	self, err := os.Executable()
	if err != nil {
		s.note(ctx, err)
		return
	}
	cmd := exec.CommandContext(ctx, self, "-neighbour", n.name, "-dir", s.place.dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	var said, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failure
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		s.note(ctx, fmt.Errorf("the neighbour with %s has ended: %w: %s", n.name, err, failure.String()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.neighbours = append(s.neighbours, n.name+" "+strings.TrimSpace(said.String()))
}

// knock asks for the status on a new connection, as a person does who wants to know
// what is going on. Nobody may keep that person waiting.
func (s *soak) knock(ctx context.Context) {
	began := time.Now()
	operator, err := client.Dial(ctx, config.OperatorPath(s.place.socket()))
	if err == nil {
		err = errors.Join(call(ctx, operator, "kernel.status", nil, nil), operator.Close())
	}
	took := time.Since(began)
	s.mu.Lock()
	s.longest = max(s.longest, took)
	s.mu.Unlock()
	s.note(ctx, err)
	if took > bearable {
		s.note(ctx, fmt.Errorf("the status took %s", took))
	}
}

// bearable is how long a person waits for the status.
const bearable = 5 * time.Second

// raw is a connection of a neighbour, which need not read what it is sent.
type raw struct {
	net.Conn
	lines *bufio.Reader
	token string
	last  int
}

// join connects and registers an app.
func join(ctx context.Context, p place, id string, c api.Capabilities) (*raw, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", p.socket())
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: conn, lines: bufio.NewReader(conn)}
	answer, err := r.ask("app.register", api.RegisterParams{Manifest: &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c,
	}})
	var result api.RegisterResult
	if err == nil {
		err = json.Unmarshal(answer, &result)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	r.token = result.Token
	return r, nil
}

// say writes a request and does not wait for its answer.
func (r *raw) say(method string, params any) error {
	r.last++
	line, err := json.Marshal(map[string]any{
		"id": fmt.Sprint(r.last), "type": "request", "timestamp": time.Now().UnixMilli(), "method": method, "params": params, "token": r.token,
	})
	if err != nil {
		return err
	}
	// A daemon that no longer reads this connection is not waited for.
	if err := r.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = r.Write(append(line, '\n'))
	return err
}

// ask is say for one who reads the answer: nothing else was said before.
func (r *raw) ask(method string, params any) (jsontext.Value, error) {
	if err := r.say(method, params); err != nil {
		return nil, err
	}
	if err := r.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var in struct {
			Type   string         `json:"type"`
			Result jsontext.Value `json:"result"`
			Error  *api.Error     `json:"error"`
		}
		if err := json.Unmarshal(line, &in); err != nil {
			return nil, err
		}
		switch {
		case in.Type == "event":
			// What it observes may come before the answer.
		case in.Error != nil:
			return nil, in.Error
		default:
			return in.Result, nil
		}
	}
}

// observers is how many apps watch all messages and read nothing.
const observers = 60

// observer is the id of one of them, which the configuration grants what it watches.
func observer(n int) string { return fmt.Sprint("@hostile/observer", n) }

// observeUnread is many apps that listen to all there is, ask for large answers, and
// read nothing. Those that the daemon ends come again.
func observeUnread(ctx context.Context, p place, did *atomic.Int64) error {
	const asks = 200
	if err := mayObserve(ctx, p); err != nil {
		return err
	}
	var all sync.WaitGroup
	for n := range observers {
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := join(ctx, p, observer(n), api.Capabilities{
					Channels: api.Provides{Provides: []string{"big"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sent", "message_received"}},
				})
				if err != nil {
					idle(ctx, time.Second)
					continue
				}
				err = errors.Join(r.say("hook.subscribe", map[string]any{"events": []string{"message_sent", "message_received"}}), r.say("app.ready", map[string]any{}))
				for i := 0; i < asks && err == nil; i++ {
					if err = r.say("config.get", map[string]any{"path": "channels.big"}); err == nil {
						did.Add(1)
					}
				}
				idle(ctx, 5*time.Second)
				_ = r.Close()
			}
		})
	}
	all.Wait()
	return nil
}

// mayObserve fails where the daemon refuses an observer what it is to misuse.
func mayObserve(ctx context.Context, p place) error {
	r, err := join(ctx, p, observer(0), api.Capabilities{
		Channels: api.Provides{Provides: []string{"big"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sent", "message_received"}},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.ask("hook.subscribe", map[string]any{"events": []string{"message_sent", "message_received"}}); err != nil {
		return err
	}
	if _, err := r.ask("app.ready", map[string]any{}); err != nil {
		return err
	}
	answer, err := r.ask("config.get", map[string]any{"path": "channels.big"})
	if err == nil && len(answer) < largeAnswer {
		err = fmt.Errorf("config.get answers with %d bytes, want %d", len(answer), largeAnswer)
	}
	if err != nil {
		return err
	}
	// Another's message is what it watches.
	if err := r.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	line, err := r.lines.ReadBytes('\n')
	if err == nil && !bytes.Contains(line, []byte("hook:message_")) {
		err = fmt.Errorf("an observer is sent %.200s", line)
	}
	return err
}

// floodConnections opens connections to both sockets, more than there may be, and
// says nothing on them.
func floodConnections(ctx context.Context, p place, did *atomic.Int64) error {
	const held = 400
	var open []net.Conn
	var d net.Dialer
	for n := 0; ctx.Err() == nil; n++ {
		path := p.socket()
		if n%4 == 0 {
			path = config.OperatorPath(path)
		}
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			idle(ctx, 10*time.Millisecond)
			continue
		}
		did.Add(1)
		if open = append(open, c); len(open) > held {
			_ = open[0].Close()
			open = open[1:]
		}
		idle(ctx, 5*time.Millisecond)
	}
	return nil
}

// floodRegistrations registers as many apps as it can, holds the connections, and has
// some of them leave with many words, each of which goes on record.
func floodRegistrations(ctx context.Context, p place, did *atomic.Int64) error {
	var open []*raw
	pace := 5 * time.Millisecond
	for n := 0; ctx.Err() == nil; n++ {
		r, err := join(ctx, p, fmt.Sprint("@hostile/many", n), api.Capabilities{})
		if err != nil {
			// The limit: a part leaves, and comes again more slowly, since all of it
			// goes on record.
			pace = 100 * time.Millisecond
			for range len(open) / 10 {
				_ = open[0].say("app.shutdown", map[string]any{"reason": strings.Repeat("x", 4000)})
				_ = open[0].Close()
				open = open[1:]
			}
			idle(ctx, time.Second)
			continue
		}
		did.Add(1)
		open = append(open, r)
		idle(ctx, pace)
	}
	return nil
}

// floodWaiting sends long messages to a channel that is away, until the daemon takes
// no more or there are many, and then has the channel come for them.
func floodWaiting(ctx context.Context, p place, did *atomic.Int64) error {
	const most = 60
	s := &soak{place: p, tokens: make(map[string]string)}
	flood, err := s.app(ctx, "@soak/flood", api.Capabilities{})
	if err != nil {
		return err
	}
	defer flood.Close()
	text := strings.Repeat("A long message. ", 12<<10)
	for ctx.Err() == nil {
		for range most {
			err := call(ctx, flood, "message.dispatch", map[string]any{
				"sessionKey": "sink:dora", "content": text, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
			}, nil)
			if code(err) == api.ConnectionClosed {
				return err
			}
			if err != nil {
				break // enough, or too many
			}
			did.Add(1)
		}
		sink, err := s.channel(ctx, "sink")
		if err != nil {
			return err
		}
		there, cancel := context.WithTimeout(ctx, 5*time.Second)
		s.receive(there, sink)
		cancel()
		if err := sink.Close(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// idle waits a while, or until the context ends.
func idle(ctx context.Context, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
