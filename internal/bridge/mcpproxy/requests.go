package mcpproxy

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// requests are those that the server or its client has got, and has not answered.
type requests struct {
	mu sync.Mutex
	// open counts the requests that the server has got and not answered, and questions are its own.
	open      map[key]opened
	questions map[key]question
}

// maxAsked bounds the requests of the client, and of the server, that are remembered until they are
// answered.
const maxAsked = 16 << 10

// question is a request of the server to its client.
type question struct {
	id     jsontext.Value
	method string
}

// opens notes that the server gets a request, which it may answer.
func (r *requests) opens(at key, id jsontext.Value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[key]opened)
	}
	put(r.open, at, opened{id.Clone(), r.open[at].n + 1})
}

// opened is the newest id of requests that the server has got, as it got it, and their number.
type opened struct {
	id jsontext.Value
	n  int
}

// isOpen returns the id of a request that the server has got and not answered, or nil.
func (r *requests) isOpen(at key) jsontext.Value {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[at].id
}

// put sets a member of a map that holds at most maxAsked.
func put[V any](m map[key]V, at key, value V) {
	if _, again := m[at]; !again && len(m) >= maxAsked {
		for one := range m {
			delete(m, one)
			break
		}
	}
	m[at] = value
}

// answersOpen reports whether an answer is one to a request that the server has got, and has not
// answered. On a resumed stream it may have.
func (r *requests) answersOpen(at key, resumed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[at]
	if o.n--; o.n > 0 {
		r.open[at] = o
	} else {
		delete(r.open, at)
	}
	return o.n >= 0 || resumed
}

// note remembers a request of the server, which the client may answer.
func (r *requests) note(session string, f *frame) {
	if !f.answerable() || len(f.method) > maxID || len(f.id) > maxID {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.questions == nil {
		r.questions = make(map[key]question)
	}
	put(r.questions, key{session, f.key()}, question{bytes.Clone(f.id), f.method})
}

// answered finds the request of the server that an answer of the client is to. The server may have made
// it before the session had its name.
func (r *requests) answered(session string, f *frame) (q question, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range []key{{session, f.key()}, {"", f.key()}} {
		if q, ok = r.questions[at]; ok {
			delete(r.questions, at)
			return q, true
		}
	}
	return q, false
}
