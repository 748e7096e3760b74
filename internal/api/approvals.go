package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/opinion"
)

// The states of an approval. All but pending are final.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalDenied    = "denied"
	ApprovalTakenOver = "taken_over"
	ApprovalResolved  = "resolved"
	ApprovalExpired   = "expired"
)

// The states of subjects with a repeated question, or with an approval that can be taken back
// before its use.
const (
	// ApprovalRequestChanges means that a person wants something else: the request is not carried
	// out, and can be made again in changed form.
	ApprovalRequestChanges = "request_changes"
	// ApprovalRevoked means that the request, or an approval that was not used, counts no longer:
	// its subject is gone.
	ApprovalRevoked = "revoked"
)

// ApprovalStates lists every state, pending first.
func ApprovalStates() []string {
	return []string{ApprovalPending, ApprovalApproved, ApprovalDenied, ApprovalTakenOver, ApprovalResolved, ApprovalExpired, ApprovalRequestChanges, ApprovalRevoked}
}

// The decisions a person can take about a held message.
const (
	DecideApprove  = "approve"
	DecideDeny     = "deny"
	DecideTakeover = "takeover"
	DecideResolve  = "resolve"
	// DecideChanges is about an effect: the request has to be changed first. DecideRevoke is the
	// daemon's word about a request that nobody needs any more.
	DecideChanges = "request_changes"
	DecideRevoke  = "revoke"
)

// Decisions lists what a person can decide.
func Decisions() []string {
	return []string{DecideApprove, DecideDeny, DecideTakeover, DecideResolve, DecideChanges}
}

// DecisionsOf lists what a person can decide about a request of a kind.
func DecisionsOf(kind string) []string {
	switch kind {
	case ApprovalOfEffect:
		return []string{DecideApprove, DecideDeny, DecideChanges}
	case ApprovalOfPermission:
		return []string{DecideApprove, DecideDeny}
	case ApprovalOfEscalation:
		return []string{DecideDeny, DecideResolve}
	case ApprovalOfDelivery:
		return []string{DecideApprove, DecideDeny, DecideResolve}
	default:
		return []string{DecideApprove, DecideDeny, DecideTakeover, DecideResolve}
	}
}

// The kinds of approvals: a message that waits, or something that a person must know and see to,
// and that nothing waits for.
const (
	ApprovalOfMessage    = "message"
	ApprovalOfEscalation = "escalation"
	// ApprovalOfEffect is about an effect of a task, and ApprovalOfPermission about a tool call.
	ApprovalOfEffect     = "effect"
	ApprovalOfPermission = "permission"
	// ApprovalOfDelivery is about a message that was approved and taken by a runtime that
	// delivers by itself, of which nobody knows whether it was sent.
	ApprovalOfDelivery = "delivery"
)

// ApprovalSummary is one line of the list of held messages. Times are Unix milliseconds; agent and
// counterparty are instance ids. The counterparty's is empty if it is no agent.
type ApprovalSummary struct {
	ApprovalID string `json:"approvalId"`
	Kind       string `json:"kind" doc:"message, escalation, effect, permission or delivery."`
	// TaskID is the task that an effect or a permission is of, or a message about.
	TaskID string `json:"taskId,omitzero"`
	State  string `json:"state"`
	// Code and Reason are why the message was held.
	Code               string    `json:"code"`
	Reason             string    `json:"reason"`
	AgentID            string    `json:"agentId"`
	Agent              string    `json:"agent"`
	AppID              string    `json:"appId"`
	UserID             string    `json:"userId"`
	SessionKey         string    `json:"sessionKey"`
	Counterparty       string    `json:"counterparty"`
	CounterpartyUserID string    `json:"counterpartyUserId"`
	CounterpartyKind   ocip.Kind `json:"counterpartyKind,omitzero"`
	// CounterpartyTenantID is the tenant that the configuration gives the counterparty.
	CounterpartyTenantID string `json:"counterpartyTenantId,omitzero"`
	// Target is the message's address at its channel, or the title of the task of an effect or a permission.
	Target         string            `json:"target,omitzero"`
	ExchangeID     string            `json:"exchangeId"`
	ConversationID string            `json:"conversationId"`
	Type           ocip.ExchangeType `json:"type"`
	Round          int               `json:"round"`
	MaxRounds      int               `json:"maxRounds"`
	Classification string            `json:"classification"`
	// Summary is the sentence with the words that hold the message, or the message's first line. It
	// is cut and safe to show, and empty once the text is forgotten.
	Summary    string `json:"summary"`
	DispatchID string `json:"dispatchId"`
	AskedAt    int64  `json:"askedAt"`
	ExpiresAt  int64  `json:"expiresAt"`
	DecidedAt  int64  `json:"decidedAt,omitzero"`
	// Reasons are all grounds for which the message was held, the likeliest first; Code and Reason
	// are those of the first rule. It is empty for other requests.
	Reasons []ocip.Ground `json:"reasons,omitempty" doc:"Every rule that holds the message: first a commitment, then the other rules in their order, last a commitment with the likelihood low. code and reason are those of the first rule. likelihood (high, medium or low) and chance, the estimate in percent, order requests; they are absent if no words hold the message, or if it is a commitment for certain."`
	opinion.Estimate
	// Approvable is false if the message can only be denied, resolved or taken over; Blocked says
	// why.
	Approvable bool   `json:"approvable" doc:"false if the message can only be denied, resolved or taken over; blocked has the reason."`
	Blocked    string `json:"blocked,omitzero"`
	// Needed is how many people must approve, Given how many have.
	Needed int `json:"needed"`
	Given  int `json:"given"`
}

