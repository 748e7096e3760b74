package approval

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
	"github.com/openclawos/ocipd/internal/store"
)

// form is the version of the stored form of a request. Before the second, the form was the wire's,
// without a number.
const form = 2

// head is the stored form of the part for lists. It has the members of the wire's summary, so that
// one that is added there cannot be forgotten here.
type head struct {
	ApprovalID           string            `json:"id"`
	Kind                 string            `json:"kind"`
	TaskID               string            `json:"task,omitzero"`
	State                string            `json:"state"`
	Code                 string            `json:"code,omitzero"`
	Reason               string            `json:"reason,omitzero"`
	AgentID              string            `json:"agent_id,omitzero"`
	Agent                string            `json:"agent,omitzero"`
	AppID                string            `json:"app,omitzero"`
	UserID               string            `json:"user,omitzero"`
	SessionKey           string            `json:"session,omitzero"`
	Counterparty         string            `json:"counterparty,omitzero"`
	CounterpartyUserID   string            `json:"counterparty_user,omitzero"`
	CounterpartyKind     ocip.Kind         `json:"counterparty_kind,omitzero"`
	CounterpartyTenantID string            `json:"counterparty_tenant,omitzero"`
	Target               string            `json:"target,omitzero"`
	ExchangeID           string            `json:"exchange,omitzero"`
	ConversationID       string            `json:"conversation,omitzero"`
	Type                 ocip.ExchangeType `json:"type,omitzero"`
	Round                int               `json:"round,omitzero"`
	MaxRounds            int               `json:"max_rounds,omitzero"`
	Classification       string            `json:"classification,omitzero"`
	Summary              string            `json:"summary,omitzero"`
	DispatchID           string            `json:"dispatch,omitzero"`
	AskedAt              int64             `json:"asked_at"`
	ExpiresAt            int64             `json:"expires_at"`
	DecidedAt            int64             `json:"decided_at,omitzero"`
	Reasons              []ocip.Ground     `json:"reasons,omitempty"`
	opinion.Estimate
	Approvable bool   `json:"approvable,omitzero"`
	Blocked    string `json:"blocked,omitzero"`
	Needed     int    `json:"needed"`
	Given      int    `json:"given,omitzero"`
}

type storedHead struct {
	Form int `json:"v"`
	head
	// Because is LikelyBecause in a request of an earlier version.
	Because string `json:"likely_because,omitzero"`
}

// body is the stored form of the rest of a request.
type body struct {
	Form int `json:"v"`

	Address audit.Address `json:"address,omitzero"`
	Group   bool          `json:"group,omitzero"`

	Digest         string `json:"digest"`
	Salt           string `json:"salt,omitzero"`
	Anew           int    `json:"anew,omitzero"`
	PolicyApplied  string `json:"policy,omitzero"`
	PolicyRevision string `json:"policy_revision,omitzero"`

	Content          string            `json:"content,omitzero"`
	ContentBytes     int               `json:"content_bytes,omitzero"`
	Forgotten        bool              `json:"forgotten,omitzero"`
	Sending          jsontext.Value    `json:"sending,omitzero"`
	RequiresHuman    bool              `json:"requires_human,omitzero"`
	Media            []media           `json:"media,omitempty"`
	Extracts         []extract         `json:"extracts,omitempty"`
	DetectedKeywords []string          `json:"detected_keywords,omitempty"`
	Detections       []audit.Detection `json:"detections,omitempty"`
	DataShared       []ocip.Shared     `json:"data_shared,omitempty"`
	DataWithheld     []ocip.Withheld   `json:"data_withheld,omitempty"`

	history

	Approvals []word         `json:"approvals,omitempty"`
	Changed   []change       `json:"changed,omitempty"`
	Decision  *word          `json:"decision,omitzero"`
	Own       jsontext.Value `json:"own,omitzero"`
	Tenant    string         `json:"tenant,omitzero"`
}

// history is the stored form of the exchange and the causal chain that a message belongs to.
type history struct {
	Transcript        []ocip.Turn      `json:"transcript,omitempty"`
	Escalation        *ocip.Escalation `json:"escalation,omitzero"`
	Chain             *ocip.Chain      `json:"chain,omitzero"`
	EscalatedExchange string           `json:"escalated_exchange,omitzero"`

	Exchange   *bounds `json:"exchange,omitzero"`
	NoExchange string  `json:"no_exchange,omitzero"`
}

