// Package describe puts a request to a person into words: the message or the act, the reasons for
// which the request waits, and the effect of each decision. The terminal and the console's page draw
// the same words, see [Writer].
package describe
