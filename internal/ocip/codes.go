package ocip

// Codes lists every code that a verdict can have.
func Codes() []Code {
	return []Code{
		CrossEnterpriseBlocked, ExchangeExpired, ExchangeClosed, ClassificationViolation, PolicyDenied, PolicyUnreachable, PolicyRequiresApproval,
		RoundLimit, ChainLimit, UnsupportedType, QueriesRefused, AnnotationTooLarge, MalformedEnvelope, SourceMismatch, EnvelopeReplayed,
		CommitmentRequiresHuman, ReplyNotExpected, InterceptorBlocked, InterceptorTimeout, TooManyHeld, AuditWriteFailed,
		RecipientMismatch, LooksLikeKnown, BudgetExceeded, FirstContactHeld, EnvelopeForged, Paused, MediaRefused, TaskRefused, ChangedSince,
	}
}
