package a2aproxy

import (
	"fmt"
	"net/http"

	"github.com/openclawos/ocipd/internal/bridge/gatelink"
)

// Codes of JSON-RPC. refusedCode is among those that it leaves to servers, below those of the
// protocol.
const (
	refusedCode   = -32000
	malformedCode = -32600
	unknownCode   = -32601
)

// refusal is the answer to a refused request, with its status.
func refusal(q *request, no *gatelink.Refusal) (status int, body []byte) {
	reason := "ocipd: refused (" + no.Code + "): " + no.Reason
	details := `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":` + string(appendText(nil, no.Code)) + `,"domain":"ocipd"}]`
	if q.at != nil && q.at.binding == httpJSON {
		status, name := http.StatusForbidden, "PERMISSION_DENIED"
		switch no.Code {
		case "MALFORMED", "METHOD_NOT_FOUND":
			status, name = http.StatusBadRequest, "INVALID_ARGUMENT"
		case "PEER_UNREACHABLE", "PEER_ANSWER", "NOT_RUNNING", "TIMEOUT":
			status, name = http.StatusBadGateway, "UNAVAILABLE"
		}
		return status, fmt.Appendf(nil, `{"error":{"code":%d,"status":%q,"message":%s,"details":%s}}`, status, name, appendText(nil, reason), details)
	}
	code := refusedCode
	switch no.Code {
	case "MALFORMED":
		code = malformedCode
	case "METHOD_NOT_FOUND":
		code = unknownCode
	}
	id := "null"
	if q.id != nil {
		id = string(q.id)
	}
	return http.StatusOK, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s,"data":%s}}`, id, code, appendText(nil, reason), details)
}

// fail answers a request with a refusal.
func (p *Proxy) fail(w http.ResponseWriter, q *request, no *gatelink.Refusal) {
	status, body := refusal(q, no)
	reply(w, q, status, body)
}
