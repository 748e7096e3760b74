package mcpproxy

import (
	"bytes"
	"crypto/sha256"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// given are the texts that a server has given its clients, in each of their sessions. Clients may repeat them.
type given struct {
	mu sync.Mutex
	// texts are cursors, states, and names of what the server has. templates are the addresses that it describes.
	texts     map[key]struct{}
	templates []template
}

// gives notes a text that the server has given its client: a cursor, a state, or the name of something that it has.
func (g *given) gives(session, text string) {
	if text == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.texts == nil {
		g.texts = make(map[key]struct{})
	}
	put(g.texts, givenKey(session, text), struct{}{})
}

// gave reports whether the server has given its client a text in a session.
func (g *given) gave(session, text string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.texts[givenKey(session, text)]
	return ok
}

func givenKey(session, text string) key {
	sum := sha256.Sum256([]byte(text))
	return key{session, string(sum[:])}
}

// remembers notes the state in an answer of the server, with which the client goes on with a call.
func (g *given) remembers(session string, f *frame) {
	if f.result.Kind() != '{' || !bytes.Contains(f.result, []byte(stateMember)) {
		return
	}
	list, err := toolmap.Members(f.result, 0)
	if err != nil {
		return
	}
	state, _ := toolmap.Find(list, stateMember)
	said, _ := toolmap.Text(state.Value)
	g.gives(session, said)
}

// lists notes the names in a list that the server gives, and the cursor of its next page.
func (g *given) lists(session string, f *frame) {
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
	g.gives(session, said.More)
	for _, one := range said.Prompts {
		g.gives(session, one.Name)
	}
	for _, one := range append(said.Resources, said.Forms...) {
		g.gives(session, one.URI)
		g.describes(session, one.Form)
	}
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
func (g *given) describes(session, text string) {
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.templates) < maxTemplates {
		g.templates = append(g.templates, template{session, form})
	}
}

// fits reports whether an address is of a template that the server has described.
func (g *given) fits(session, address string) bool {
	plain, err := url.PathUnescape(address)
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.templates {
		if t.session == session && t.form.MatchString(plain) {
			return true
		}
	}
	return false
}
