package mcpproxy

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// findTime bounds the proxy's own question for a server's tools.
const findTime = 10 * time.Second

// says is a server's description of itself.
type says struct {
	mu sync.Mutex
	// name is the server's name. tools maps the names of its tools to their arguments.
	name  string
	tools map[string][]string
	// headers are the arguments, by tool, that headers repeat.
	headers map[string][]annotated
	// whole is set when tools is complete, and asked when the proxy has asked for them.
	whole, asked bool
}

// listen returns an observer for a request whose answer describes the server, or nil.
func (p *proxy) listen(line []byte, f *frame, session string) *observer {
	list := strings.HasSuffix(f.method, "/list")
	if f.method != "initialize" && f.method != "server/discover" && !list || !f.plain() {
		return nil
	}
	first, tools := f.params.to == 0, f.method == "tools/list"
	if !first {
		params, err := toolmap.Members(line[f.params.from:f.params.to], 0)
		_, goesOn := toolmap.Find(params, "cursor")
		first = err == nil && !goesOn
	}
	o := &observer{key: key{session, f.key()}, seen: func(answer *frame) {
		if tools || !list {
			p.says.learn(answer, first && tools)
		}
		if list {
			p.given.lists(session, answer)
		}
	}}
	if !p.calls.listen(o) {
		return nil
	}
	return o
}

// learn notes a server's description of itself, and returns the cursor of the next page of tools.
// Set whole for the first page of tools: the list is complete unless there is a next page.
func (s *says) learn(f *frame, whole bool) (more string) {
	var said struct {
		Server struct {
			Name string `json:"name"`
		} `json:"serverInfo"`
		Tools []struct {
			Name  string `json:"name"`
			Input struct {
				Properties map[string]jsontext.Value `json:"properties"`
			} `json:"inputSchema"`
		} `json:"tools"`
		More string `json:"nextCursor"`
	}
	if json.Unmarshal(f.result, &said, jsontext.AllowInvalidUTF8(true)) != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if said.Server.Name != "" {
		s.name = said.Server.Name
	}
	for _, t := range said.Tools {
		if s.tools == nil {
			s.tools = make(map[string][]string)
		}
		if s.headers == nil {
			s.headers = make(map[string][]annotated)
		}
		delete(s.headers, t.Name)
		if list := annotatedIn(t.Input.Properties, nil); len(list) > 0 && len(s.headers) < maxTools {
			s.headers[t.Name] = list
		}
		var arguments []string
		for name := range t.Input.Properties {
			arguments = append(arguments, name)
		}
		if len(s.tools) < maxTools {
			s.tools[t.Name] = arguments
		}
	}
	s.whole = s.whole || whole && said.More == ""
	return said.More
}

// maxTools bounds the known tools of a server.
const maxTools = 4096

// maxPages bounds the pages of tools that the proxy asks for.
const maxPages = 64

// theMap is the map of the server. The first call of a tool determines it. If the server
// has not described itself by then, later calls try again.
func (p *proxy) theMap() *toolmap.Map {
	p.finding.Lock()
	defer p.finding.Unlock()
	if m := p.mapped.Load(); m != nil {
		return m
	}
	m, settled := find(p)
	if settled {
		p.mapped.Store(m)
	}
	return m
}

// find looks for the map of the server. settled is set if nothing more can be learned.
func find(p *proxy) (m *toolmap.Map, settled bool) {
	if p.o.Given || p.o.Map.Known() {
		// What the server says of itself takes back no word of the operator's.
		return p.o.Map, true
	}
	m, asks := ofSaid(p)
	if m == nil && asks {
		p.inquire()
		m, _ = ofSaid(p)
	}
	p.says.mu.Lock()
	settled = p.says.whole
	p.says.mu.Unlock()
	switch {
	case m != nil:
		p.o.Log.Warn("only the server itself says that this map is its own", "map", m.Name)
		return m.Claim(p.o.Map), true
	case asks || settled:
		p.o.Log.Warn("no map is for this server: what its tools send is guessed", "channel", p.o.Map.Channel)
	}
	return p.o.Map, settled
}

// ofSaid returns the map for the server's description of itself, or nil. asks is set if
// nobody has asked the server for all of its tools yet; most clients do.
func ofSaid(p *proxy) (m *toolmap.Map, asks bool) {
	p.says.mu.Lock()
	name, tools, asks := p.says.name, maps.Clone(p.says.tools), !p.says.whole && !p.says.asked
	p.says.mu.Unlock()
	m, err := toolmap.Server(name, tools)
	if err != nil {
		p.o.Log.Warn("cannot find the map of the server", "error", err)
	}
	return m, asks
}

// inquire asks the server for all of its tools, because its client has not.
func (p *proxy) inquire() {
	over := time.NewTimer(findTime)
	defer over.Stop()
	cursor := ""
	for range maxPages {
		accounts := p.accounts()
		if len(accounts) == 0 {
			return
		}
		own, told := "ocipd-"+p.o.NewID(), make(chan string, 1)
		o := &observer{key: key{id: keyOf(api.String(own))}, own: true, seen: func(f *frame) {
			told <- p.says.learn(f, true)
		}, done: func(string, string) {}}
		params := ""
		if cursor != "" {
			params = `,"params":{"cursor":` + string(api.String(cursor)) + `}`
		}
		if p.spare([]byte(`{"jsonrpc":"2.0","id":`+string(api.String(own))+`,"method":"tools/list"`+params+"}\n"), o, accounts[0]) != nil {
			return
		}
		p.says.mu.Lock()
		p.says.asked = true
		p.says.mu.Unlock()
		select {
		case cursor = <-told:
			if cursor == "" {
				return
			}
		case <-over.C:
			p.calls.unwatch(o.key)
			return
		case <-p.ended.Done():
			return
		}
	}
}
