package mcpproxy

import (
	"maps"
	"strings"
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
	// name is the server's name. tools maps the names of its tools to their arguments.
	name  string
	tools map[string][]string
	// headers are the arguments, by tool, that headers repeat.
	headers map[string][]annotated
	// whole is set when tools is complete, and asked when the proxy has asked for them.
	whole, asked bool
	// given are the texts that the server has given its clients: cursors, states, and names of what it has.
	given map[key]struct{}
	// templates are the addresses that the server describes.
	templates []template
	// open counts the requests that the server has got and not answered, and questions are its own.
	open      map[key]opened
	questions map[key]question
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
			p.learn(answer, first && tools)
		}
		if list {
			lists(p, session, answer)
		}
	}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, kept := p.kept[o.key]; kept || p.observers[o.key] != nil || p.deciding[o.key] != nil || len(p.observers) >= maxWatched/2 {
		return nil
	}
	p.observers[o.key] = o
	return o
}

// lists notes the names in a list that the server gives, and the cursor of its next page.
func lists(p *proxy, session string, f *frame) {
	type named struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Form string `json:"uriTemplate"`
	}
	var said struct {
		More      string  `json:"nextCursor"`
		Prompts   []named `json:"prompts"`
		Resources []named `json:"resources"`
		Forms     []named `json:"resourceTemplates"`
	}
	if json.Unmarshal(f.result, &said, jsontext.AllowInvalidUTF8(true)) != nil {
		return
	}
	gives(p, session, said.More)
	for _, one := range said.Prompts {
		gives(p, session, one.Name)
	}
	for _, one := range append(said.Resources, said.Forms...) {
		gives(p, session, one.URI)
		describes(p, session, one.Form)
	}
}

// learn notes a server's description of itself, and returns the cursor of the next page of tools.
// Set whole for the first page of tools: the list is complete unless there is a next page.
func (p *proxy) learn(f *frame, whole bool) (more string) {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if said.Server.Name != "" {
		p.says.name = said.Server.Name
	}
	for _, t := range said.Tools {
		if p.says.tools == nil {
			p.says.tools = make(map[string][]string)
		}
		if p.says.headers == nil {
			p.says.headers = make(map[string][]annotated)
		}
		delete(p.says.headers, t.Name)
		if list := annotatedIn(t.Input.Properties, nil); len(list) > 0 && len(p.says.headers) < maxTools {
			p.says.headers[t.Name] = list
		}
		var arguments []string
		for name := range t.Input.Properties {
			arguments = append(arguments, name)
		}
		if len(p.says.tools) < maxTools {
			p.says.tools[t.Name] = arguments
		}
	}
	p.says.whole = p.says.whole || whole && said.More == ""
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
	p.mu.Lock()
	settled = p.says.whole
	p.mu.Unlock()
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
	p.mu.Lock()
	name, tools, asks := p.says.name, maps.Clone(p.says.tools), !p.says.whole && !p.says.asked
	p.mu.Unlock()
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
			told <- p.learn(f, true)
		}, done: func(string, string) {}}
		params := ""
		if cursor != "" {
			params = `,"params":{"cursor":` + string(api.String(cursor)) + `}`
		}
		if p.spare([]byte(`{"jsonrpc":"2.0","id":`+string(api.String(own))+`,"method":"tools/list"`+params+"}\n"), o, accounts[0]) != nil {
			return
		}
		p.mu.Lock()
		p.says.asked = true
		p.mu.Unlock()
		select {
		case cursor = <-told:
			if cursor == "" {
				return
			}
		case <-over.C:
			p.unwatch(o.key)
			return
		case <-p.ended.Done():
			return
		}
	}
}
