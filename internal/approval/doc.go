// Package approval keeps the requests that wait for a person, of any kind: who may decide, how many
// must, the exact text that they decide about, the deadline, and the people to notify. The matter
// of a request is its [Subject]; the package does not look inside it.
//
// A request is shown with a digest of the effect of its approval. A decision carries that digest
// back, and is taken once: under the subject's lock, on a row that is still pending, in the one
// commit of the decision and all its consequences. Expiry ends a request and never approves one.
//
// The caller commits the changes that it enters, and takes the subject's lock before it asks
// whether the subject waits.
//
// # The folder
//
// The folder internal/approval holds what people decide: requests, grants, releases, pauses. Its
// packages may import each other and those of base, ocip, audit, api, store, config and ipc.
//
//   - describe: what a request says to the person who decides, in words that the terminal and the page share
//   - grants: pre-approvals: of the rest of an exchange, and from one agent to one receiver; their uses, end
//     and revocation
//   - pause: pauses of agents, channels and all sending
//   - releases: approvals for runtimes that deliver by themselves: redeemed once and confirmed; if
//     they are not confirmed, a person is asked
package approval
