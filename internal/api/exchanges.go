package api

import "github.com/openclawos/ocipd/internal/ocip"

// ExchangeParams names an exchange.
type ExchangeParams struct {
	ExchangeID string `json:"exchangeId"`
}

// Validate names the fields that are wrong.
func (p *ExchangeParams) Validate() []FieldError {
	var f Fields
	f.Text("exchangeId", p.ExchangeID, MaxName)
	return f
}

// ExchangeResolveParams ends an exchange. Outcome can only be "resolved". Agent,
// an instance id, is needed where several pairs of agents use the id.
type ExchangeResolveParams struct {
	ExchangeID string `json:"exchangeId"`
	Agent      string `json:"agent,omitzero"`
	Outcome    string `json:"outcome"`
	Note       string `json:"note,omitzero"`
	// State, for an operator, is the state that the person saw, from exchange.get. Another
	// one is not settled. It is required where the daemon demands signed decisions.
	State string `json:"state,omitzero"`
	// Signature is an armored SSH signature over [SignedNote] of [SignedSettlement], where the
	// daemon demands signed decisions.
	Signature string `json:"signature,omitzero"`
}

// Validate names the fields that are wrong.
func (p *ExchangeResolveParams) Validate() []FieldError {
	var f Fields
	f.Text("exchangeId", p.ExchangeID, MaxName)
	if p.Outcome != string(ocip.Resolved) {
		f.Add("outcome", "%q is not %q", p.Outcome, ocip.Resolved)
	}
	if len(p.Note) > MaxNote {
		f.Add("note", "longer than %d bytes", MaxNote)
	}
	f.UpTo("state", p.State, MaxName)
	f.UpTo("signature", p.Signature, MaxSignature)
	return f
}

// ExchangeListParams asks for a page of exchanges, newest first.
type ExchangeListParams struct {
	Agent        string `json:"agent,omitzero"`
	Counterparty string `json:"counterparty,omitzero"`
	Outcome      string `json:"outcome,omitzero"`
	Limit        *int   `json:"limit,omitzero"`
	Before       string `json:"before,omitzero"`
}

// OrderKey has a connection's lists made one after another.
func (*ExchangeListParams) OrderKey() string { return lists }

// Validate names the fields that are wrong.
func (p *ExchangeListParams) Validate() []FieldError {
	var f Fields
	if p.Limit != nil {
		f.Between("limit", *p.Limit, 1, MaxPage)
	}
	return f
}

// Page returns the page's size.
func (p *ExchangeListParams) Page() int {
	if p.Limit == nil {
		return DefaultPage
	}
	return *p.Limit
}

// Exchange is one side of an exchange. Agent and counterparty are instance ids,
// times Unix milliseconds.
type Exchange struct {
	ExchangeID     string `json:"exchangeId"`
	ConversationID string `json:"conversationId"`
	Type           string `json:"type"`
	Agent          string `json:"agent"`
	Counterparty   string `json:"counterparty"`
	SessionKey     string `json:"sessionKey"`
	Outcome        string `json:"outcome"`
	// State names how both sides of the exchange stand, and what is held of them. An
	// operator's exchange.get alone has it: it is what a person settles.
	State string `json:"state,omitzero"`
	// Pending is set where a person is to settle it: one of its approval requests is
	// pending, or its rounds are used up and nobody has settled that.
	Pending        bool        `json:"pending,omitzero"`
	CurrentRound   int         `json:"currentRound"`
	MaxRounds      int         `json:"maxRounds"`
	Classification string      `json:"classification"`
	OpenedAt       int64       `json:"openedAt"`
	UpdatedAt      int64       `json:"updatedAt"`
	ExpiresAt      int64       `json:"expiresAt"`
	Transcript     []ocip.Turn `json:"transcript"`
	// DataShared and DataWithheld are what its messages declared of their data
	// (OCIP reference, Data Tracking).
	DataShared   []ocip.Shared   `json:"dataShared"`
	DataWithheld []ocip.Withheld `json:"dataWithheld"`
}

// ExchangeResult is the sides of an exchange that the caller may see.
type ExchangeResult struct {
	Exchanges []Exchange `json:"exchanges"`
}
