package api

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
)

// The kinds of grants: for one exchange, made with the approval of one of its messages,
// and standing, from one sender to one receiver.
const (
	GrantOfExchange = "exchange"
	GrantStanding   = "standing"
)

// The states of a grant. All but the first are final.
const (
	GrantInForce = "in_force"
	GrantRevoked = "revoked"
	GrantExpired = "expired"
	GrantUsedUp  = "used_up"
	// GrantOver means that the exchange has ended, or has come to the grant's last round.
	GrantOver = "over"
)

// Bounds limit a grant: the names of findings that it allows in a text (keywords and families
// of cues), the highest level, the last round of an exchange, and the time of its end in Unix
// milliseconds.
type Bounds struct {
	Words          []string `json:"words" is:"names nonempty" doc:"Keywords and families of cues that a message may have."`
	Classification string   `json:"classification" is:"required words=public|internal|confidential|restricted" doc:"The highest level."`
	MaxRound       int      `json:"maxRound,omitzero" is:"range=0.." doc:"The last round of the exchange."`
	Until          int64    `json:"until" is:"required range=1.." doc:"The end, in Unix milliseconds."`
}

// lines write bounds for a signature.
func (b *Bounds) lines() string {
	return "words " + strings.Join(b.Words, ",") + "\nclassification " + b.Classification +
		"\nround " + strconv.Itoa(b.MaxRound) + "\nuntil " + time.UnixMilli(b.Until).UTC().Format("2006-01-02T15:04:05.000Z") + "\n"
}

// Within reports whether nothing of the bounds goes beyond what is offered. Which words
// the rest of the exchange may speak of, a person picks: of all that can be approved
// beforehand, and not only of those that one message has.
func (b *Bounds) Within(o *Bounds) bool {
	level, err := ocip.ParseLevel(b.Classification)
	most, failed := ocip.ParseLevel(o.Classification)
	// No last round at all is beyond every last round.
	rounds := o.MaxRound == 0 || b.MaxRound > 0 && b.MaxRound <= o.MaxRound
	return err == nil && failed == nil && level <= most && rounds && b.Until <= o.Until
}

// Equal reports whether two bounds are the same.
func (b *Bounds) Equal(o *Bounds) bool {
	if b == nil || o == nil {
		return b == o
	}
	return b.lines() == o.lines()
}

// rules adds which words of the bounds nobody can approve beforehand.
func (b *Bounds) rules(path string, f *Fields) {
	for i, w := range b.Words {
		if !ocip.Grantable(w) {
			f.Add(path+"words["+strconv.Itoa(i)+"]", "%q cannot be approved beforehand", w)
		}
	}
}

// Grant is an approval given beforehand. Agent is the sender's instance id, Receiver an instance id
// or a session key. Times are Unix milliseconds.
type Grant struct {
	GrantID  string `json:"grantId"`
	Kind     string `json:"kind"`
	State    string `json:"state" doc:"in_force, revoked, expired, used_up, or over if the exchange has ended."`
	Agent    string `json:"agent"`
	Receiver string `json:"receiver"`
	// ExchangeID and ConversationID are the exchange, and ApprovalID the approval that
	// it was made with.
	ExchangeID     string `json:"exchangeId,omitzero"`
	ConversationID string `json:"conversationId,omitzero"`
	ApprovalID     string `json:"approvalId,omitzero"`
	Bounds
	// Uses counts the messages that were let go, of at most MaxUses unless that is zero.
	Uses    int   `json:"uses"`
	MaxUses int   `json:"maxUses,omitzero"`
	MadeAt  int64 `json:"madeAt"`
	// People are those who made it, with their signatures.
	People []ApprovalDecision `json:"people"`
}

// By names the people who made the grant.
func (g *Grant) By() string {
	names := make([]string, len(g.People))
	for i := range g.People {
		names[i] = g.People[i].By
	}
	return strings.Join(names, ", ")
}

// GrantListParams asks for a page of grants (operator, grant.list): those in force unless All is
// set, of one agent unless Agent is empty. Those that end last come first.
type GrantListParams struct {
	Agent string `json:"agent,omitzero" is:"max=256" doc:"The sender's id or instance id."`
	Kind  string `json:"kind,omitzero" is:"words=exchange|standing" doc:"The kind."`
	All   bool   `json:"all,omitzero" doc:"Also those that are not in force."`
	Limit *int   `json:"limit,omitzero" is:"range=1..1000" doc:"At most this many; 1,000 by default."`
	After string `json:"after,omitzero" is:"max=512" doc:"next of the page before."`
}

