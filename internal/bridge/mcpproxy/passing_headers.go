package mcpproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// positionHeader is the position from which a client resumes a stream.
const positionHeader = "Last-Event-Id"

// maxIdentity bounds the headers of a request that can name an account, and maxCredential the bytes of one.
// credentialWords are the words of one, such as Bearer and a token.
const (
	maxIdentity     = 16
	maxCredential   = 8 << 10
	credentialWords = 2
)

// passingHeaders takes the texts out of a request's headers, because no header is decided about. Those of the
// protocol, and those that describe the request, pass in the form of an id, or as the server has given them. Every
// other one may name the client's account: it has as many words as a credential. status and err say why a request
// cannot pass.
func passingHeaders(p *proxy, h http.Header) (status int, err error) {
	identity := 0
	for name, values := range h {
		value := strings.Join(values, ",")
		switch {
		case repeats(name), name == "Content-Type":
			// They are written anew.
		case name == sessionHeader:
			if !isName(value, idWords) && !p.given.gave("", sessionHeader+value) {
				return http.StatusNotFound, fmt.Errorf("the header %s is none that the server has given", name)
			}
		case name == positionHeader:
			if !isName(value, idWords) && !p.given.gave("", positionHeader+value) {
				return http.StatusBadRequest, fmt.Errorf("the header %s is none that the server has given", name)
			}
		case name == versionHeader:
			if !isName(value, idWords) {
				return http.StatusBadRequest, fmt.Errorf("the header %s is no version", name)
			}
		case name == "Accept":
			h[name] = []string{accepted(value)}
		case slices.Contains(requestHeaders, name):
			if !isName(value, idWords) {
				delete(h, name)
			}
		default:
			identity++
			foreign := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
			if identity > maxIdentity || len(value) > maxCredential || foreign || len(strings.Fields(value)) > credentialWords || !isName(name, nameWords) {
				return http.StatusBadRequest, fmt.Errorf("the header %.64q has a text, which nobody decides about, or there are more than %d such headers", name, maxIdentity)
			}
		}
	}
	return 0, nil
}

// accepted keeps of the types that a client accepts those that a server of the protocol has.
func accepted(value string) string {
	kept := slices.DeleteFunc([]string{"application/json", "text/event-stream", "*/*"}, func(kind string) bool { return !strings.Contains(value, kind) })
	return strings.Join(kept, ", ")
}

// givesHeaders notes what a server has given in the header of an answer.
func givesHeaders(p *proxy, h http.Header) {
	if session := h.Get(sessionHeader); session != "" {
		p.given.gives("", sessionHeader+session)
	}
}

// givesEvent notes the position that an event has given. One in the form of an id passes anyway.
func givesEvent(p *proxy, position string) {
	if !isName(position, idWords) {
		p.given.gives("", positionHeader+position)
	}
}
