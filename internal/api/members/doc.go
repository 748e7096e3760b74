// Package members has the bounds of members of parameters. The tags of a struct's fields hold
// them: one engine checks parameters by them, and the schemas and the reference page say them.
//
//	is    the bounds of the member, words with spaces between them
//	each  the bounds of each item of a list
//	doc   the meaning, in a sentence
//
// The words of bounds are
//
//	required    the member is there: a text, a number or a time is not zero
//	nonempty    a text, or a list, that is there is not empty
//	max=N       at most N bytes of a text or of raw JSON, N items of a list
//	keeps=N     as max, of what a task keeps: more is a conflict with the code LIMIT
//	range=A..B  a number from A to B; each end can be missing
//	words=A|B   one of these words
//	id=PREFIX   an id: the prefix and a UUID
//	form=NAME   one of the forms in forms.go
//	object      raw JSON is an object; with null, it can also be null
//	names       a list of at most 256 names
//
// All but required and nonempty hold for what is there: a text that is not empty, a pointer
// that is not nil. A rule between members stays code: a method Rules() api.Fields of the
// parameters.
package members
