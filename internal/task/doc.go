// Package task is the life of a task as a pure function: its phases and the guards
// between them, attempts, reviews, effects and their approvals, and the reader of
// specs.
//
// [Decide] takes a stored task, a command, its actor and the state of the world. It returns either
// the new task, with the events of the changes, or a [Refusal]. It reads no clock, makes no ids and
// changes none of its arguments.
//
// The caller's duty: decide about one task in order, one after the other, store an
// outcome whole with its events or not at all, and let nothing follow from it before
// that is durable.
//
// # The folder
//
// The folder internal/task holds the life of one task, from the specification to the last
// effect. Its packages may import each other and those of base, ocip, audit, api, store,
// config, approval and evidence.
//
//   - commandfiles: finds the files that a command names, for the approval request and again
//     for the runner
//   - ledger: the directory of what the runner has run: claims, processes, results
//   - outputs: the outputs that a spec declares, and which names are theirs
//   - taskapi: the wire types of tasks: parameters and answers of `task.*` and `runner.*`
//   - taskclient: a connection that acts by a grant and outlives a daemon: attaches again,
//     calls once more
//   - taskservice: one call about a task from its caller to the commit: roles, guards, grants,
//     leases, request keys, approvals of effects
//   - taskstore: tasks in the database: heads, lists, dependencies, effects, grants of
//     actors
package task
