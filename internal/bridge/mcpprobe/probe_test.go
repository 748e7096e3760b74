package mcpprobe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// A peer over HTTP that speaks another protocol is noticed before any client is served.
func TestSpeaks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status     int
		kind, body string
		speaks     bool
		unsure     string
	}{
		"a server":             {200, "application/json", `{"jsonrpc":"2.0","id":"ocipd","result":{"protocolVersion":"2025-06-18","capabilities":{}}}`, true, ""},
		"a stream":             {200, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"ocipd\",\"result\":{\"protocolVersion\":\"2025-06-18\"}}\n\n", true, ""},
		"one that wants login": {401, "text/plain", "", true, ""},
		"another version":      {400, "application/json", `{"jsonrpc":"2.0","id":"ocipd","error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`, true, ""},
		"A2A":                  {200, "application/json", `{"jsonrpc":"2.0","id":"ocipd","error":{"code":-32601,"message":"Method not found"}}`, false, ""},
		"a page":               {200, "text/html", "<html>", false, ""},
		"nothing":              {404, "text/plain", "", false, ""},
		"one that refuses":     {403, "text/plain", "", true, "403 Forbidden"},
		"one that fails":       {503, "text/plain", "", true, "503 Service Unavailable"},
		"a redirect":           {302, "text/plain", "", false, ""},
	} {
		behind := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", tc.kind)
			rw.WriteHeader(tc.status)
			fmt.Fprint(rw, tc.body)
		}))
		t.Cleanup(behind.Close)
		target, err := url.Parse(behind.URL)
		if err != nil {
			t.Fatal(err)
		}
		if unsure, err := Speaks(t.Context(), target); (err == nil) != tc.speaks || unsure != tc.unsure {
			t.Errorf("%s: %q, %v", name, unsure, err)
		}
	}
}
