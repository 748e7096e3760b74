package mcpproxy

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// findTime is how long a server has to say which tools it has, where nobody has asked it.
const findTime = 10 * time.Second

// says is what a server says of itself.
type says struct {
	// name is its own, and tools are its tools' arguments by the tools' names.
	name  string
	tools map[string][]string
}

// listen has the server's answer to a request looked at that says what the server is.
func (p *proxy) listen(f *frame, session string) *observer {
	if f.method != "initialize" && f.method != "server/discover" && f.method != "tools/list" || !f.plain() {
		return nil
	}
	o := &observer{key: key{session, f.key()}, seen: p.learn}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, kept := p.kept[o.key]; kept || p.observers[o.key] != nil || p.deciding[o.key] != nil || len(p.observers) >= maxWatched/2 {
		return nil
	}
	p.observers[o.key] = o
	return o
}

// learn takes what a server says of itself.
func (p *proxy) learn(f *frame) {
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
	}
	if json.Unmarshal(f.result, &said, jsontext.AllowInvalidUTF8(true)) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if said.Server.Name != "" {
		p.says.name = said.Server.Name
	}
	for _, t := range said.Tools {
		if p.says.tools == nil {
			p.says.tools = make(map[string][]string)
		}
		var arguments []string
		for name := range t.Input.Properties {
			arguments = append(arguments, name)
		}
		if len(p.says.tools) < maxTools {
			p.says.tools[t.Name] = arguments
		}
	}
}

// maxTools bounds the tools of a server that are remembered.
const maxTools = 4096

// theMap is the map of the server, which is found for the first call of a tool and stays.
func (p *proxy) theMap() *toolmap.Map {
	p.finding.Do(func() {
		found := p.o.Map
		defer func() { p.mapped.Store(found) }()
		if p.o.Given {
			return
		}
		if !p.o.Map.Known() && !p.introduced() {
			p.inquire()
		}
		p.mu.Lock()
		said := p.says
		p.mu.Unlock()
		m, err := toolmap.Server(said.name, said.tools)
		if err != nil {
			p.o.Log.Warn("cannot find the map of the server", "error", err)
		}
		if m != nil {
			m.Unmapped = p.o.Map.Unmapped
			found = m
		}
		if !found.Known() {
			p.o.Log.Warn("no map is for this server: what its tools send is guessed", "channel", found.Channel)
		}
	})
	return p.mapped.Load()
}

// introduced reports whether the server has said what it is.
func (p *proxy) introduced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.says.name != "" || p.says.tools != nil
}

// inquire asks the server which tools it has: its client has not.
func (p *proxy) inquire() {
	own := "ocipd-" + p.o.NewID()
	told := make(chan struct{})
	o := &observer{key: key{id: keyOf(api.String(own))}, own: true, seen: func(f *frame) {
		p.learn(f)
		close(told)
	}, done: func(string, string) {}}
	line := []byte(`{"jsonrpc":"2.0","id":` + string(api.String(own)) + `,"method":"tools/list"}` + "\n")
	accounts := p.accounts()
	if len(accounts) == 0 || p.spare(line, o, accounts[0]) != nil {
		return
	}
	over := time.NewTimer(findTime)
	defer over.Stop()
	select {
	case <-told:
	case <-over.C:
		p.unwatch(o.key)
	case <-p.ended.Done():
	}
}
