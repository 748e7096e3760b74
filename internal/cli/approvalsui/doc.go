// Package approvalsui shows held messages to people and takes their decisions: the list,
// the page of a message, the live screen, and signatures.
//
// The commands call methods of [People]. A decision is about the text that was shown: if it
// sends something, it carries the digest of the text on the screen.
package approvalsui
