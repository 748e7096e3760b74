// Package peercheck judges the processes for which an operator's program asks, such as the browser in
// front of `ocipd console`. The daemon sees that program at the operator socket, and not the process
// behind it: the program names it, and the daemon applies the rule of the operator socket to it as
// well. A named process only narrows a caller's rights; no process gets any by being named.
//
// [Judge] answers peer.check and console.report. It puts refusals and reports on record: at most one
// a minute for each event and process.
package peercheck
