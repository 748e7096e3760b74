package audit

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/text"
)

// Filter selects records. An empty member selects all; times are RFC 3339.
type Filter struct {
	// Since and Until bound the time, Until exclusive.
	Since        time.Time `json:"since,omitzero"`
	Until        time.Time `json:"until,omitzero"`
	ActionType   string    `json:"actionType,omitzero"`
	Side         string    `json:"side,omitzero"`
	Agent        string    `json:"agent,omitzero"`
	User         string    `json:"user,omitzero"`
	Tenant       string    `json:"tenant,omitzero"`
	App          string    `json:"app,omitzero"`
	Counterparty string    `json:"counterparty,omitzero"`
	Conversation string    `json:"conversation,omitzero"`
	Exchange     string    `json:"exchange,omitzero"`
	Chain        string    `json:"chain,omitzero"`
	Dispatch     string    `json:"dispatch,omitzero"`
	Approval     string    `json:"approval,omitzero"`
	Session      string    `json:"session,omitzero"`
	Result       string    `json:"result,omitzero"`
	Code         string    `json:"code,omitzero"`
	// Text is looked for inside the reason, whatever the case of either.
	Text string `json:"text,omitzero"`
}

// Fold gives a reason, or a text that is looked for in reasons, as they are
// compared.
func Fold(reason string) string { return strings.ToLower(reason) }

// Match reports whether a line is selected. It looks for the filter's values
// in the bytes first, since most lines do not hold them and need no decoding.
func (f *Filter) Match(line []byte) bool {
	wants := f.members(&Entry{})
	for _, w := range wants {
		if w.want == "" {
			continue
		}
		quoted, err := json.Marshal(w.want)
		if err != nil || !bytes.Contains(line, quoted) && !bytes.Contains(line, text.EscapeJSON(quoted, 0)) {
			return false
		}
	}
	if f.Text != "" && (!bytes.Contains(line, []byte(`"policyReason":"`)) || !utf8.ValidString(f.Text)) {
		return false
	}
	e, err := Parse(line)
	if err != nil {
		return false
	}
	for _, w := range f.members(&e) {
		if w.want != "" && w.want != w.have {
			return false
		}
	}
	if f.Text != "" && !strings.Contains(Fold(e.PolicyReason), Fold(f.Text)) {
		return false
	}
	return (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || e.Time.Before(f.Until))
}

type member struct{ want, have string }

func (f *Filter) members(e *Entry) []member {
	return []member{
		{f.ActionType, e.ActionType},
		{f.Side, e.Side},
		{f.Agent, e.AgentID},
		{f.User, e.UserID},
		{f.Tenant, e.TenantID},
		{f.App, e.AppID},
		{f.Counterparty, e.Counterparty.InstanceID},
		{f.Conversation, e.ConversationID},
		{f.Exchange, e.ExchangeID},
		{f.Chain, e.ChainID},
		{f.Dispatch, e.DispatchID},
		{f.Approval, e.ApprovalID},
		{f.Session, e.SessionKey},
		{f.Result, e.PolicyResult},
		{f.Code, e.Code},
	}
}

// Unbounded reports whether the filter selects every record.
func (f *Filter) Unbounded() bool { return *f == Filter{} }
