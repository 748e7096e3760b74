package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/base/peer"
)

// refusal is the answer to a request that is not served.
type refusal struct {
	status int
	*api.Error
}

func refuse(status int, code api.Code, format string, args ...any) *refusal {
	return &refusal{status, api.Errorf(code, format, args...)}
}

// headers are in every answer. The page loads its own script and style and nothing else, and no
// other page can show it in a frame.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), microphone=(), geolocation=()",
	"Cache-Control":                "no-store",
}

// named checks by which name a request came: a page elsewhere can lead a browser to this address,
// but not by this name.
func (c *Console) named(r *http.Request) *refusal {
	if r.Host != c.o.Place.Authority() {
		return refuse(http.StatusMisdirectedRequest, api.InvalidRequest, "the console does not answer to this name")
	}
	return nil
}

// framing are the destinations of a request whose answer is shown within another page.
const framing = " iframe frame fencedframe embed object "

// ours checks that the page itself asks, and no page of another origin (Fetch, Origin and
// Sec-Fetch-Site). A person's way to the page is a file, and a file is another site: only the page,
// which holds nothing, may be visited from elsewhere.
func (c *Console) ours(r *http.Request) *refusal {
	elsewhere := refuse(http.StatusForbidden, api.Forbidden, "pages of other origins may not ask")
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) > 1, len(origins) == 1 && origins[0] != c.o.Place.Origin():
		return elsewhere
	case len(origins) == 0 && r.Method != http.MethodGet:
		return elsewhere
	}
	mode, dest := r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	if dest != "" && strings.Contains(framing, " "+dest+" ") {
		return refuse(http.StatusForbidden, api.Forbidden, "the console is not shown within another page")
	}
	sites := r.Header.Values("Sec-Fetch-Site")
	visit := r.Method == http.MethodGet && r.URL.Path == "/" && mode == "navigate" && dest == "document"
	switch site := strings.Join(sites, ","); site {
	case "", "same-origin":
		return nil
	case "none":
		if r.Method == http.MethodGet {
			return nil
		}
	case "cross-site":
		if visit {
			return nil
		}
	}
	return elsewhere
}

// connectionKey finds the connection of a request in its context.
type connectionKey struct{}

// connection is a connection of a browser.
type connection struct {
	client, server netip.AddrPort
}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(c))
}

func connectionOf(c net.Conn) (one connection) {
	if from, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		one.client = from.AddrPort()
	}
	if to, ok := c.LocalAddr().(*net.TCPAddr); ok {
		one.server = to.AddrPort()
	}
	return one
}

// errAway means that the daemon does not answer.
var errAway = errors.New("the daemon does not answer")

// peer names the process at the other end of a request's connection, if the same user runs it and
// the daemon would let it operate. Every process that holds the connection must be such a one. The
// error is [errAway] if the daemon cannot be asked.
func (c *Console) peer(ctx context.Context) (string, *refusal, error) {
	conn, ok := ctx.Value(connectionKey{}).(connection)
	if !ok {
		return "", refuse(http.StatusForbidden, api.Forbidden, "the connection is none of a browser's"), nil
	}
	found, err := peer.OfTCP(conn.client, conn.server)
	switch {
	case found.Known && found.UID != uint32(os.Geteuid()):
		uid := int64(found.UID)
		c.report(ctx, consoleapi.ConsoleReportParams{Event: consoleapi.PeerRefused, UID: &uid})
		return "", refuse(http.StatusForbidden, api.Forbidden, "the connection is of another user"), nil
	case errors.Is(err, peer.ErrGone):
		c.report(ctx, consoleapi.ConsoleReportParams{Event: consoleapi.PeerRefused})
		return "", refuse(http.StatusForbidden, api.Forbidden, "no process holds the other end of the connection, or it cannot be seen"), nil
	case err != nil:
		c.o.Log.Error("cannot tell who asks", "error", err)
		return "", refuse(http.StatusForbidden, api.Forbidden, "the console cannot tell which process asks"), nil
	}
	if no, err := c.mayOperate(ctx, found.Holders); no != nil || err != nil {
		return "", no, err
	}
	return found.Holders[0], nil, nil
}

// mayOperate asks the daemon about processes. It records a refusal.
func (c *Console) mayOperate(ctx context.Context, processes []string) (*refusal, error) {
	var result consoleapi.PeerCheckResult
	params := consoleapi.PeerCheckParams{Processes: processes}
	if err := c.calls.call(ctx, "peer.check", params, &result); err != nil {
		if away(err) {
			return nil, errAway
		}
		return refuse(http.StatusForbidden, api.Forbidden, "the daemon does not tell whether the process that asks may operate it: %v", err), nil
	}
	if result.Refused != nil {
		return refuse(http.StatusForbidden, api.Forbidden, "the process that asks may not operate the daemon: %s", result.Refused.Why), nil
	}
	return nil, nil
}

// away reports whether an error means that there is no daemon, and not that it refuses.
func away(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code == api.ConnectionClosed
	}
	return true
}

// reportTime bounds a report, which no answer waits for longer.
const reportTime = 5 * time.Second

// report has the daemon put an event on record. If it cannot, the console's own log has it.
func (c *Console) report(ctx context.Context, e consoleapi.ConsoleReportParams) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer cancel()
	if err := c.calls.call(ctx, "console.report", e, nil); err != nil {
		c.o.Log.Warn("not on record", "event", e.Event, "error", err)
	}
}

// keyOf returns the key that a request claims to have, and the end of its session. A request that begins
// a session has the key of a link, and every other one that of its session.
func (c *Console) keyOf(r *http.Request, of claim) (key string, ends time.Time, ok bool) {
	if r.URL.Path == begins {
		key, ok = c.links.find(of.key)
		return key, time.Time{}, ok
	}
	return c.sessions.find(of.key)
}

// proven checks that a request is made with the key that it claims to have, and for the first time. A
// link is good once anyway.
func (c *Console) proven(q *request) bool {
	return q.claim.proves(q.key, q.Request, q.body) && (q.URL.Path == begins || c.sessions.once(q.claim))
}

// unknown refuses a session that the console does not know, and has the refusal put on record.
func (c *Console) unknown(ctx context.Context, process string) *refusal {
	c.report(ctx, consoleapi.ConsoleReportParams{Event: consoleapi.SessionRefused, Process: process})
	return refuse(http.StatusUnauthorized, api.Unauthorized, "there is no session, or it has ended: run ocipd console")
}

// unavailable is the answer while the daemon is away.
func unavailable(err error) *refusal {
	if errors.Is(err, client.ErrNotRunning) {
		return refuse(http.StatusServiceUnavailable, api.ConnectionClosed, "the daemon does not answer: %v", err)
	}
	return refuse(http.StatusServiceUnavailable, api.ConnectionClosed, "%v", errAway)
}
