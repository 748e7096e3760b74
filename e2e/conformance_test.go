//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// sdk is the SDK whose server and client for conformance tests are tried; go.mod pins it.
const sdk = "github.com/modelcontextprotocol/go-sdk/conformance/"

// running starts a program that runs until the test ends.
func (r *trial) running(env []string, args ...string) (out *bufio.Reader) {
	r.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = env, r.dir
	from, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return bufio.NewReader(from)
}

// served starts a server over HTTP, and returns its address once it answers.
func (r *trial) served(path string, command func(port string) (env, args []string)) (url string) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	_ = l.Close()
	env, args := command(port)
	go func(out io.Reader) { _, _ = io.Copy(io.Discard, out) }(r.running(env, args...))
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for over := time.Now().Add(time.Minute); time.Now().Before(over); <-again.C {
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			return "http://" + at + path
		}
	}
	r.t.Fatalf("%s does not listen", args[0])
	return ""
}

// proxied starts the proxy before a server over HTTP, and returns its address.
func (r *trial) proxied(url string) string {
	r.t.Helper()
	line, err := r.running(r.env(), r.ocipd, "mcp-proxy", "--agent", "ann", "--token-file", r.at("ann.token"), "--socket", r.socket, "--listen", "127.0.0.1:0", "--url", url).ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// talk is a client's over HTTP, and all that it was answered, with numbers in place of the
// ids that are chance.
type talk struct {
	t       *testing.T
	ctx     context.Context
	url     string
	session string
	ids     map[string]string
	said    []string
	// first and last are the ids of the first event and the last.
	first, last string
}

func (c *talk) ask(method, body, since string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{"Mcp-Session-Id": c.session, "Last-Event-Id": since} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	got, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// take reads an answer to its end, or to the event that is named, and answers what the
// server asks meanwhile.
func (c *talk) take(got *http.Response, until string) {
	c.t.Helper()
	defer got.Body.Close()
	for _, name := range []string{"Date", "Connection", "Keep-Alive"} {
		got.Header.Del(name)
	}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") || got.ContentLength == 0 {
		// A stream that is whole already has a length, which the proxy does not wait for. An empty
		// answer comes with a length of 0 or without one.
		got.Header.Del("Content-Length")
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got.Header)) {
		fmt.Fprintf(&text, "%s: %q\n", name, got.Header[name])
	}
	body := bufio.NewReader(got.Body)
	for {
		line, err := body.ReadString('\n')
		text.WriteString(line)
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			c.last = strings.TrimSpace(id)
			if c.first == "" {
				c.first = c.last
			}
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &m) == nil && until == "" {
			if answer := answers[m.Method]; answer != "" {
				c.take(c.ask(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer), ""), "")
			}
		}
		if err == io.EOF || until != "" && line == "\n" && c.last == until {
			break
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.said = append(c.said, got.Status+"\n"+uuid.ReplaceAllStringFunc(text.String(), func(id string) string {
		if c.ids[id] == "" {
			c.ids[id] = fmt.Sprintf("<%d>", len(c.ids))
		}
		return c.ids[id]
	}))
}

// browse asks all of it over HTTP, and goes on with the first stream in the end.
func browse(t *testing.T, url string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := &talk{t: t, ctx: ctx, url: url, ids: make(map[string]string)}
	for id, request := range everything {
		got := c.ask(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, request), "")
		if id == 0 {
			c.session = got.Header.Get("Mcp-Session-Id")
		}
		c.take(got, "")
		if id == 0 {
			c.take(c.ask(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""), "")
		}
	}
	for _, body := range []string{`{`, `[]`} {
		got := c.ask(http.MethodPost, body, "")
		_ = got.Body.Close()
		if got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusAccepted {
			t.Errorf("%s is answered %s", body, got.Status)
		}
	}
	c.take(c.ask(http.MethodGet, "", c.first), c.last)
	c.take(c.ask(http.MethodDelete, "", ""), "")
	c.take(c.ask(http.MethodPost, `{"jsonrpc":"2.0","id":99,"method":"tools/list"}`, ""), "")
	return c.said
}

// A server over HTTP says the same through the proxy as without it, byte for byte: headers,
// streams, what is said again, and the end of a session.
func TestEverythingOverHTTP(t *testing.T) {
	r := begin(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	url := r.served("/mcp", func(port string) (env, args []string) {
		return r.env("PORT=" + port), []string{filepath.Join(r.node, "mcp-server-everything"), "streamableHttp"}
	})
	want, got := browse(t, url), browse(t, r.proxied(url))
	same(t, got, "through the proxy", want, "without")
	if len(want) < len(everything)+4 {
		t.Errorf("%d answers were compared", len(want))
	}
}

// scenarios are those of the conformance tests for clients that need no authorization server:
// its addresses stand beside the server's own.
var scenarios = []string{
	"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "request-metadata", "sep-2322-client-request-state",
	"http-standard-headers", "http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
}

// through has a client connect to the proxy before the server whose address comes last.
const through = `#!/bin/sh
cd "$(mktemp -d)" && mkfifo at || exit 1
%s mcp-proxy --agent ann --token-file %s --socket %s --listen 127.0.0.1:0 --url "$1" >at &
read -r url <at
%s "$url"
code=$?
kill $!
wait $!
exit $code
`

// The protocol's conformance tests find the same of a server through the proxy as without
// it, in both protocols, and of a client all that they look for.
func TestConformanceThroughTheProxy(t *testing.T) {
	r := begin(t)
	r.operate("task", "grant", "--agent", "ann", "--out", r.at("ann.token"))
	for _, name := range []string{"everything-server", "everything-client"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", r.at(name), sdk+name)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	node, err := filepath.Abs("openclaw/node_modules/node/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	conformance := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), node, append([]string{filepath.Join(r.node, "conformance")}, args...)...)
		cmd.Env, cmd.Dir = r.env(), r.dir
		out, _ := cmd.CombinedOutput() // what is wrong stands in it
		return string(out)
	}
	found := regexp.MustCompile(`(?m)^. [a-z0-9-]+: \d+ passed, \d+ failed`)
	for revision, stateless := range map[string]string{"2025-11-25": "false", "2026-07-28": "true"} {
		url := r.served("/", func(port string) (env, args []string) {
			return r.env(), []string{r.at("everything-server"), "-http", "127.0.0.1:" + port, "-stateless=" + stateless}
		})
		of := func(url string) []string {
			return found.FindAllString(conformance("server", "--url", url, "--requirements", revision), -1)
		}
		want, got := of(url), of(r.proxied(url))
		if !slices.Equal(want, got) {
			t.Errorf("%s: through the proxy they find\n%s\nand without\n%s", revision, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if well := strings.Count(strings.Join(want, "\n"), "✓"); well < 30 {
			t.Errorf("%s: %d scenarios are well", revision, well)
		}
	}
	r.write("through", fmt.Sprintf(through, r.ocipd, r.at("ann.token"), r.socket, r.at("everything-client")))
	if err := os.Chmod(r.at("through"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, scenario := range scenarios {
		if out := conformance("client", "--command", r.at("through"), "--scenario", scenario); !strings.Contains(out, "OVERALL: PASSED") {
			t.Errorf("%s:\n%s", scenario, out)
		}
	}
}
