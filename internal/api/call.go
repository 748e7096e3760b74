package api

// Ordered are the parameters of calls of which those with the same key run one
// after another on a connection, in the order they were asked for.
type Ordered interface{ OrderKey() string }

// lists is the order key of all that lists: a connection's lists are made one after
// another, so that others' come in between. No session's key is like it.
const lists = "lists"

// Mendable are parameters that are told how many halves of characters were replaced
// in their request.
type Mendable interface{ Mend(halves int) }

// AfterReply is the work of a call after its answer is written. The caller does not wait for it. It
// is nil if nothing is left.
type AfterReply func()
