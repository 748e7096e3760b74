// Package content finds text in a message that determines its level: credentials, account and
// identity numbers, markings, and the operator's own patterns.
//
// Use: build one [Detector] with [New] when the configuration is read, then call [Detector.Detect]
// for each message, from any goroutine. [Highest] folds the findings into one level.
//
// A finding can only raise: nothing in a text lowers the level that its sender declared, and the
// absence of findings proves nothing. A [Finding] names a rule and a span and never holds the
// matched text, so that it may be put into denials and records.
//
// The caller's duty: bound the length of the text, take the higher of [Highest] and the declared
// level, and keep the text itself out of all records of a finding.
//
// The time is linear in the text. One index finds the places to check. Each check is bounded or
// never repeated. Operator patterns have RE2 semantics, and the number of their matches is limited.
package content
