// Package content finds what a message's own words say about its level:
// credentials, account and identity numbers, markings, and what the operator
// described in patterns of their own.
//
// Use: build one [Detector] with [New] when the configuration is read, then
// call [Detector.Detect] for each message, from any goroutine. [Highest] folds
// the findings into one level.
//
// A finding can only raise: nothing in a text lowers the level its sender
// declared, and the absence of findings proves nothing. A [Finding] names a
// rule and a span and never holds the matched text, so that it may be put into
// denials and records.
//
// The caller's duty: bound the length of the text, take the higher of
// [Highest] and the declared level, and keep the text itself out of whatever
// is written about a finding.
//
// The time is linear in the text. One index finds the places worth a look,
// every look from such a place is bounded or never repeated, and operator
// patterns have RE2 semantics and a limit on the matches taken from each.
package content
