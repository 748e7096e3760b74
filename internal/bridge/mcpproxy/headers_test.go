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
// signs in their names. A request whose headers contradict its body is refused.
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
	const dave, all = `{"name":"note","arguments":{"to":"dave"}}`, `{"name":"note","arguments":{"to":" d","n":7.0,"deep":{"flag":true,"bad":"x"}}}`
	for _, tc := range []struct {
		version, method, params string
		header                  []string
		want                    string
	}{
		{last, "tools/list", `{}`, []string{"Mcp-Method", "tools/list"}, "Mcp-Method=tools/list"},
		{last, "tools/call", dave, nil, ""},
		{last, "tools/call", dave, []string{"Mcp-Method", "tools/call", "Mcp-Name", "note", "Mcp-Param-To", " dave ", "Mcp-Param-Text", "secret"}, "Mcp-Method=tools/call Mcp-Name=note Mcp-Param-To=dave"},
		{last, "tools/call", `{"name":"note","arguments":{"to":""}}`, []string{"Mcp-Param-To", ""}, "Mcp-Param-To="},
		{last, "tools/call", dave, []string{"Mcp-Param-To", ""}, "-32020 Mcp-Param-To"},
		{last, "tools/call", dave, []string{"Mcp-Method", "ping"}, "-32020 Mcp-Method"},
		{last, "tools/call", dave, []string{"Mcp-Name", "send"}, "-32020 Mcp-Name"},
		{last, "tools/call", dave, []string{"Mcp-Param-To", "rival"}, "-32020 Mcp-Param-To"},
		{last, "tools/call", dave, []string{"Mcp-Param-To", "=?base64?!?="}, "-32020 Mcp-Param-To"},
		{last, "tools/call", dave, []string{"Mcp-Param-N", "2"}, "-32020 Mcp-Param-N"},
		{last, "tools/call", dave, []string{"Mcp_Param_To", "rival", "Mcp.Name", "send", "Mcp_Session_Id", "other", "Mcp-Else", "x"}, "Mcp-Else=x"},
		{last, "tools/call", all, []string{"Mcp-Param-To", "=?base64?IGQ=?=", "Mcp-Param-N", "7", "Mcp-Param-Flag", "true"}, "Mcp-Param-Flag=true Mcp-Param-N=7 Mcp-Param-To==?base64?IGQ=?="},
		{last, "tools/call", all, []string{"Mcp-Param-To", "d"}, "-32020 Mcp-Param-To"},
		{last, "tools/call", `{"name":"more","arguments":{"to":"dave"}}`, []string{"Mcp-Name", "more", "Mcp-Param-To", "rival"}, "Mcp-Name=more"},
		{last, "resources/read", `{"uri":"x:\r\ny"}`, []string{"Mcp-Name", "=?base64?eDoNCnk=?="}, "Mcp-Name==?base64?eDoNCnk=?="},
		{last, "resources/read", `{"uri":"x:\r\ny"}`, []string{"Mcp-Name", "x:z"}, "-32020 Mcp-Name"},
		{last, "prompts/get", `{"name":"hello"}`, []string{"Mcp-Session-Id", "s"}, "Mcp-Session-Id=s"},
		{before, "tools/call", dave, nil, ""},
		{before, "tools/call", dave, []string{"Mcp-Name", "send", "Mcp-Param-To", "rival"}, "Mcp-Name=note Mcp-Param-To=dave"},
	} {
		got = nil
		answer := ask(t, http.MethodPost, address, `{"jsonrpc":"2.0","id":3,"method":"`+tc.method+`","params":`+tc.params+`}`, append(tc.header, versionHeader, tc.version)...)
		said := strings.Join(got, " ")
		if code, header, _ := strings.Cut(tc.want, " "); code == "-32020" {
			if said != "" || !strings.Contains(answer, code) || !strings.Contains(answer, "header "+header+" ") {
				t.Errorf("%s %s with %q is answered %s, and the server got %q", tc.method, tc.params, tc.header, answer, said)
			}
		} else if said != tc.want {
			t.Errorf("%s %s %s with %q has the headers %q, want %q", tc.version, tc.method, tc.params, tc.header, said, tc.want)
		}
	}
	got = nil
	ask(t, http.MethodGet, address, "", "Mcp_Session_Id", "other", "Mcp-Name", "send")
	if len(got) > 0 {
		t.Errorf("a stream is asked for with %q", got)
	}
}
