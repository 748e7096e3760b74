package console

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/api/members"
	"github.com/openclawos/ocipd/internal/bridge/console/page"
)

// request is a request that was checked.
type request struct {
	*http.Request
	w http.ResponseWriter
	// process holds the other end of the connection. claim is the proof, key its key, and ends the end
	// of the session.
	process string
	claim   claim
	key     string
	ends    time.Time
	body    []byte
}

// file is a file of the page.
type file struct {
	text []byte
	kind string
}

// answer is the body of an answer with a status other than 200, or the value of one with 200.
type answer any

// begins is the path at which a session begins: its proof is made with the key of a link.
const begins = "/session"

// posts are the paths at which a page asks.
var posts = map[string]func(*Console, *request) (answer, *refusal){
	begins: (*Console).session, "/prove": (*Console).prove, "/call": (*Console).call, "/health": (*Console).health, "/texts": (*Console).texts, "/decide": (*Console).decide, "/enrol": (*Console).enrolKey, "/stream": (*Console).stream,
}

// ServeHTTP checks and answers one request of a browser.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	q, file, no := c.admit(w, r)
	if no == nil && q == nil {
		w.Header().Set("Content-Type", file.kind)
		_, _ = w.Write(file.text) // the browser may be gone
		return
	}
	var result answer
	if no == nil {
		result, no = posts[r.URL.Path](c, q)
	}
	if no != nil {
		if no.status != http.StatusUnauthorized && no.status != http.StatusServiceUnavailable {
			c.o.Log.Info("refused a request", "from", r.RemoteAddr, "path", r.URL.Path, "why", no.Message)
		}
		write(w, no.status, map[string]any{"error": no.Error})
		return
	}
	if result != nil {
		write(w, http.StatusOK, result)
	}
}

// admit checks a request, cheap checks first: its name, its path, the page that asks, the process
// that asks, its session, its body, its proof. It returns a file if one was asked for.
func (c *Console) admit(w http.ResponseWriter, r *http.Request) (*request, file, *refusal) {
	var none file
	if no := c.named(r); no != nil {
		c.report(r.Context(), consoleapi.ConsoleReportParams{Event: consoleapi.HostRefused, Value: cut(r.Host)})
		return nil, none, no
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	text, kind, isFile := page.File(name)
	_, isPost := posts[r.URL.Path]
	switch {
	case r.Header.Get("Upgrade") != "":
		return nil, none, refuse(http.StatusBadRequest, api.InvalidRequest, "the console speaks no other protocol")
	case !isFile && !isPost:
		return nil, none, refuse(http.StatusNotFound, api.NotFound, "there is nothing at this path")
	case isFile && r.Method != http.MethodGet, isPost && r.Method != http.MethodPost:
		return nil, none, refuse(http.StatusMethodNotAllowed, api.InvalidRequest, "the method %s does not apply to this path", r.Method)
	}
	if no := c.ours(r); no != nil {
		c.report(r.Context(), consoleapi.ConsoleReportParams{Event: consoleapi.OriginRefused, Value: cut(r.Header.Get("Origin"))})
		return nil, none, no
	}
	process, no, err := c.peer(r.Context())
	if no != nil {
		return nil, none, no
	}
	if isFile {
		// The files hold nothing of the daemon's, so they are also there while it is away.
		return nil, file{text, kind}, nil
	}
	if err != nil {
		return nil, none, unavailable(err)
	}
	q := &request{Request: r, w: w, process: process}
	var ok bool
	if q.claim, ok = claimOf(r); ok {
		q.key, q.ends, ok = c.keyOf(r, q.claim)
	}
	if !ok {
		return nil, none, c.unknown(r.Context(), process)
	}
	if no := q.read(c.o.Now()); no != nil {
		return nil, none, no
	}
	if !c.proven(q) {
		return nil, none, c.unknown(r.Context(), process)
	}
	w.Header().Set(proofHeader, q.claim.answer(q.key))
	return q, none, nil
}

// maxValue bounds a header in a report, in bytes.
const maxValue = 256

func cut(value string) string {
	return strings.ToValidUTF8(value[:min(len(value), maxValue)], "")
}

// read reads the body.
func (q *request) read(now time.Time) *refusal {
	control := http.NewResponseController(q.w)
	if err := control.SetReadDeadline(now.Add(bodyTime)); err != nil {
		return refuse(http.StatusInternalServerError, api.InternalError, "cannot bound the time of a request")
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.Body, maxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return refuse(http.StatusRequestEntityTooLarge, api.InvalidRequest, "the request has more than %d bytes", maxBody)
	}
	if err == nil {
		err = control.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return refuse(http.StatusBadRequest, api.InvalidRequest, "the request cannot be read")
	}
	q.body = body
	return nil
}

// parse reads a body strictly: an unknown or doubled member is refused by its name, and so are
// values beyond their bounds.
func parse[P any](body []byte) (*P, *refusal) {
	p := new(P)
	err := json.Unmarshal(body, p, json.RejectUnknownMembers(true))
	if err == nil {
		if err := api.Invalid(members.Check(p)); err != nil {
			return nil, &refusal{http.StatusBadRequest, api.AsError(err)}
		}
		return p, nil
	}
	return nil, malformed(err)
}

// malformed names the member that makes a body none of the protocol.
func malformed(err error) *refusal {
	path, problem := "", "it is no JSON object of this protocol"
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		path, problem = string(e.JSONPointer), "it is not of the form that this member has"
		if errors.Is(err, json.ErrUnknownName) {
			problem = "there is no such member"
		}
	} else if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		path, problem = string(e.JSONPointer), "it is no valid JSON"
		if errors.Is(err, jsontext.ErrDuplicateName) {
			problem = "it is there twice"
		}
	}
	path = strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")
	no := refuse(http.StatusBadRequest, api.InvalidParams, "cannot read the request: %q: %s", path, problem)
	no.Details = []api.FieldError{{Path: path, Message: problem}}
	return no
}

func write(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"code":"INTERNAL_ERROR","message":"the answer cannot be written"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the browser may be gone
}
