// Package approval keeps what waits for a person, whatever it is about: who may
// decide, how many must, what exactly they decide about, for how long, and who is
// told. What is decided about is a [Subject]; the package knows none by its insides.
//
// A request is shown with a digest of what would follow from its approval. A
// decision carries that digest back, and is taken once: under the subject's lock,
// on a row that is still pending, in the one commit of the decision and all that
// follows from it. Time ends a request and never approves one.
//
// The caller commits what it enters into changes, and takes the subject's lock
// before it asks whether the subject waits.
//
// # The folder
//
// The folder internal/approval holds what people decide: requests, grants, releases,
// pauses. Its packages may import each other and those of base, ocip, audit, api, store,
// config and ipc.
//
//   - grants: what people have approved beforehand: the rest of an exchange, standing
//     grants; their uses, end and revocation
//   - pause: pauses of agents, channels and all sending
//   - releases: what was approved for runtimes that deliver by themselves: redeemed once,
//     confirmed, or a person is asked
package approval
