package ocip

// Result is the answer to "may this go on", in the words of audit records.
type Result string

// The three results.
const (
	Allow           Result = "allow"
	Deny            Result = "deny"
	RequireApproval Result = "require_approval"
)

// Code is the reason to stop a message. It is part of the wire protocol: callers read it in
// details.ocip.code.
type Code string

// The codes of the verdicts. An allowed message has none.
const (
	CrossEnterpriseBlocked  Code = "CROSS_ENTERPRISE_BLOCKED"
	ExchangeExpired         Code = "EXCHANGE_EXPIRED"
	ExchangeClosed          Code = "EXCHANGE_CLOSED"
	ClassificationViolation Code = "CLASSIFICATION_VIOLATION"
	PolicyDenied            Code = "POLICY_DENIED"
	PolicyUnreachable       Code = "POLICY_ENGINE_UNREACHABLE"
	PolicyRequiresApproval  Code = "POLICY_REQUIRES_APPROVAL"
	RoundLimit              Code = "EXCHANGE_ROUND_LIMIT"
	ChainLimit              Code = "EXCHANGE_CHAIN_LIMIT"
	UnsupportedType         Code = "EXCHANGE_TYPE_UNSUPPORTED"
	QueriesRefused          Code = "QUERIES_NOT_RECEIVED"
	AnnotationTooLarge      Code = "ANNOTATION_TOO_LARGE"
	MalformedEnvelope       Code = "MALFORMED_ENVELOPE"
	SourceMismatch          Code = "ENVELOPE_SOURCE_MISMATCH"
	EnvelopeReplayed        Code = "ENVELOPE_REPLAYED"
	CommitmentRequiresHuman Code = "COMMITMENT_REQUIRES_HUMAN"
	ReplyNotExpected        Code = "REPLY_NOT_EXPECTED"
	InterceptorBlocked      Code = "INTERCEPTOR_BLOCKED"
	InterceptorTimeout      Code = "INTERCEPTOR_TIMEOUT"
	TooManyHeld             Code = "TOO_MANY_HELD"
	AuditWriteFailed        Code = "AUDIT_WRITE_FAILED"
	RecipientMismatch       Code = "RECIPIENT_MISMATCH"
	LooksLikeKnown          Code = "LOOKS_LIKE_KNOWN"
	BudgetExceeded          Code = "BUDGET_EXCEEDED"
	FirstContactHeld        Code = "FIRST_CONTACT"
	EnvelopeForged          Code = "ENVELOPE_FORGED"
	Paused                  Code = "PAUSED"
	MediaRefused            Code = "MEDIA_REFUSED"
	TaskRefused             Code = "TASK_REFUSED"
	ChangedSince            Code = "CHANGED_SINCE"
)

// Verdict is the whole outcome of weighing one message. The caller must make Exchange and a record
// of the verdict durable in one commit before any effect of the verdict.
type Verdict struct {
	Result Result
	Code   Code
	Reason string
	// Policy and PolicyRevision name the rule that decided: a Rego policy and its revision, or a
	// built-in rule such as "tenant-wall".
	Policy         string
	PolicyRevision string
	Level          Level
	// Before is the exchange as it was when the message was weighed.
	Before Exchange
	// Exchange is the exchange after this message. It has no ID if the counterparty is not an
	// agent: such messages count no rounds.
	Exchange Exchange
	// Envelope is the message's envelope, and Annotation its JSON form. They are set only when
	// allowed.
	Envelope   Envelope
	Annotation []byte
	// Chain is the causal chain including this message. It has no ID if the counterparty is no
	// agent.
	Chain Chain
	// Detections are the findings in the text.
	Detections []Detection
	// Shared and Withheld divide the data items of an allowed message.
	Shared   []Shared
	Withheld []Withheld
	// Approvers is the number of approvals that the policy requires, zero if it sets none.
	Approvers int
	// Grounds are all reasons for which rules hold the message for a person, the likeliest first.
	// Code, Reason and Policy are those of the first rule.
	Grounds []Ground
	// Grant is the id of the grant that covered commitments in the text, empty if none was needed.
	Grant string
	// Offer is the grant for the exchange that a person who approves the message can give, or nil.
	// NoOffer then says why.
	Offer   *Grant
	NoOffer string
	// Owed is the agent's debt to the counterparty once this verdict is durable.
	Owed Owed
	// ForPerson explains why a person of the agent must hear of a verdict that needs no decision: a
	// delivered message that only a person may answer, or an exchange that ended with an error. It
	// is empty if nobody needs to hear of it.
	ForPerson string
	// Details holds the code's payload in the protocol.
	Details map[string]any

	// raisedBy is the finding that raised the level, if one did.
	raisedBy *Detection
}

// Allowed reports whether the message may go on.
func (v *Verdict) Allowed() bool { return v.Result == Allow }

func (v *Verdict) deny(code Code, rule, reason string) {
	v.Result, v.Code, v.Policy, v.Reason, v.Grounds = Deny, code, rule, reason, nil
}

// escalate sends the decision to a person.
func (v *Verdict) escalate(code Code, rule, reason string) {
	v.hold(Ground{Code: code, Rule: rule, Reason: reason})
}

// Exhausted reports whether a person is asked about a message that has a causal chain above
// the limit, or an exchange without a round left, even if the message is held for another reason. No
// message passes between the two agents before the person has decided.
func (v *Verdict) Exhausted() bool {
	return v.Result == RequireApproval && v.Exchange.Outcome == Escalated &&
		(v.HeldFor(RoundLimit) || v.HeldFor(ChainLimit) || v.Exchange.Round >= v.Exchange.MaxRounds)
}

// DenyTooManyPending turns a message that would wait for a person into a denial, because the agent
// has too many pending messages. The exchange keeps the state from the rules if only a person can
// open it again.
func (v *Verdict) DenyTooManyPending(reason string) {
	if !v.Exhausted() {
		v.Exchange = v.Before
	}
	v.deny(TooManyHeld, ruleHolds, reason)
}

// The names of the built-in rules in records.
const (
	ruleTenantWall     = "tenant-wall"
	ruleExchange       = "exchange-state"
	ruleClassification = "classification"
	ruleRounds         = "round-limit"
	ruleChain          = "causal-chain"
	ruleReceiver       = "receiver"
	ruleAnnotation     = "annotation-size"
	ruleCommitment     = "commitment"
	ruleHolds          = "held-messages"
	ruleContact        = "contact"
	ruleBudget         = "budget"
)
