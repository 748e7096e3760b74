// Package fleet has no code: it describes the folder of this name.
//
// # The folder
//
// The folder internal/fleet holds the rules for daemons of one tenant on several machines, as pure
// functions: no I/O, no clock, no randomness besides that of the ciphers. Its packages may import
// each other and those of base. The daemon applies them in internal/kernel (fleet*.go).
//
//   - beat: what each host says of itself every 15 seconds
//   - fleetapi: the parameters and results of the methods of a fleet
//   - frame: one sealed and signed message between two daemons
//   - lane: the order of frames from one daemon to another: gaps, repetitions, when to send again
//   - roster: the signed list of hosts, their keys and their agents
package fleet
