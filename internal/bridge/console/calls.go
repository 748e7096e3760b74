package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/consoleapi"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/approval/describe"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// session begins a session for a link.
func (c *Console) session(q *request) (answer, *refusal) {
	if _, no := parse[struct{}](q.body); no != nil {
		return nil, no
	}
	// Nothing is taken from a link while its session could show nothing.
	var status api.Status
	if err := c.calls.call(q.Context(), "kernel.status", nil, &status); err != nil {
		return nil, refusedBy(err)
	}
	if err := c.links.use(q.claim.key); err != nil {
		if errors.Is(err, errLinkUsed) || errors.Is(err, errLinkLate) {
			c.report(q.Context(), consoleapi.ConsoleReportParams{Event: consoleapi.LinkReused, Process: q.process})
		}
		return nil, refuse(http.StatusUnauthorized, api.Unauthorized, "%v", err)
	}
	ends := c.sessions.begin(q.claim.session(q.key))
	c.report(q.Context(), consoleapi.ConsoleReportParams{Event: consoleapi.Opened, Process: q.process})
	return map[string]any{"expiresAt": ends.UnixMilli(), "person": person(), "signers": c.names(), "name": status.Audit.Log, "rpId": c.o.Place.Host}, nil
}

// method checks the parameters of a method, strictly. A method that stops something names the process
// that asks.
type method struct {
	check func(params jsontext.Value) error
	stops bool
}

func of[P any]() method {
	decode := wire.DecoderOf[P]()
	return method{check: func(params jsontext.Value) error {
		_, err := decode(params, true)
		return err
	}}
}

func stops[P any]() method {
	m := of[P]()
	m.stops = true
	return m
}

// methods returns those that a session may call: they read, or stop something.
var methods = sync.OnceValue(func() map[string]method {
	return map[string]method{
		"approval.get": of[api.ApprovalParams](), "approval.list": of[api.ApprovalListParams](),
		"audit.inspect": of[api.AuditInspectParams](), "audit.query": of[api.AuditQueryParams](), "audit.stats": of[api.AuditStatsParams](),
		"contact.list": of[api.ContactListParams](), "exchange.get": of[api.ExchangeParams](), "exchange.list": of[api.ExchangeListParams](),
		"grant.list": of[api.GrantListParams](), "kernel.status": of[api.Empty](), "queue.list": of[api.QueueListParams](),
		"task.get": of[taskapi.GetParams](), "task.grants": of[taskapi.GrantsParams](), "task.list": of[taskapi.ListParams](),

		"grant.revoke": stops[api.GrantRevokeParams](), "sending.pause": stops[api.PauseParams](), "task.kill_effect": stops[taskapi.KillEffectParams](),
	}
})

// called is a call of a page.
type called struct {
	Method string         `json:"method" is:"required max=256"`
	Params jsontext.Value `json:"params,omitzero"`
}

// call relays a call of a page.
func (c *Console) call(q *request) (answer, *refusal) {
	p, no := parse[called](q.body)
	if no != nil {
		return nil, no
	}
	m, ok := methods()[p.Method]
	if !ok {
		no := refuse(http.StatusForbidden, api.Forbidden, "the console does not call %s: use the command", p.Method)
		no.Details = map[string]string{"command": command(p)}
		return nil, no
	}
	if err := m.check(p.Params); err != nil {
		return nil, &refusal{http.StatusBadRequest, api.AsError(err)}
	}
	var params any
	if len(p.Params) > 0 {
		params = p.Params
	}
	process := ""
	if m.stops {
		process = q.process
	}
	var result jsontext.Value
	if err := c.calls.callFor(q.Context(), process, p.Method, params, &result); err != nil {
		return failed(err)
	}
	return c.worded(p.Method, result)
}

// worded adds the words for people to the answers about approval requests.
func (c *Console) worded(method string, result jsontext.Value) (answer, *refusal) {
	unread := refuse(http.StatusInternalServerError, api.InternalError, "the daemon's answer cannot be read")
	switch method {
	case "approval.get":
		var a api.Approval
		if err := json.Unmarshal(result, &a); err != nil {
			return nil, unread
		}
		return map[string]any{"result": result, "shown": describe.Show(&a, c.o.Now())}, nil
	case "approval.list":
		var list api.ApprovalListResult
		if err := json.Unmarshal(result, &list); err != nil {
			return nil, unread
		}
		rows := make([]row, len(list.Approvals))
		for i, raw := range list.Approvals {
			a, err := summary(raw)
			if err != nil {
				return nil, unread
			}
			rows[i] = rowOf(raw, a)
		}
		return map[string]any{"result": map[string]any{"approvals": rows, "total": list.Total}}, nil
	}
	return map[string]any{"result": result}, nil
}

// row is an approval request in a list, with the words and the order that the terminal has too.
type row struct {
	Approval jsontext.Value `json:"approval"`
	Why      string         `json:"why"`
	Rank     int            `json:"rank"`
	Like     string         `json:"like"`
}

func summary(raw jsontext.Value) (a api.ApprovalSummary, err error) {
	err = json.Unmarshal(raw, &a)
	return a, err
}

func rowOf(raw jsontext.Value, a api.ApprovalSummary) row {
	return row{raw, describe.Why(&a), describe.Rank(&a), describe.Like(&a)}
}

// failed is the answer if the daemon has refused a call: its error as it is.
func failed(err error) (answer, *refusal) {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.ConnectionClosed {
		return map[string]any{"error": e}, nil
	}
	return nil, refusedBy(err)
}

// refusedBy is the refusal if the daemon has not answered as it should.
func refusedBy(err error) *refusal {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.ConnectionClosed {
		return &refusal{http.StatusForbidden, e}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return refuse(http.StatusServiceUnavailable, api.Timeout, "the daemon has not answered in time")
	}
	return unavailable(err)
}

// command is the command for a shell that makes a call: the one that people use, if there is one.
func command(p *called) string {
	switch p.Method {
	case "approval.resolve":
		var d decision
		if json.Unmarshal(p.Params, &d) == nil && d.ApprovalID != "" && slices.Contains(api.DecisionsOf(api.ApprovalOfMessage), d.Decision) {
			return commandFor(&d)
		}
	case "sending.resume":
		var scope api.PauseParams
		if len(p.Params) == 0 || json.Unmarshal(p.Params, &scope) == nil {
			return resume(&scope)
		}
	}
	params := "{}"
	if len(p.Params) > 0 {
		params = string(p.Params)
	}
	return fmt.Sprintf("ocipd call %s %s", quoted(p.Method), quoted(params))
}

// resume is the command that ends a pause.
func resume(scope *api.PauseParams) string {
	words := []string{"ocipd", "resume"}
	for _, flag := range [][2]string{{"--agent", scope.Agent}, {"--channel", scope.Channel}, {"--note", scope.Note}} {
		if flag[1] != "" {
			words = append(words, flag[0], quoted(flag[1]))
		}
	}
	return strings.Join(words, " ")
}

// plain are the characters that no shell changes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// quoted is an argument for a shell.
func quoted(text string) string {
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// health makes the checks of `ocipd doctor`.
func (c *Console) health(q *request) (answer, *refusal) {
	if _, no := parse[struct{}](q.body); no != nil {
		return nil, no
	}
	lines, err := c.o.Health(q.Context())
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, api.InternalError, "%v", err)
	}
	return lines, nil
}

// person is the name under which decisions without a signature are recorded.
func person() string { return fmt.Sprintf("uid:%d", os.Geteuid()) }
