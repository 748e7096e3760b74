package mcpproxy

import (
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// saysText reports whether a call, another request or an answer of the client has a text of the client's own.
func saysText(p *proxy, c *toolCall, m *toolmap.Map) bool {
	var more []toolmap.Member
	if id := c.odd(); id != nil {
		more = append(more, toolmap.Member{Name: "id", Value: id})
	}
	if !c.whole {
		return m.Shows(c.tool, c.arguments, more...)
	}
	own, ok := ownParts(p, c)
	return !ok || new(toolmap.Map).Shows(c.method, own, more...)
}

// ownParts are the parts of a request other than a call of a tool, or of an answer of the client, that the client
// chose itself. The address or name of something that the server has listed is none. It returns false if they
// cannot be told apart.
func ownParts(p *proxy, c *toolCall) (own []toolmap.Member, ok bool) {
	for _, m := range c.arguments {
		switch {
		case m.Name == metaMember, m.Name == stateMember:
		case c.method == "" && c.tool == "roots/list" && m.Name == "roots":
			if !areFolders(m.Value) {
				return nil, false
			}
		case m.Name == "ref":
			list, err := toolmap.Members(m.Value, 0)
			if err != nil {
				return nil, false
			}
			for _, one := range list {
				own = appendOwn(p, c.named.session, own, one)
			}
		default:
			own = appendOwn(p, c.named.session, own, m)
		}
	}
	return own, true
}

// appendOwn adds a member, unless the server has given its value.
func appendOwn(p *proxy, session string, own []toolmap.Member, m toolmap.Member) []toolmap.Member {
	said, ok := toolmap.Text(m.Value)
	switch {
	case ok && m.Name == "name" && p.given.gave(session, said), ok && m.Name == "uri" && (p.given.gave(session, said) || p.given.fits(session, said)):
		return own
	case ok && m.Name == "uri":
		if plain, err := url.PathUnescape(said); err == nil {
			m.Value = api.String(plain)
		}
	}
	return append(own, m)
}

// areFolders reports whether the roots of a client are folders of this machine, which have their names already.
func areFolders(v jsontext.Value) bool {
	var roots []jsontext.Value
	if json.Unmarshal(v, &roots) != nil {
		return false
	}
	for _, one := range roots {
		list, err := toolmap.Members(one, 0)
		if err != nil {
			return false
		}
		at, _ := toolmap.Find(list, "uri")
		said, _ := toolmap.Text(at.Value)
		u, err := url.Parse(said)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" {
			return false
		}
		if info, err := os.Stat(u.Path); err != nil || !info.IsDir() {
			return false
		}
		for _, m := range list {
			if name, _ := toolmap.Text(m.Value); m.Name != "uri" && (m.Name != "name" || name != filepath.Base(u.Path) && !isName(name, idWords)) {
				return false
			}
		}
	}
	return true
}
