package mcpproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// No header brings the server a text that nobody has decided about, with any method of HTTP.
func TestHeadersHaveNoTexts(t *testing.T) {
	t.Parallel()
	const text = "We accept your offer of May"
	var got []string
	address := served(t, withDaemon(t, func(string) {}), func(rw http.ResponseWriter, r *http.Request) {
		got = []string{}
		for name, values := range r.Header {
			if value := strings.Join(values, ","); value != "" && !slices.Contains([]string{"Accept-Encoding", "Content-Length"}, name) {
				got = append(got, name+"="+value)
			}
		}
		slices.Sort(got)
		rw.Header().Set(sessionHeader, "given: of the server alone")
		if r.Method != http.MethodPost {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(rw, "id: the place of the server alone\ndata:\n\n")
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
	const both = "Accept=application/json, text/event-stream"
	for _, tc := range []struct {
		header []string
		want   string // "" for a request that is refused
	}{
		{[]string{"Accept", "text/event-stream, application/json;note=x, " + text, "Accept-Language", text, "Baggage", text, "Tracestate", text, "Referer", text, "X-Request-Id", text, "User-Agent", text}, both},
		{[]string{"Accept", "application/json, text/event-stream", "User-Agent", "python-httpx/0.27.0", "X-Request-Id", "0c5d7c6e-35a6-4c6d-9c8e-16f2ab3cd45e", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			both + " Traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 User-Agent=python-httpx/0.27.0 X-Request-Id=0c5d7c6e-35a6-4c6d-9c8e-16f2ab3cd45e"},
		{[]string{"Accept", "*/*", "Authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.x-_", "X-Api-Key", "k"}, "Accept=*/* Authorization=Bearer eyJhbGciOiJIUzI1NiJ9.e30.x-_ X-Api-Key=k"},
		{[]string{"Authorization", text}, ""}, {[]string{"X-Note", text}, ""}, {[]string{"If-None-Match", "我保证"}, ""}, {[]string{"X-We-Accept-Your-Offer-Of-May", "1"}, ""},
		{[]string{"X-Note", strings.Repeat("x", maxCredential+1)}, ""},
		{[]string{versionHeader, text}, ""}, {[]string{sessionHeader, text}, ""}, {[]string{positionHeader, text}, ""},
		{[]string{sessionHeader, "0c5d7c6e-35a6-4c6d-9c8e-16f2ab3cd45e", positionHeader, "7_12"}, positionHeader + "=7_12 " + sessionHeader + "=0c5d7c6e-35a6-4c6d-9c8e-16f2ab3cd45e"},
		// The server has given these.
		{[]string{sessionHeader, "given: of the server alone", positionHeader, "the place of the server alone"}, positionHeader + "=the place of the server alone " + sessionHeader + "=given: of the server alone"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			if slices.Contains(tc.header, "the place of the server alone") {
				ask(t, http.MethodGet, address, "")
			}
			got = nil
			ask(t, method, address, `{"jsonrpc":"2.0","id":3,"method":"ping"}`, tc.header...)
			said := slices.DeleteFunc(slices.Clone(got), func(h string) bool {
				// The client of the test says these of itself.
				name, _, _ := strings.Cut(h, "=")
				return name == "Content-Type" && h == "Content-Type=application/json" || !slices.Contains(tc.header, name)
			})
			if line := strings.Join(said, " "); line != tc.want || tc.want == "" && got != nil {
				t.Errorf("of %s with %.200q the server gets %q, want %q", method, tc.header, line, tc.want)
			}
		}
	}
}
