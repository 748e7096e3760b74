package a2aproxy

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// request is a request of a client, in either binding.
type request struct {
	method *method
	// name is the method's name in the client's version.
	name   string
	params *node
	// id is the client's id of the request, and sent the proxy's own towards the other side.
	// HTTP+JSON has none.
	id, sent jsontext.Value
	at       *face
	// session is the other side's.
	session string
	header  http.Header
	// fromPath are the params that the path holds.
	fromPath map[string]string
	// verb is that of HTTP+JSON.
	verb string
	// given identifies the request as it came.
	given [sha256.Size]byte
	// load is the memory that the request and its answers take.
	load *load
	// exchange is the exchange of the message that the request holds.
	exchange string
	// hook is the webhook that the request registers.
	hook *hook
}

// passing are the headers that go to the other side. The card's schemes add those that hold
// an API key.
var passing = []string{"Accept", "Authorization", "A2A-Version", "A2A-Extensions", "Traceparent", "Tracestate"}

// maxID bounds a text that is the id of a request.
const maxID = 128

// parseRPC reads a request of JSON-RPC.
func parseRPC(body []byte) (*request, error) {
	n, err := parse(body)
	switch {
	case err != nil:
		return nil, err
	case n.kind == '[':
		return nil, fmt.Errorf("%w: the protocol has no batches", errMalformed)
	case n.kind != '{':
		return nil, fmt.Errorf("%w: it is no object", errMalformed)
	}
	q := new(request)
	for i, name := range n.names {
		kid := n.kids[i]
		var ok bool
		switch name {
		case "jsonrpc":
			ok = kid.text == "2.0"
		case "id":
			q.id = kid.raw
			ok = kid.kind == '0' && len(kid.raw) <= 15 && strings.Trim(string(kid.raw), "0123456789") == "" ||
				kid.kind == '"' && len(kid.raw) <= maxID && isPlain(kid.text) && string(kid.raw) == `"`+kid.text+`"`
		case "method":
			q.name, ok = kid.text, kid.kind == '"'
		case "params":
			q.params, ok = kid, kid.kind == '{'
		default:
			return nil, fmt.Errorf("%w: JSON-RPC has no member %.200q", errMalformed, name)
		}
		if !ok {
			return q, fmt.Errorf("%w: the member %s", errMalformed, name)
		}
	}
	if n.get("jsonrpc") == nil || q.id == nil {
		return q, fmt.Errorf("%w: a request has the members jsonrpc and id", errMalformed)
	}
	if q.method = named(q.name); q.method == nil {
		return q, fmt.Errorf("%w: %.200q", errNoMethod, q.name)
	}
	if q.params == nil {
		q.params = objectNode()
	}
	return q, nil
}

var errNoMethod = errors.New("the protocol has no such method")

// parseREST reads a request of HTTP+JSON. The path is that behind the interface's address.
func parseREST(verb, path, query string, body []byte) (*request, error) {
	m, found, err := route(verb, path)
	if err != nil {
		return nil, err
	}
	q := &request{method: m, name: m.name, params: objectNode(), fromPath: found, verb: verb}
	if verb == http.MethodPost && len(body) > 0 {
		if q.params, err = parse(body); err != nil {
			return q, err
		}
		if q.params.kind != '{' {
			return q, fmt.Errorf("%w: it is no object", errMalformed)
		}
	} else if len(body) > 0 {
		return q, fmt.Errorf("%w: a request by %s has no body", errMalformed, verb)
	}
	values, err := url.ParseQuery(query)
	if err != nil || len(query) > 0 && verb == http.MethodPost {
		return q, fmt.Errorf("%w: the query cannot be read", errMalformed)
	}
	for name, all := range values {
		if len(all) != 1 {
			return q, fmt.Errorf("%w: %.200q stands in the query more than once", errMalformed, name)
		}
		if err := q.fromQuery(name, all[0]); err != nil {
			return q, err
		}
	}
	for name, value := range found {
		if given := q.params.get(name); given != nil && given.text != value {
			return q, fmt.Errorf("%w: the path and the body name different values for %s", errMalformed, name)
		}
		q.params.set(name, textNode(value))
	}
	return q, nil
}

// fromQuery takes a member from the query.
func (q *request) fromQuery(name, value string) error {
	l, ok := q.method.params.leaves[name]
	switch {
	case !ok || l == free:
		return fmt.Errorf("the protocol has no member %.200q in a query of %s", name, q.name)
	case q.params.get(name) != nil || q.fromPath[name] != "":
		return fmt.Errorf("%w: %.200q stands there more than once", errMalformed, name)
	case l == aNumber || l == aFlag:
		n, err := parse([]byte(value))
		if err != nil || n.kind == '"' || n.kind == '{' || n.kind == '[' {
			return fmt.Errorf("%.200q has the wrong type", name)
		}
		q.params.set(name, n)
	default:
		q.params.set(name, textNode(value))
	}
	return nil
}

// headers takes the headers that pass. Each has one value of visible ASCII.
func headers(given http.Header, keys []string) (http.Header, error) {
	out := make(http.Header)
	for _, name := range append(slices.Clone(passing), keys...) {
		values := given.Values(name)
		if len(values) == 0 {
			continue
		}
		value := strings.Join(values, ", ")
		if len(values) > 1 && name != "A2A-Extensions" && name != "Accept" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("%w: the header %s", errMalformed, name)
		}
		out.Set(name, value)
	}
	return out, nil
}

// isJSON reports whether a body is JSON that every program reads alike.
func isJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := cmp.Or(strings.ToLower(params["charset"]), "utf-8")
	return err == nil && len(h.Values("Content-Type")) == 1 && charset == "utf-8" && (kind == "application/json" || kind == "application/a2a+json")
}

// target is the request's address, and body what is sent there.
func (q *request) target() (verb, address string, body []byte) {
	if q.at.binding == jsonRPC {
		body = append([]byte(`{"jsonrpc":"2.0","id":`), q.sent...)
		body = appendText(append(body, `,"method":`...), q.name)
		body = q.params.write(append(body, `,"params":`...))
		return http.MethodPost, q.at.url.String(), append(body, '}')
	}
	path := q.method.path
	if tenant, ok := q.fromPath["tenant"]; ok {
		path = "/" + tenant + path
	}
	params := q.params.clone()
	for _, name := range []string{"id", "taskId", "tenant"} {
		if value := params.get(name); value != nil && strings.Contains(path, "{"+name+"}") {
			path = strings.ReplaceAll(path, "{"+name+"}", value.text)
			params.remove(name)
		} else if _, ok := q.fromPath[name]; ok {
			params.remove(name)
		}
	}
	u := *q.at.url
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	if q.verb == http.MethodPost {
		return http.MethodPost, u.String(), params.write(nil)
	}
	values := make(url.Values)
	for i, name := range params.names {
		value := params.kids[i]
		values.Set(name, cmp.Or(value.text, string(value.raw)))
	}
	u.RawQuery = values.Encode()
	return q.verb, u.String(), nil
}
