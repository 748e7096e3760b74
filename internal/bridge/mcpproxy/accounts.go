package mcpproxy

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// account distinguishes a client's session and its identity towards the server. A message that was approved for
// one is not sent by another. A server may identify clients by any header, whatever it makes of a session that it
// has not begun, so all of them count. Nobody else can compute the name, because the secret path is its key.
func (d *dialog) account() string {
	mac := hmac.New(sha256.New, []byte(d.path))
	fmt.Fprintf(mac, "%s\n", d.session)
	known := d.session != ""
	for _, name := range slices.Sorted(maps.Keys(d.r.Header)) {
		if ofOneRequest(name) {
			continue
		}
		known = true
		for _, one := range d.r.Header[name] {
			fmt.Fprintf(mac, "%s: %s\n", name, one)
		}
	}
	if !known {
		return ""
	}
	return hex.EncodeToString(mac.Sum(nil))[:12]
}

// requestHeaders describe a request or a program, and not the user behind it. The session counts by itself.
var requestHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Baggage", "Cache-Control", "Connection", "Content-Encoding", "Content-Language", "Content-Length", "Content-Type", "Date", "Expect",
	"Idempotency-Key", "Keep-Alive", "Last-Event-Id", "Mcp-Protocol-Version", "Mcp-Session-Id", "Origin", "Pragma", "Referer", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site",
	"Sec-Fetch-User", "Sentry-Trace", "Traceparent", "Tracestate", "Transfer-Encoding", "User-Agent", "X-B3-Flags", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Spanid", "X-B3-Traceid", "X-Correlation-Id",
	"X-Request-Id",
}

// ofOneRequest reports whether a header describes a request or a program, or repeats something of a message.
func ofOneRequest(name string) bool {
	return slices.Contains(requestHeaders, name) || repeats(name)
}

// oneIdentity reports why a server could take a client for another one than its headers say: a header has
// two values, or is named as one that goes no further than the proxy.
func oneIdentity(h http.Header) error {
	for name, values := range h {
		if len(values) > 1 && !slices.Contains([]string{"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Baggage", "Cache-Control", "Connection", "Tracestate"}, name) {
			return fmt.Errorf("the header %s is there twice", name)
		}
	}
	for name := range strings.SplitSeq(strings.Join(h.Values("Connection"), ","), ",") {
		if name = strings.TrimSpace(name); name != "" && !strings.EqualFold(name, "keep-alive") && !strings.EqualFold(name, "close") {
			return fmt.Errorf("the header Connection names %q", name)
		}
	}
	return nil
}

// maxAccounts bounds the accounts that can send approved messages later.
const maxAccounts = 256

// spoke notes that a client uses an account.
func (w *web) spoke(account string, h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = slices.DeleteFunc(w.last, func(c speaker) bool { return c.account == account })
	if len(w.last) >= maxAccounts {
		w.last = slices.Delete(w.last, 0, 1)
	}
	w.last = append(w.last, speaker{account, h.Clone()})
}

// leaves notes that a session has ended. Nothing is sent in it any more.
func (w *web) leaves(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = slices.DeleteFunc(w.last, func(c speaker) bool { return session != "" && c.header.Get(sessionHeader) == session })
}

// known returns the accounts of the known clients, the most recent one first.
func (w *web) known() (accounts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Backward(w.last) {
		accounts = append(accounts, c.account)
	}
	return accounts
}

// speaker is a client that has used a server.
type speaker struct {
	account string
	header  http.Header
}

// again makes a call of the proxy itself, in the session of a client.
func (w *web) again(line []byte, o *observer, account string) error {
	w.mu.Lock()
	i := slices.IndexFunc(w.last, func(c speaker) bool { return c.account == account })
	if i < 0 {
		w.mu.Unlock()
		return errors.New("no client is there")
	}
	last := w.last[i].header.Clone()
	w.mu.Unlock()
	repeat(w.proxy, last, line, true)
	o.key.session = last.Get(sessionHeader)
	last.Set("Accept", "application/json, text/event-stream")
	ctx, cancel := context.WithTimeout(context.WithValue(w.ctx, sessionKey{}, o.key.session), sendTime)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.target.String(), bytes.NewReader(line))
	if err != nil {
		cancel()
		return err
	}
	r.Header = last
	w.calls.watch(o)
	w.background.Go(func() {
		defer cancel()
		rec := &discard{header: make(http.Header)}
		w.back.ServeHTTP(rec, r)
		w.unanswered(o, rec.status, false)
	})
	return nil
}

// discard is a response writer that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header { return d.header }

func (d *discard) WriteHeader(status int) { d.status = status }

func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
