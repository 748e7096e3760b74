// Package kernel carries one message from its caller to its effect: who sends what to
// whom, interception, the decision for both sides, and the commit that lets it go.
//
// The kernel knows no sockets. It is given a store, a policy, a clock and a
// source of ids, and is handed connections as [api.Link]s. Its one rule is
// this: a message is decided by internal/ocip, the decision is committed to
// internal/store, and only the commit's own callback lets anything out.
//
// # The folder
//
// The folder internal/kernel holds the way of one message, from the call to the delivery.
// Its packages may import each other and those of base, ocip, audit, api, store, config,
// approval and evidence.
//
//   - attachments: finds what a message sends along besides its text: addresses, files,
//     inline bytes
//   - contacts: lists with whom agents had sessions; forgets what messages have shown of
//     one
//   - exchange: state between an agent and its counterparties: exchanges, locks of pairs,
//     causal chains, owed answers, budgets, addresses, sessions, observed speakers, heads
//     of logs
//   - exchanges: shows exchanges and ends them: for apps, for people, when their time has
//     run out
//   - hints: reads what a caller says of a message's exchange in `metadata.exchange`, and
//     takes out what is the daemon's to say
//   - hooks: what an agent's runtime says that its agent does besides sending and
//     receiving: asked about, judged, recorded, told; tool calls as subjects of approval
//     requests
//   - inbox: the messages of agents without an app: who reads them, up to where, and whom
//     such an agent can write to
//   - logquery: answers operators who search the audit log or follow it
//   - outbox: durable delivery of allowed messages to apps: queues, receipts, expiry,
//     comparison of each message read back with its record
//   - registry: apps: registrations, tokens, processes, capabilities, hook subscriptions,
//     events that wait for an answer, resumption, heartbeats
//   - sessions: shows apps their sessions
//   - status: what the daemon says of what it decides about: who is connected, what waits,
//     where the log stands
package kernel