// Judgeable reports whether a model may be asked about a request: a message that waits for one person,
// for guesses about its words alone.
func (a *ApprovalSummary) Judgeable() bool {
	return a.Kind == ApprovalOfMessage && a.State == ApprovalPending && a.Approvable && a.Needed <= 1 && a.Given == 0 && a.Opinion == nil && opinion.Askable(a.Reasons)
}

// Grounds are all grounds for which a request waits, the likeliest first.
func (a *ApprovalSummary) Grounds() []ocip.Ground {
	if len(a.Reasons) > 0 {
		return a.Reasons
	}
	return []ocip.Ground{{Code: ocip.Code(a.Code), Reason: a.Reason, Guess: a.Guess}}
}

// To names who a message is for: the agent, else the person, else the session.
func (a *ApprovalSummary) To() string {
	return cmp.Or(a.Counterparty, a.CounterpartyUserID, a.SessionKey)
}

// Approval is everything a person needs to decide about a held message.
type Approval struct {
	ApprovalSummary
	// Address is the address for the channel's app, and Group is set if many people read it.
	Address audit.Address `json:"address,omitzero"`
	Group   bool          `json:"group,omitzero" doc:"Several people read the address."`
	// Digest names exactly what would be sent, under which policy. A decision
	// to approve or take over carries it back, and a signature is over it.
	Digest string `json:"digest" doc:"Covers sending, the policy revision and the receiver (kind, instance, user, tenant, session, target, channel, account, group)."`
	// Salt is the secret in the digests that people sign, dropped with Content.
	Salt string `json:"salt,omitzero"`
	// ToSign maps each decision that can be signed to the text to sign, in the
	// namespace of [ApprovalNamespace].
	ToSign map[string]string `json:"toSign" doc:"The text to sign for each decision."`
	// SignatureRequired is set if the daemon demands one.
	SignatureRequired bool   `json:"signatureRequired"`
	PolicyApplied     string `json:"policyApplied"`
	PolicyRevision    string `json:"policyRevision"`
	// Content is the text that the agent asked to send. Sending is the message that would be sent:
	// content and metadata, with envelope and disclosure. Both are dropped when it
	// is decided, unless approvals.keep_content says otherwise: Forgotten is set
	// then. ContentBytes is the length of Content.
	Content      string         `json:"content"`
	ContentBytes int            `json:"contentBytes"`
	Forgotten    bool           `json:"forgotten,omitzero"`
	Sending      jsontext.Value `json:"sending,omitzero" doc:"The message exactly as it would be sent: content, and metadata with the envelope."`
	// RequiresHuman is set if what the message promises, or answers, takes one.
	RequiresHuman bool `json:"requiresHuman,omitzero"`
	// Media is the content besides the text.
	Media []MediaItem `json:"media,omitempty"`
	// Extracts are the parts that people are shown of texts besides Content: of each file and
	// inline part the beginning, and of these and other strings the surroundings of the findings.
	// They are dropped with Content.
	Extracts         []Extract         `json:"extracts,omitempty" doc:"Parts of other texts: of each file and inline part the beginning (64 KiB of all together), and the surroundings of each finding. at is the beginning in the member's text, of that text's length. For a file, member is \"file \" and the member of its item in media."`
	DetectedKeywords []string          `json:"detectedKeywords"`
	Detections       []audit.Detection `json:"detections" doc:"The findings, by member (none for content) and bytes."`
	DataShared       []ocip.Shared     `json:"dataShared"`
	DataWithheld     []ocip.Withheld   `json:"dataWithheld"`
	Transcript       []ocip.Turn       `json:"transcript"`
	// Escalation is the payload of a round limit, null otherwise.
	Escalation *ocip.Escalation `json:"escalation"`
	Chain      *ocip.Chain      `json:"chain,omitzero"`
	// EscalatedExchange is the exchange whose round limit holds this one.
	EscalatedExchange string `json:"escalatedExchange,omitzero"`
	// Exchange is the bounds within which the whole exchange can be approved, null if that is
	// nothing; NoExchange says why.
	Exchange   *Bounds `json:"exchange,omitzero" doc:"The widest bounds of a pre-approval for the exchange; noExchange has the reason if there is none."`
	NoExchange string  `json:"noExchange,omitzero"`
	// Approvals are the approvals given so far, if several are needed.
	Approvals []ApprovalDecision `json:"approvals"`
	// Changed lists what is no longer as it was when a person last looked.
	Changed []ApprovalChange `json:"changed" doc:"The changes since a person last looked: policyRevision, verdict, sending, media, interceptor, and members of the receiver such as address.account."`
	// Decision is set once the state is final.
	Decision *ApprovalDecision `json:"decision"`
	ApprovalNow
}

