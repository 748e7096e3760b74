package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// relay stands between a proxy and the daemon. While it holds, nobody reads the daemon's
// answer to a question about a message.
type relay struct {
	path  string
	holds atomic.Bool
	mu    sync.Mutex
	open  []net.Conn
}

func (p *proxyTrial) relay() *relay {
	p.t.Helper()
	r := &relay{path: filepath.Join(p.dir, "relay.sock")}
	l, err := net.Listen("unix", r.path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		l.Close()
		r.drop()
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", p.socket)
			if err != nil {
				from.Close()
				continue
			}
			r.mu.Lock()
			r.open = append(r.open, from, to)
			r.mu.Unlock()
			go r.serve(from, to)
		}
	}()
	return r
}

func (r *relay) serve(from, to net.Conn) {
	held := new(atomic.Bool)
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(from, to)
		if !held.Load() {
			from.Close()
		}
	}()
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			to.Close()
			return
		}
		if r.holds.Load() && !held.Load() && bytes.Contains(line, []byte(`"agent.emit"`)) {
			held.Store(true)
			_ = to.SetReadDeadline(time.Unix(1, 0))
			<-back
		}
		if _, err := to.Write(line); err != nil {
			from.Close()
		}
	}
}

// drop ends all connections.
func (r *relay) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		c.Close()
	}
	r.open = nil
}

// If the answer to an allowed message never arrives, the message was not sent: a record
// says so, its round stays used, and the next message has the next one. The same is true if
// the proxy or the daemon is killed.
func TestProxyNeverHearsTheAllow(t *testing.T) {
	const question = `{"to":"fred","text":"Is it done?"}`
	let := audit.Record{ActionType: audit.ActionExchange, PolicyResult: audit.ResultAllow, AgentID: "agent-ann-1"}
	for name, end := range map[string]func(*proxyTrial, *relay, *proxySession) *proxySession{
		"proxy": func(p *proxyTrial, r *relay, s *proxySession) *proxySession {
			if err := s.cmd.Process.Kill(); err != nil {
				p.t.Fatal(err)
			}
			_ = s.cmd.Wait()
			r.holds.Store(false)
			return p.proxied()
		},
		"daemon": func(p *proxyTrial, r *relay, s *proxySession) *proxySession {
			if err := p.daemon.Process.Kill(); err != nil {
				p.t.Fatal(err)
			}
			_ = p.daemon.Wait()
			r.drop()
			if text, isError := s.answer("1"); !isError || !strings.Contains(text, "Nothing was sent") {
				p.t.Errorf("answered %q", text)
			}
			r.holds.Store(false)
			p.daemon = p.start(p.t)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxyTrial(t)
			r := p.relay()
			r.holds.Store(true)
			s := p.proxied("--socket", r.path)
			s.say(call(1, "send_message", question))
			p.until("the decision", func() bool { return len(p.records(let)) == 1 })
			sent := p.records(let)[0]
			s = end(p, r, s)
			s.say(call(2, "search", `{}`)) // which has the proxy begin
			s.answer("2")
			p.until("the record", func() bool { return len(p.records(audit.Record{Event: "not_taken"})) == 1 })
			if got := p.records(audit.Record{Event: "not_taken"})[0]; got.DispatchID != sent.DispatchID || got.Round != 1 || got.ExchangeID != sent.ExchangeID {
				t.Errorf("on record is %+v", got)
			}
			s.say(call(3, "send_message", question))
			if text, isError := s.answer("3"); isError {
				t.Errorf("answered %q", text)
			}
			if got := p.records(let); len(got) != 2 || got[1].Round != 2 || got[1].ExchangeID != sent.ExchangeID {
				t.Errorf("on record are %d, the last of round %d", len(got), got[len(got)-1].Round)
			}
			if got := p.calls(); len(got) != 2 || !strings.Contains(got[1], `"id":3`) {
				t.Errorf("the server got %s", got)
			}
		})
	}
}

// An agent with an app speaks through that app, and through no proxy.
func TestProxyOfAnAgentWithAnApp(t *testing.T) {
	t.Parallel()
	p := newProxyTrial(t)
	if err := p.daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.daemon.Wait()
	config := strings.Replace(proxyTeam, "{id: ann,", `{id: ann, app: "@acme/ann",`, 1)
	if err := os.WriteFile(filepath.Join(p.dir, "ocipd.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.daemon = p.start(t)
	s := p.proxied()
	s.say(call(1, "send_message", `{"to":"dave","text":"Hello"}`))
	if text, isError := s.answer("1"); !isError || !strings.Contains(text, "@acme/ann") || !strings.Contains(text, "Nothing was sent") {
		t.Errorf("answered %q", text)
	}
	s.say(call(2, "search", `{}`))
	if text, isError := s.answer("2"); !isError || !strings.Contains(text, "@acme/ann") {
		t.Errorf("answered %q", text)
	}
	if got := p.calls(); len(got) != 0 {
		t.Errorf("the server got %s", got)
	}
}
