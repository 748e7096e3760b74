package api

import "github.com/openclawos/ocipd/internal/ocip"

// ExchangeParams names an exchange.
type ExchangeParams struct {
	ExchangeID string `json:"exchangeId" is:"required max=256" doc:"The exchange."`
}

// ExchangeResolveParams ends an exchange. Outcome can only be "resolved". Agent,
// an instance id, is needed where several pairs of agents use the id.
type ExchangeResolveParams struct {
	ExchangeID string `json:"exchangeId" is:"required max=256" doc:"The exchange."`
	Agent      string `json:"agent,omitzero" doc:"An agent's instance id, if several pairs of agents use the id."`
	Outcome    string `json:"outcome" is:"required words=resolved" doc:"The outcome."`
	Note       string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
	State      string `json:"state,omitzero" is:"max=256" doc:"The state that the person saw, from exchange.get. Required if decisions are signed."`
	Signature  string `json:"signature,omitzero" is:"max=16384" doc:"An armored SSH signature over the settlement."`
}

// ExchangeListParams asks for a page of exchanges, newest first.
type ExchangeListParams struct {
	Agent        string `json:"agent,omitzero" doc:"An agent's instance id."`
	Counterparty string `json:"counterparty,omitzero" doc:"The other agent's instance id."`
	Outcome      string `json:"outcome,omitzero" doc:"The outcome."`
	Limit        *int   `json:"limit,omitzero" is:"range=1..1000" doc:"At most this many; 100 by default."`
	Before       string `json:"before,omitzero" doc:"The last exchange of the page before."`
}

// OrderKey has a connection's lists made one after another.
func (*ExchangeListParams) OrderKey() string { return lists }

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
	// State names the states of both sides of the exchange, and their held messages. An operator's
	// exchange.get alone has it: a person settles it.
	State string `json:"state,omitzero" doc:"A digest of the sides (outcome, round, time of the last change), the held requests, and the stop of the two agents. Every message, decision and settlement changes it."`
	// Pending is set if a person is to settle it: one of its approval requests is pending, or its
	// rounds are used up and nobody has settled that.
	Pending        bool        `json:"pending,omitzero" doc:"A person has to settle the exchange: a request is pending, or its rounds are used up and nobody has settled that."`
	CurrentRound   int         `json:"currentRound"`
	MaxRounds      int         `json:"maxRounds"`
	Classification string      `json:"classification"`
	OpenedAt       int64       `json:"openedAt"`
	UpdatedAt      int64       `json:"updatedAt"`
	ExpiresAt      int64       `json:"expiresAt"`
	Transcript     []ocip.Turn `json:"transcript"`
	// DataShared and DataWithheld are the declarations of its messages about their data (OCIP
	// reference, Data Tracking).
	DataShared   []ocip.Shared   `json:"dataShared"`
	DataWithheld []ocip.Withheld `json:"dataWithheld"`
}

// ExchangeResult is the sides of an exchange that the caller may see.
type ExchangeResult struct {
	Exchanges []Exchange `json:"exchanges"`
	// Altered is set for operators alone.
	Altered []string `json:"altered,omitzero" doc:"Rows that something else than the daemon changed: the list leaves out what needs them."`
}
