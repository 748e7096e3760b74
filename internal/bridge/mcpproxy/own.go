package mcpproxy

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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
	case ok && m.Name == "name" && gave(p, session, said), ok && m.Name == "uri" && (gave(p, session, said) || fits(p, session, said)):
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

// template is a list of addresses that a server describes in one session.
type template struct {
	session string
	form    *regexp.Regexp
}

// maxTemplates bounds the remembered templates, and maxTemplate the length of one.
const maxTemplates, maxTemplate = 1024, 1024

var expression = regexp.MustCompile(`\{[^{}]*\}`)

// describes notes a template. What is put into one is a name: it has no spaces, and is no longer than one.
func describes(p *proxy, session, text string) {
	if text == "" || len(text) > maxTemplate {
		return
	}
	var b strings.Builder
	at := 0
	for _, part := range expression.FindAllStringIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[at:part[0]]) + "[!-~]{0,64}")
		at = part[1]
	}
	form, err := regexp.Compile("^" + b.String() + regexp.QuoteMeta(text[at:]) + "$")
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.says.templates) < maxTemplates {
		p.says.templates = append(p.says.templates, template{session, form})
	}
}

// fits reports whether an address is of a template that the server has described.
func fits(p *proxy, session, address string) bool {
	plain, err := url.PathUnescape(address)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.says.templates {
		if t.session == session && t.form.MatchString(plain) {
			return true
		}
	}
	return false
}
