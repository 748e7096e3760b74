package mcpproxy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The server gets the headers of the body that was decided about: none that the client wrote, whatever the
// signs in their names.
func TestHeadersAreOfTheDecidedBody(t *testing.T) {
	t.Parallel()
	var got []string
	address := served(t, withDaemon(t, func(string) {}), func(rw http.ResponseWriter, r *http.Request) {
		got = nil
		for name, values := range r.Header {
			if strings.HasPrefix(strings.ToLower(name), "mcp") && name != versionHeader {
				got = append(got, name+"="+strings.Join(values, ","))
			}
		}
		slices.Sort(got)
		body, _ := io.ReadAll(r.Body)
		result := `{"content":[]}`
		if strings.Contains(string(body), "tools/list") {
			result = `{"tools":[{"name":"note","inputSchema":{"properties":{"to":{"type":"string","x-mcp-header":"To"},"n":{"type":"integer","x-mcp-header":"N"},"text":{"type":"string"},
				"deep":{"properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"},"bad":{"type":"string","x-mcp-header":"a: b"}}},"any":true}}}]}`
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":3,"result":%s}`, result)
	})
	const last, before = "2026-07-28", "2025-11-25"
	post := func(version, method, params string, header ...string) string {
		ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":3,"method":"`+method+`","params":`+params+`}`, append(header, versionHeader, version)...)
		return strings.Join(got, " ")
	}
	for _, tc := range []struct {
		version, method, params string
		header                  []string
		want                    string
	}{
		{last, "tools/list", `{}`, nil, "Mcp-Method=tools/list"},
		{before, "tools/call", `{"name":"note","arguments":{"to":"dave"}}`, nil, ""},
		{before, "tools/call", `{"name":"note","arguments":{"to":"dave"}}`, []string{"Mcp-Name", "note"}, "Mcp-Method=tools/call Mcp-Name=note Mcp-Param-To=dave"},
		{last, "tools/call", `{"name":"note","arguments":{"to":"dave","text":"x"}}`, []string{"Mcp-Method", "ping", "Mcp-Name", "send", "Mcp-Param-To", "rival", "Mcp-Param-Text", "secret"},
			"Mcp-Method=tools/call Mcp-Name=note Mcp-Param-To=dave"},
		{last, "tools/call", `{"name":"note","arguments":{"to":"dave"}}`, []string{"Mcp_Param_To", "rival", "Mcp.Name", "send", "Mcp_Session_Id", "other", "Mcp-Else", "x"},
			"Mcp-Else=x Mcp-Method=tools/call Mcp-Name=note Mcp-Param-To=dave"},
		{last, "tools/call", `{"name":"note","arguments":{"to":" d","n":7.0,"deep":{"flag":true,"bad":"x"}}}`, nil,
			"Mcp-Method=tools/call Mcp-Name=note Mcp-Param-Flag=true Mcp-Param-N=7 Mcp-Param-To==?base64?IGQ=?="},
		{last, "tools/call", `{"name":"note","arguments":{"to":null,"n":1.5}}`, []string{"Mcp-Param-N", "2"}, "Mcp-Method=tools/call Mcp-Name=note"},
		{last, "tools/call", `{"name":"more","arguments":{"to":"dave"}}`, nil, "Mcp-Method=tools/call Mcp-Name=more"},
		{last, "resources/read", `{"uri":"x:\r\ny"}`, []string{"Mcp-Name", "x:z"}, "Mcp-Method=resources/read Mcp-Name==?base64?eDoNCnk=?="},
		{last, "prompts/get", `{"name":"hello"}`, []string{"Mcp-Session-Id", "s"}, "Mcp-Method=prompts/get Mcp-Name=hello Mcp-Session-Id=s"},
	} {
		if said := post(tc.version, tc.method, tc.params, tc.header...); said != tc.want {
			t.Errorf("%s %s %s with %q has the headers %q, want %q", tc.version, tc.method, tc.params, tc.header, said, tc.want)
		}
	}
	ask(t, http.MethodGet, address, "", "Mcp_Session_Id", "other", "Mcp-Name", "send")
	if len(got) > 0 {
		t.Errorf("a stream is asked for with %q", got)
	}
}