// ApprovalNow is what approval.get adds to a stored request.
type ApprovalNow struct {
	// CounterpartyNow is the present kind of counterparty, if it differs from the shown one.
	CounterpartyNow ocip.Kind `json:"counterpartyNow,omitzero" doc:"For people: the kind by the present configuration, if that differs."`
	// Delivery is how far a message is that was approved for a runtime that delivers by
	// itself: ready to be redeemed, claimed, sent, unknown, abandoned or expired. Of an approved
	// effect it is ready, sent once a start has used the approval, or expired.
	Delivery string `json:"delivery,omitzero" doc:"Of an approved message that a runtime delivers: ready, claimed, sent, unknown, abandoned or expired. Of an approved effect: ready, sent (a start has used it) or expired."`
	// Context is what an effect is for, as the digest covers it: the task, the attempt, the
	// reviews with their findings, the other effects, and whether it was planned after the reviews.
	Context jsontext.Value `json:"context,omitzero" doc:"Of an effect, for people: title, goal, spec_version, attempt, artifact_revision, artifacts, gates, reviews with their findings, the task's other effects, planned {by, at, late}, and left_out, which counts what was cut. The digest covers it."`
	// RequestDigest names what the runner starts, without the request's id and the policy.
	RequestDigest string `json:"requestDigest,omitzero" doc:"Of an effect, for people: the request_digest of task.run_effect. digest covers it."`
}

// MediaItem is a local file or an address elsewhere that a message sends along. A file has its
// path, and its hash and size in bytes at the time of the look.
type MediaItem struct {
	Member string `json:"member"`
	URL    string `json:"url,omitzero"`
	Path   string `json:"path,omitzero"`
	SHA256 string `json:"sha256,omitzero"`
	Bytes  int64  `json:"bytes,omitzero"`
}

// FileMember begins the member of a detection or an extract that is in a file or an inline
// part. The member of its [MediaItem] follows.
const FileMember = "file "

// Extract is a part of a text that people are shown. At is its beginning in the text of its member,
// and Of is the length of that text, in bytes.
type Extract struct {
	Member string `json:"member"`
	At     int    `json:"at"`
	Of     int    `json:"of"`
	Text   string `json:"text"`
}

// Asking says for whom a program of the operator called. It is zero for a program that called for
// itself.
type Asking struct {
	// Via is the kind of the program: console.
	Via string `json:"via,omitzero" doc:"console if a page called for a person."`
	// Client is the process that asked the program.
	Client *ClientProcess `json:"client,omitempty" doc:"The process that asked, such as the browser."`
	// Proof is none for a decision that nothing but the process proves, and judge for a model's.
	Proof string `json:"proof,omitzero" doc:"none if the decision was a click (console.decide: session), judge if the operator's model took it (ocip.judge.may: release)."`
}

// ViaConsole and ProofNone are the words of [Asking].
const (
	ViaConsole = "console"
	ProofNone  = "none"
)

// ClientProcess is a process at the time of a call. Exe is empty if the program cannot be seen.
type ClientProcess struct {
	PID int32  `json:"pid"`
	UID uint32 `json:"uid"`
	Exe string `json:"exe,omitzero"`
}

// AddTo adds the members to the details of a record.
func (a *Asking) AddTo(details map[string]any) {
	if a.Via != "" {
		details["via"], details["client"] = a.Via, a.Client
	}
	if a.Proof != "" {
		details["proof"] = a.Proof
	}
}

