// Package approvalsui is what a person sees of the messages that wait for one, and how
// decisions about them are made: the list, a message with all there is to know, the
// live screen, and signatures.
//
// The commands call methods of [People]. What is decided about is what was shown:
// a decision that sends something carries the digest of what was on the screen.
package approvalsui
