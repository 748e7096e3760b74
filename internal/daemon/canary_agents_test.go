package daemon_test

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// grantedPrefix begins the recorded app of an agent without one.
const grantedPrefix = "@ocipd/agent:"

// byGrant reports whether the scout is an agent that speaks through a grant.
func (s *scout) byGrant() bool { return strings.HasPrefix(s.id, grantedPrefix) }

// attach makes the scout such an agent.
func (c *canary) attach(s *scout) {
	c.t.Helper()
	var granted taskapi.Granted
	c.operator("task.grant", object{"agent": s.speaks}, &granted)
	s.get("task.attach", `{"token":"`+granted.Token+`"}`)
}

// agentBases are calls of a method of agents with grants. Everybody else is refused.
func (c *canary) agentBases(method string, s *scout) (calls []object) {
	const uuid = "01890000-0000-7000-8000-000000000000"
	switch method {
	case "agent.send":
		for i, to := range []string{"alice", "bob", "ann", "gus", "agent:gina:main", "telegram:dave", "telegram:12", "chat:eve", "chat:7", "junk:1"} {
			calls = append(calls, object{brief: i%4 != 0, "to": to, "text": free("hello")},
				object{brief: i%4 != 1, "to": to, "text": free("again"), "exchange_id": "exchange" + c.unused("a"), "exchange_type": "information_query",
					"classification": "internal", "reply_policy": "agent-ok", "new_exchange": true, "request_key": free("key")})
			if !s.byGrant() && i == 1 {
				break
			}
		}
		return append(calls, object{"to": "bob", "text": free("about"), "task_id": "tsk_" + uuid, "attempt_id": "att_" + uuid})
	case "agent.read":
		return []object{{"cursor": uuid, "limit": 10}}
	case "agent.contacts":
		return []object{{}}
	case "agent.exchange":
		return []object{{"exchange_id": "none"}}
	case "agent.approval":
		return []object{{"approval_id": "none"}}
	}
	return nil
}

// readAll has the agents with grants read their inboxes to the end.
func (c *canary) readAll() {
	for _, s := range c.apps {
		if !s.byGrant() {
			continue
		}
		for cursor := ""; ; {
			var page api.AgentMessages
			if err := json.Unmarshal(s.get("agent.read", `{"limit":100,"cursor":"`+cursor+`"}`), &page); err != nil {
				c.t.Fatal(err)
			}
			for i := range page.Messages {
				s.done(s.ask("agent.exchange", `{"exchange_id":`+string(api.String(page.Messages[i].ExchangeID))+`}`))
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		s.get("agent.contacts", `{}`)
	}
}

// readBy judges an answer to a reading agent.
func (e *evidence) readBy(c *canary, m *mark, at *scout, result jsontext.Value) string {
	var page struct {
		Messages []jsontext.Value `json:"messages"`
	}
	if err := json.Unmarshal(result, &page); err != nil {
		return err.Error()
	}
	for _, text := range page.Messages {
		if !c.found(string(text))[m] {
			continue
		}
		var read api.AgentMessage
		if err := json.Unmarshal(text, &read); err != nil {
			return err.Error()
		}
		r := e.dispatch[read.DispatchID]
		if !slices.ContainsFunc(r, func(r *audit.Entry) bool { return r.PolicyResult == string(ocip.Allow) && c.party(r, m.by, true) }) ||
			!slices.ContainsFunc(r, func(r *audit.Entry) bool { return r.PolicyResult == string(ocip.Allow) && c.party(r, at, false) }) {
			return "nobody decided that"
		}
		digests := 0
		for _, r := range r {
			if want, err := e.digests.Digest(r.TenantID, read.Text); err == nil && want == r.ContentDigest {
				digests++
			}
		}
		if digests == 0 {
			return "what was read is not what is on record"
		}
	}
	return ""
}