// ApprovalDecision is one person's decision. By is the signature's principal or, without one, the
// user id as "uid:1000"; it is "expiry" where time decided.
type ApprovalDecision struct {
	Decision    string `json:"decision"`
	By          string `json:"by"`
	UID         uint32 `json:"uid"`
	Note        string `json:"note,omitzero"`
	At          int64  `json:"at"`
	Fingerprint string `json:"fingerprint,omitzero"`
	// Signature is the armored signature as it was given.
	Signature string `json:"signature,omitzero"`
	// Exchange is the bounds of the exchange that the person has approved too.
	Exchange *Bounds `json:"exchange,omitzero"`
	Asking
}

// ApprovalChange is one thing that changed under a held message.
type ApprovalChange struct {
	Field string `json:"field"`
	Was   string `json:"was"`
	Now   string `json:"now"`
}

// The codes for a decision that does not count.
const (
	AlreadyDecided  ocip.Code = "APPROVAL_DECIDED"
	ApprovalStale   ocip.Code = "APPROVAL_STALE"
	ApprovalBlocked ocip.Code = "APPROVAL_BLOCKED"
	ApprovedTwice   ocip.Code = "APPROVAL_TWICE"
	// AlreadyRedeemed is the answer about a message that another caller has redeemed.
	AlreadyRedeemed ocip.Code = "APPROVAL_REDEEMED"
	// OutcomeNotKnown is the reason to ask a person about an approved message again.
	OutcomeNotKnown ocip.Code = "OUTCOME_UNKNOWN"
)

// Obstacle is the cause that a decision did not count, details.ocip of a CONFLICT.
type Obstacle struct {
	Code   ocip.Code `json:"code"`
	Reason string    `json:"reason"`
	// State, By and At are how it was decided before.
	State string `json:"state,omitzero"`
	By    string `json:"by,omitzero"`
	At    int64  `json:"at,omitzero"`
	// Changed names the changed members, and Digest is the present digest.
	Changed []ApprovalChange `json:"changed,omitzero"`
	Digest  string           `json:"digest,omitzero"`
	// Blocked is why it cannot be approved.
	Blocked string `json:"blocked,omitzero"`
}

// Conflict is the error that says so.
func (o Obstacle) Conflict(code ocip.Code, message string) *Error {
	said := o
	said.Code, said.Reason = code, message
	return &Error{Code: Conflict, Message: message, Details: withOCIP[Obstacle]{said}}
}

// ApprovalNamespace is the namespace of signatures over decisions
// (ssh-keygen -Y sign -n).
const ApprovalNamespace = "approval@ocipd"

// SignedText is the text that a person signs: the decision and the digest it is about.
func SignedText(approvalID, decision, digest string) string {
	return "ocipd approval v1\n" + approvalID + "\n" + decision + "\n" + digest + "\n"
}

// SignedContent is the signed text of a takeover in a person's own words: the text that
// [SignedText] makes, and a digest of the request's salt and the words.
func SignedContent(text, salt, content string) string {
	sum := sha256.Sum256([]byte(salt + content))
	return text + "content sha256:" + hex.EncodeToString(sum[:]) + "\n"
}

// SignedNote is the signed text of a decision with a note: the text for the decision alone, and a
// digest of the note.
func SignedNote(text, note string) string {
	if note == "" {
		return text
	}
	sum := sha256.Sum256([]byte(note))
	return text + "note sha256:" + hex.EncodeToString(sum[:]) + "\n"
}

// SignedSettlement is the signed text of a resolved exchange: which one, the agent that was named,
// and the state that was seen ([Exchange]).
func SignedSettlement(exchangeID, agent, state string) string {
	return "ocipd settlement v1\n" + strconv.Quote(exchangeID) + "\nof " + strconv.Quote(agent) + "\nstate " + strconv.Quote(state) + "\n"
}

// ApprovalParams names an approval.
type ApprovalParams struct {
	ApprovalID string `json:"approvalId" is:"required max=256" doc:"The approval request."`
}

// MaxApprovals bounds a page of held messages.
const MaxApprovals = 10_000

// ApprovalListParams asks for held messages, oldest first. State is one of
// [ApprovalStates], pending where it is empty, or "all".
type ApprovalListParams struct {
	State string `json:"state,omitzero" is:"words=pending|approved|denied|taken_over|resolved|expired|request_changes|revoked|all" doc:"The state; pending by default."`
	Agent string `json:"agent,omitzero" doc:"An agent's id or instance id."`
	Limit *int   `json:"limit,omitzero" is:"range=1..10000" doc:"At most this many; 1,000 by default."`
	After string `json:"after,omitzero" doc:"The last request of the page before."`
}

