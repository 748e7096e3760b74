// Package task is the life of a task as a pure function: its phases and the guards
// between them, attempts, reviews, effects and their approvals, and the reader of
// specs.
//
// [Decide] takes a task as it is stored, what somebody wants of it, who that is and
// what the world says about it, and returns either the task as it is to be stored,
// with the events that say what changed, or a [Refusal]. It reads no clock, makes no
// ids and touches nothing of what it was given.
//
// The caller's duty: decide about one task in order, one after the other, store an
// outcome whole with its events or not at all, and let nothing follow from it before
// that is durable.
package task