// media is [api.MediaItem], extract [api.Extract], word [api.ApprovalDecision], process
// [api.ClientProcess], change [api.ApprovalChange] and bounds [api.Bounds], as they are stored.
type (
	media struct {
		Member string `json:"member"`
		URL    string `json:"url,omitzero"`
		Path   string `json:"path,omitzero"`
		SHA256 string `json:"sha256,omitzero"`
		Bytes  int64  `json:"bytes,omitzero"`
	}
	extract struct {
		Member string `json:"member"`
		At     int    `json:"at,omitzero"`
		Of     int    `json:"of"`
		Text   string `json:"text"`
	}
	word struct {
		Decision    string `json:"decision"`
		By          string `json:"by"`
		UID         uint32 `json:"uid"`
		Note        string `json:"note,omitzero"`
		At          int64  `json:"at"`
		Fingerprint string `json:"fingerprint,omitzero"`
		Signature   string `json:"signature,omitzero"`

		Exchange *bounds `json:"exchange,omitzero"`

		Via    string   `json:"via,omitzero"`
		Client *process `json:"client,omitzero"`
		Proof  string   `json:"proof,omitzero"`
	}
	process struct {
		PID int32  `json:"pid"`
		UID uint32 `json:"uid"`
		Exe string `json:"exe,omitzero"`
	}
	bounds struct {
		Words          []string `json:"words"`
		Classification string   `json:"level"`
		MaxRound       int      `json:"round"`
		Until          int64    `json:"until"`
	}
	change struct {
		Field string `json:"field"`
		Was   string `json:"was"`
		Now   string `json:"now"`
	}
)

// enter enters a request into a change: a new one, or the next state of one that is still in the
// state from.
func (r *Request) enter(c *store.Change, from, state string) error {
	row, err := r.encode(state)
	row.New, row.From = from == "", from
	c.Add(&row)
	return err
}

func (r *Request) encode(state string) (store.Approval, error) {
	r.State = state
	summary, err := json.Marshal(storedHead{Form: form, head: head(r.ApprovalSummary)})
	if err != nil {
		return store.Approval{}, fmt.Errorf("cannot encode approval %s: %w", r.ApprovalID, err)
	}
	b := body{
		Form: form, Address: r.Address, Group: r.Group, Digest: r.Digest, Salt: r.Salt, Anew: r.Anew, PolicyApplied: r.PolicyApplied, PolicyRevision: r.PolicyRevision,
		Content: r.Content, ContentBytes: r.ContentBytes, Forgotten: r.Forgotten, Sending: r.Sending, RequiresHuman: r.RequiresHuman,
		Media:            each(r.Media, func(m api.MediaItem) media { return media(m) }),
		Extracts:         each(r.Extracts, func(e api.Extract) extract { return extract(e) }),
		DetectedKeywords: r.DetectedKeywords, Detections: r.Detections, DataShared: r.DataShared, DataWithheld: r.DataWithheld,
		history: history{
			Transcript: r.Transcript, Escalation: r.Escalation, Chain: r.Chain, EscalatedExchange: r.EscalatedExchange,
			Exchange: (*bounds)(r.Exchange), NoExchange: r.NoExchange,
		},
		Approvals: each(r.Approvals, toWord),
		Changed:   each(r.Changed, func(c api.ApprovalChange) change { return change(c) }),
		Own:       r.Own, Tenant: r.Tenant,
	}
	if r.Decision != nil {
		last := toWord(*r.Decision)
		b.Decision = &last
	}
	text, err := json.Marshal(&b)
	if err != nil {
		return store.Approval{}, fmt.Errorf("cannot encode approval %s: %w", r.ApprovalID, err)
	}
	return store.Approval{
		ID: r.ApprovalID, Kind: r.Kind, Agent: r.Agent, AppID: r.AppID, ExchangeID: r.ExchangeID, Asked: r.Asked, State: state,
		ExpiresAt: time.UnixMilli(r.ExpiresAt), Summary: summary, Body: text,
	}, nil
}