// Page returns the page's size: whoever knows of no pages gets the largest one.
func (p *GrantListParams) Page() int {
	if p.Limit == nil {
		return MaxPage
	}
	return *p.Limit
}

// GrantListResult is a page of grants.
type GrantListResult struct {
	Grants []Grant `json:"grants"`
	// Next continues the list, "" where nothing is left.
	Next string `json:"next,omitzero"`
	// Restored is the id of the newest state_restored record, absent if there is none. A new
	// pre-approval names it.
	Restored string `json:"restored,omitzero" doc:"The id of the newest state_restored record."`
}

// GrantAddParams makes a pre-approval (operator, grant.add). The id is the person's to
// choose, and is good once. Signature is an armored SSH signature over [SignedGrant],
// with a note over [SignedNote] of that.
type GrantAddParams struct {
	GrantID  string `json:"grantId" is:"required max=256" doc:"An id of the person's choice, good once."`
	Agent    string `json:"agent" is:"required max=256" doc:"The sender's instance id."`
	Receiver string `json:"receiver" is:"required max=512" doc:"An instance id or a session key."`
	Bounds
	MaxUses int `json:"maxUses" is:"range=1..10000" doc:"How many messages it lets pass."`
	// Restored is that of [GrantListResult]: a signature from before a restoration of the state
	// makes no grant after it.
	Restored  string `json:"restored,omitzero" is:"max=256" doc:"The restored of grant.list."`
	Note      string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
	Signature string `json:"signature" is:"required max=16384" doc:"An armored SSH signature over the pre-approval."`
}

// MaxGrantUses and MaxGrantTime bound a pre-approval.
const (
	MaxGrantUses = 10_000
	MaxGrantTime = 366 * 24 * time.Hour
)

// Rules reports faults between members.
func (p *GrantAddParams) Rules() (f Fields) {
	p.rules("", &f)
	for i, w := range p.Words {
		if !slices.Contains(ocip.Keywords(), w) {
			f.Add("words["+strconv.Itoa(i)+"]", "%q is no keyword; a pre-approval is for keywords alone", w)
		}
	}
	if p.MaxRound != 0 {
		f.Add("maxRound", "a pre-approval is bound to no exchange, and counts uses")
	}
	return f
}

// GrantAddResult is the grant as it is in force.
type GrantAddResult struct {
	Grant    Grant  `json:"grant"`
	AuditSeq uint64 `json:"auditSeq"`
}

// GrantRevokeParams takes a grant back (operator, grant.revoke).
type GrantRevokeParams struct {
	GrantID string `json:"grantId" is:"required max=256" doc:"The pre-approval."`
	Note    string `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
}

// GrantRevokeResult says whether the grant was in force until now.
type GrantRevokeResult struct {
	Changed  bool   `json:"changed"`
	AuditSeq uint64 `json:"auditSeq,omitzero"`
}

// SignedApproval is the signed text of an approval: the text of [SignedText] and, if the
// person approves the rest of the exchange too, its two agents, ids and
// bounds.
func SignedApproval(a *Approval, b *Bounds) string {
	text := SignedText(a.ApprovalID, DecideApprove, a.Digest)
	if b == nil {
		return text
	}
	return text + "exchange " + strconv.Quote(a.ExchangeID) + " conversation " + strconv.Quote(a.ConversationID) +
		"\nfrom " + strconv.Quote(a.Agent) + "\nto " + strconv.Quote(a.Counterparty) + "\n" + b.lines()
}

// SignedGrant is the signed text of a pre-approval.
func SignedGrant(p *GrantAddParams) string {
	restored := ""
	if p.Restored != "" {
		restored = "restored " + strconv.Quote(p.Restored) + "\n"
	}
	return "ocipd grant v1\n" + strconv.Quote(p.GrantID) + "\nfrom " + strconv.Quote(p.Agent) + "\nto " + strconv.Quote(p.Receiver) +
		"\nuses " + strconv.Itoa(p.MaxUses) + "\n" + p.lines() + restored
}