// Page returns the page's size, 1,000 where none is asked for: more than one
// agent alone can fill.
func (p *ApprovalListParams) Page() int {
	if p.Limit == nil {
		return MaxPage
	}
	return *p.Limit
}

// ApprovalListResult is a page of [ApprovalSummary] and how many match in all.
type ApprovalListResult struct {
	Approvals []jsontext.Value `json:"approvals"`
	Total     int              `json:"total"`
	Altered   []string         `json:"altered,omitzero" doc:"Rows that something else than the daemon changed: the list leaves out what needs them."`
}

// Append writes the result as JSON. A page can have megabytes, all of it JSON
// already.
func (r ApprovalListResult) Append(b []byte) []byte {
	b = append(b, `{"approvals":[`...)
	for i, approval := range r.Approvals {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, approval...)
	}
	b = strconv.AppendInt(append(b, `],"total":`...), int64(r.Total), 10)
	for i, row := range r.Altered {
		if i == 0 {
			b = append(b, `,"altered":[`...)
		} else {
			b = append(b, ',')
		}
		b = jsonline.Quote(b, row)
	}
	if len(r.Altered) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// ApprovalResolveParams decides about a held message (operator socket only). Digest is required to
// approve and to take over: the person saw it.
type ApprovalResolveParams struct {
	ApprovalID string  `json:"approvalId" is:"required max=256" doc:"The approval request."`
	Decision   string  `json:"decision" is:"required words=approve|deny|takeover|resolve|request_changes" doc:"The decision."`
	Digest     string  `json:"digest,omitzero" is:"max=256" doc:"The digest of what the person saw. Required to approve and to take over."`
	Note       string  `json:"note,omitzero" is:"max=1024" doc:"A note for the record."`
	Content    string  `json:"content,omitzero" doc:"The text that a person who takes over sends instead; the message as it is if it is empty."`
	Exchange   *Bounds `json:"exchange,omitzero" doc:"With approve: what is approved of the rest of the exchange, within the offered bounds."`
	Signature  string  `json:"signature,omitzero" is:"max=16384" doc:"An armored SSH signature over the decision."`
}

// Limits of a decision, in bytes.
const (
	MaxNote      = 1024
	MaxSignature = 16 << 10
)

// Rules reports faults between members.
func (p *ApprovalResolveParams) Rules() (f Fields) {
	if p.Digest == "" && (p.Decision == DecideApprove || p.Decision == DecideTakeover) {
		f.Add("digest", "required: the digest of what you saw, from approval.get")
	}
	if p.Content != "" && p.Decision != DecideTakeover {
		f.Add("content", "only a person who takes over may write")
	}
	if p.Exchange != nil {
		if p.Decision != DecideApprove {
			f.Add("exchange", "an exchange is approved with one of its messages")
		}
		p.Exchange.rules("exchange.", &f)
	}
	return f
}

// ApprovalOutcome is the payload of the event approval:resolved, to the app that asked. Data is the
// message that a runtime delivering by itself may now send, once.
type ApprovalOutcome struct {
	ApprovalID string         `json:"approvalId"`
	DispatchID string         `json:"dispatchId"`
	Resolution string         `json:"resolution"`
	Note       string         `json:"note,omitzero"`
	Data       jsontext.Value `json:"data,omitzero"`
	Timestamp  int64          `json:"timestamp"`
}

// ApprovalEvent is the event's name.
const ApprovalEvent = "approval:resolved"

// ApprovalNews is one chunk of approval.watch: a held message that is new or has
// changed. The chunks of those that wait already come first; the last of them
// is followed by one with Caught set and no approval.
type ApprovalNews struct {
	Approval *ApprovalSummary `json:"approval,omitzero"`
	Caught   bool             `json:"caught,omitzero"`
	// Altered are, in the chunk with Caught, rows of pending messages that were left out.
	Altered []string `json:"altered,omitzero" doc:"Rows that something else than the daemon changed: the list leaves out what needs them."`
}

// ApprovalResolveResult says how a held message stands after a decision. State
// is pending where more people have to approve.
type ApprovalResolveResult struct {
	State      string `json:"state"`
	DispatchID string `json:"dispatchId"`
	Needed     int    `json:"needed"`
	Given      int    `json:"given"`
	AuditSeq   uint64 `json:"auditSeq"`
	// GrantID is the grant that was made of the approval of the exchange.
	GrantID string `json:"grantId,omitzero"`
}
