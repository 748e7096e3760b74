// Package client is the Go SDK of ocipd: an app asks the daemon before its agent's messages leave.
//
// Three kinds of programs connect to a running daemon, each by a function of its own:
//
//   - [Register] makes the process an app: it owns channels, speaks for an agent, intercepts
//     messages, or delivers by itself what the daemon allows.
//   - [Attach] makes it an agent without an app, by the token of a grant
//     (`ocipd task grant --agent ID`).
//   - [Operate] is for programs of the operator, such as one that manages pre-approvals.
//
// A value of each reconnects by itself, with growing pauses, and continues with its token: channels,
// subscriptions and waiting messages stay. A call waits for the connection, at most for
// [Options.Timeout]. A call whose answer is lost is repeated if a repetition has no second effect;
// any other one fails with the code [ConnectionClosed], and its effect is unknown.
//
// A refusal is an [*Error] with a code of the protocol, and, if the rules of messages refused, with
// the verdict.
//
// The method Stream of each opens a [Stream], an answer in chunks.
//
// Memory is bounded: a line of the daemon has at most [Options.MaxLine] bytes. If 4,096 events and chunks
// wait for the program, or 65,536 while a call waits for its answer, nothing is read until it takes one.
//
// docs/guides/apps.md is the guide, and docs/reference/protocol describes the protocol.
package client