func decode(a store.Approval) (*Request, error) {
	var b body
	if err := json.Unmarshal(a.Body, &b); err != nil {
		return nil, fmt.Errorf("cannot decode approval %s: %w", a.ID, err)
	}
	switch b.Form {
	case 0:
		return decodeFirst(a)
	case form:
	default:
		return nil, fmt.Errorf("cannot decode approval %s: form %d is not known to this version", a.ID, b.Form)
	}
	summary, err := decodeSummary(a.Summary)
	if err != nil {
		return nil, err
	}
	r := &Request{
		Asked: a.Asked, Anew: b.Anew, Own: b.Own, Tenant: b.Tenant,
		Approval: api.Approval{
			ApprovalSummary: summary, Address: b.Address, Group: b.Group, Digest: b.Digest, Salt: b.Salt, PolicyApplied: b.PolicyApplied, PolicyRevision: b.PolicyRevision,
			Content: b.Content, ContentBytes: b.ContentBytes, Forgotten: b.Forgotten, Sending: b.Sending, RequiresHuman: b.RequiresHuman,
			Media:            each(b.Media, func(m media) api.MediaItem { return api.MediaItem(m) }),
			Extracts:         each(b.Extracts, func(e extract) api.Extract { return api.Extract(e) }),
			DetectedKeywords: b.DetectedKeywords, Detections: b.Detections, DataShared: b.DataShared, DataWithheld: b.DataWithheld,
			Transcript: b.Transcript, Escalation: b.Escalation, Chain: b.Chain, EscalatedExchange: b.EscalatedExchange,
			Approvals: each(b.Approvals, word.decision),
			Changed:   each(b.Changed, func(c change) api.ApprovalChange { return api.ApprovalChange(c) }),
			Exchange:  (*api.Bounds)(b.Exchange), NoExchange: b.NoExchange,
		},
	}
	if b.Decision != nil {
		last := b.Decision.decision()
		r.Decision = &last
	}
	r.sign()
	return r, nil
}

func decodeSummary(text []byte) (api.ApprovalSummary, error) {
	var h storedHead
	err := json.Unmarshal(text, &h)
	if err == nil && h.Form == 0 {
		var first api.ApprovalSummary
		err = json.Unmarshal(text, &first)
		first.Kind = cmp.Or(first.Kind, api.ApprovalOfMessage)
		return first, wrap(err)
	}
	h.LikelyBecause = cmp.Or(h.LikelyBecause, h.Because)
	return api.ApprovalSummary(h.head), wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot decode an approval of the list: %w", err)
}

// decodeFirst decodes the first form: the wire's, and beside it the message's own data.
func decodeFirst(a store.Approval) (*Request, error) {
	var (
		first struct {
			Anew int `json:"anew"`
			api.Approval
		}
		own struct {
			Carried  bool     `json:"carried,omitzero"`
			Account  string   `json:"account,omitzero"`
			Metadata string   `json:"metadata"`
			Changes  []string `json:"changes,omitempty"`
		}
	)
	err := errors.Join(json.Unmarshal(a.Body, &first), json.Unmarshal(a.Body, &own))
	if err != nil {
		return nil, fmt.Errorf("cannot decode approval %s: %w", a.ID, err)
	}
	r := &Request{Approval: first.Approval, Asked: a.Asked, Anew: first.Anew}
	if r.Own, err = json.Marshal(&own); err != nil {
		return nil, fmt.Errorf("cannot decode approval %s: %w", a.ID, err)
	}
	if r.Kind == "" {
		// It was written when only messages to agents could wait.
		r.Kind, r.CounterpartyKind = api.ApprovalOfMessage, ocip.KindAgent
		_, r.Target, _ = strings.Cut(r.SessionKey, ":")
	}
	return r, nil
}

func toWord(d api.ApprovalDecision) word {
	return word{d.Decision, d.By, d.UID, d.Note, d.At, d.Fingerprint, d.Signature, (*bounds)(d.Exchange), d.Via, (*process)(d.Client), d.Proof}
}

func (w word) decision() api.ApprovalDecision {
	return api.ApprovalDecision{
		Decision: w.Decision, By: w.By, UID: w.UID, Note: w.Note, At: w.At, Fingerprint: w.Fingerprint, Signature: w.Signature, Exchange: (*api.Bounds)(w.Exchange),
		Asking: api.Asking{Via: w.Via, Client: (*api.ClientProcess)(w.Client), Proof: w.Proof},
	}
}

func each[A, B any](list []A, f func(A) B) (all []B) {
	for _, a := range list {
		all = append(all, f(a))
	}
	return all
}
