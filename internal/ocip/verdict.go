package ocip

// Result is the answer to "may this go on", as audit records write it.
type Result string

// The three results.
const (
	Allow           Result = "allow"
	Deny            Result = "deny"
	RequireApproval Result = "require_approval"
)

// Code names why a message was not let through. It is part of the wire
// protocol: callers read it in details.ocip.code.
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

// Verdict is the whole outcome of weighing one message. The caller must make
// Exchange and a record of the verdict durable in one commit before anything
// the verdict allows may happen.
type Verdict struct {
	Result Result
	Code   Code
	Reason string
	// Policy and PolicyRevision name the rule that decided: a Rego policy and
	// its revision, or a built-in rule such as "tenant-wall".
	Policy         string
	PolicyRevision string
	Level          Level
	// Before is the exchange as it was when the message was weighed.
	Before Exchange
	// Exchange is the exchange after this message. It has no ID where the
	// counterparty is not an agent: such messages count no rounds.
	Exchange Exchange
	// Envelope is what the message carries, and Annotation its JSON form. They
	// are set only when allowed.
	Envelope   Envelope
	Annotation []byte
	// Chain is the causal chain with this message in it. It has no ID where the
	// counterparty is no agent.
	Chain Chain
	// Detections are what was found in the text.
	Detections []Detection
	// Shared and Withheld part the data items of an allowed message.
	Shared   []Shared
	Withheld []Withheld
	// Approvers is how many people the policy wants to approve, zero where it
	// does not say.
	Approvers int
	// Likelihood is how likely the message binds somebody, where its words alone hold
	// it, and LikelyBecause is why. What a rule holds is no guess, and has neither.
	Likelihood    Likelihood
	LikelyBecause string
	// Grant is the id of the grant that let commitments in the text past, empty where
	// none had to.
	Grant string
	// Offer is what a person who approves the message can approve of its exchange, nil
	// where that is nothing; NoOffer says why.
	Offer   *Grant
	NoOffer string
	// Owed is what the agent owes the counterparty once this verdict is durable.
	Owed Owed
	// ForPerson says why a person of the agent must hear of a verdict that asks
	// nobody for a decision: a message that was delivered and only a person may
	// answer, or an exchange that ended with an error. Empty where nobody must.
	ForPerson string
	// Details adds what the code's payload in the protocol calls for.
	Details map[string]any

	// raisedBy is the finding that raised the level, if one did.
	raisedBy *Detection
}

// Allowed reports whether the message may go on.
func (v *Verdict) Allowed() bool { return v.Result == Allow }

func (v *Verdict) deny(code Code, rule, reason string) {
	v.Result, v.Code, v.Policy, v.Reason = Deny, code, rule, reason
}

// escalate sends the decision to a person.
func (v *Verdict) escalate(code Code, rule, reason string) {
	v.Result, v.Code, v.Policy, v.Reason = RequireApproval, code, rule, reason
}

// Exhausted reports whether a person is asked about a message whose exchange has
// no round left, whatever else the message is held for, or whose causal chain is
// too long: then nothing goes between the two agents before the person has
// decided.
func (v *Verdict) Exhausted() bool {
	return v.Result == RequireApproval && v.Exchange.Outcome == Escalated &&
		(v.Code == RoundLimit || v.Code == ChainLimit || v.Exchange.Round >= v.Exchange.MaxRounds)
}

// DenyTooManyPending turns a message that a person would have to decide about into a denial:
// as many of its agent's wait already as may. What the rules said of the
// exchange stands where nothing but a person can open it again.
func (v *Verdict) DenyTooManyPending(reason string) {
	if !v.Exhausted() {
		v.Exchange = v.Before
	}
	v.deny(TooManyHeld, ruleHolds, reason)
}

// The built-in rules, as records name them.
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
