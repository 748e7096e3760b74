// Package kernel carries one message from its caller to its effect: it finds sender and
// counterparty, asks interceptors, decides for both sides, and commits the decision that releases
// the message.
//
// The kernel knows no sockets. It is given a store, a policy, a clock and a source of ids, and is
// handed connections as [api.Link]s. It has one rule: internal/ocip decides a message,
// internal/store commits the decision, and only the commit's own callback lets anything out.
//
// Begin at dispatch.go for an outgoing message, at receive.go for an incoming one, and at hold.go
// for a held one. leave.go checks a message that has waited again, the tenant wall included, before
// the outbox delivers it. The files fleet*.go send frames to other hosts, and check those that come
// back, with their receipts.
//
// # The folder
//
// The folder internal/kernel holds the life of one message, from the call to the delivery. Its
// packages may import each other and those of base, ocip, audit, api, store, config, approval and
// evidence.
//
//   - attachments: finds what a message sends along besides its text: addresses, files, inline
//     bytes
//   - contacts: lists with whom agents had sessions; forgets what messages have shown of one
//   - exchangehints: reads the caller's hints about a message's exchange in `metadata.exchange`, and
//     removes members that only the daemon may write
//   - exchanges: shows exchanges, and ends them for apps, for people, and at their deadline
//   - exchangestate: state between an agent and its counterparties: exchanges, locks of pairs, causal
//     chains, owed answers, budgets, addresses, sessions, observed speakers, heads of logs
//   - hooks: an agent's acts besides sending and receiving, as its runtime reports them: asks,
//     judges, records, notifies; tool calls as subjects of approval requests
//   - inbox: the messages of agents without an app: their readers, the position of each, and the
//     contacts that such an agent can write to
//   - logquery: answers operators that search the audit log or follow it
//   - outbox: durable delivery of allowed messages to apps: queues, receipts, expiry, comparison of
//     each message read back with its record
//   - peercheck: judges the processes for which operators' programs ask, and records refusals
//   - registry: apps: registrations, tokens, processes, capabilities, hook subscriptions, events
//     that wait for an answer, resumption, heartbeats
//   - sessions: shows apps their sessions
//   - status: the daemon's status: connected apps, waiting messages, the number of pending requests,
//     the head of the log
package kernel
