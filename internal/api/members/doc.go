// Package members checks the members of parameters. The bounds stand in tags of a struct's
// fields; the schemas of the protocol state the same bounds.
//
//	is    the bounds of the member, words with spaces between them
//	each  the bounds of each item of a list
//	doc   the meaning, in a sentence
//
// The words of bounds are
//
//	required    the member is present, and a text, a number or a time is not zero
//	nonempty    the text or the list is not empty
//	max=N       at most N bytes of a text or of raw JSON, N items of a list
//	keeps=N     like max, for a list or text that a task keeps: more gives a conflict, LIMIT
//	range=A..B  a number from A to B; each end can be missing
//	words=A|B   one of these words
//	id=PREFIX   an id: the prefix and a UUID
//	form=NAME   one of the forms in forms.go
//	object      raw JSON is an object; with null, it can also be null
//	exact       numbers of raw JSON are the same in the canonical form, RFC 8785: a digest covers it
//	names       a list of at most 256 names
//
// Bounds other than required and nonempty apply to present values alone: to texts that are not
// empty and pointers that are not nil. Rules between members are code, in the method
// Rules() api.Fields of the parameters.
package members
