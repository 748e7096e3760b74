// Package mcpprobe asks a server over HTTP whether it speaks MCP, before a proxy stands in
// front of it. The caller must pass only a server that its user has named.
package mcpprobe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// probeTime bounds a probe, and maxProbe the bytes read of its answer.
const (
	probeTime = 10 * time.Second
	maxProbe  = 1 << 20
)

// probe is a first request of clients: a method in a version of the protocol.
type probe struct{ version, method, params string }

// probes are tried in order, because a server knows one of them.
var probes = [...]probe{
	{"2026-07-28", "server/discover", ""},
	{"2025-06-18", "initialize", `"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"ocipd","version":"1"},`},
}

// request is the HTTP request of the probe.
func (p *probe) request(ctx context.Context, target *url.URL) (*http.Request, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"ocipd","method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientInfo":{"name":"ocipd","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, p.method, p.params, p.version)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": p.version, "Mcp-Method": p.method} {
		r.Header.Set(name, value)
	}
	return r, nil
}

// Speaks returns an error if a server answers but neither speaks MCP nor asks for a login.
// It returns no error if the server is unreachable, because it may start later. unsure says
// why an answer is inconclusive, or is "".
func Speaks(ctx context.Context, target *url.URL) (unsure string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	said := ""
	for i := range probes {
		got, err := probes[i].ask(ctx, target)
		if err != nil || got.speaks {
			return "", nil // the client asks a server that is not there now
		}
		if got.fails {
			unsure = got.said
		}
		said = got.said
	}
	if unsure != "" {
		return unsure, nil
	}
	return "", fmt.Errorf("the server at %s does not speak MCP: asked to begin, it says %s", target.Redacted(), said)
}

// answer is the result of a probe. fails is set if the answer is only an error or a refusal.
type answer struct {
	speaks, fails bool
	said          string
}

// ask sends the probe to a server.
func (p *probe) ask(ctx context.Context, target *url.URL) (a answer, err error) {
	r, err := p.request(ctx, target)
	if err != nil {
		return answer{}, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	if session := got.Header.Get("Mcp-Session-Id"); session != "" {
		leave(ctx, client, target, session)
		return answer{speaks: true}, nil
	}
	switch {
	case got.StatusCode == http.StatusUnauthorized:
		return answer{speaks: true}, nil // it wants a login, and speaks then
	case got.StatusCode == http.StatusForbidden || got.StatusCode >= 500:
		return answer{fails: true, said: got.Status}, nil
	case got.StatusCode >= 300 && got.StatusCode != http.StatusBadRequest:
		return answer{said: got.Status}, nil
	}
	line, err := firstMessage(got)
	if err != nil {
		return answer{}, err
	}
	var said struct {
		Result struct {
			Version   jsontext.Value `json:"protocolVersion"`
			Versions  jsontext.Value `json:"supportedVersions"`
			Abilities jsontext.Value `json:"capabilities"`
		} `json:"result"`
		Error struct {
			Message string `json:"message"`
			Data    struct {
				Supported jsontext.Value `json:"supported"`
			} `json:"data"`
		} `json:"error"`
	}
	if json.Unmarshal(line, &said, jsontext.AllowInvalidUTF8(true)) != nil {
		return answer{said: "nothing that is a message"}, nil
	}
	// A server that lists its versions speaks one.
	if len(said.Error.Data.Supported) > 0 || len(said.Result.Version) > 0 || len(said.Result.Versions) > 0 || len(said.Result.Abilities) > 0 {
		return answer{speaks: true}, nil
	}
	return answer{said: fmt.Sprintf("%q", said.Error.Message)}, nil
}

// firstMessage returns the message of an answer, or the first one of its stream.
func firstMessage(r *http.Response) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "text/event-stream" {
		return io.ReadAll(io.LimitReader(r.Body, maxProbe))
	}
	var text, data []byte
	buf := make([]byte, 4096)
	for len(text) < maxProbe {
		n, err := r.Body.Read(buf)
		text = append(text, buf[:n]...)
		for line := range bytes.Lines(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))) {
			if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.HasSuffix(line, []byte("\n")) && len(bytes.TrimSpace(rest)) > 0 {
				return bytes.TrimSpace(rest), nil
			}
		}
		if err != nil {
			return data, nil
		}
	}
	return data, nil
}

// leave ends the session that a probe began.
func leave(ctx context.Context, client *http.Client, target *url.URL, session string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, target.String(), nil)
	if err != nil {
		return
	}
	r.Header.Set("Mcp-Session-Id", session)
	if got, err := client.Do(r); err == nil {
		_ = got.Body.Close()
	}
}
