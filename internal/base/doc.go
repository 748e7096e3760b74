// Package base has no code: it describes the folder of this name.
//
// # The folder
//
// The folder internal/base holds code that knows nothing of ocipd: texts, JSON lines, files,
// processes, terminals, locks, counters. Its packages may import each other, and nothing else of
// this module.
//
//   - child: runs a program to its end, and can end it with all processes that it started
//   - decimal: finds the numbers of JSON that its canonical form makes others of
//   - durable: replaces small files atomically: keys, cursors, manifests
//   - fileowner: checks who else can change a file, and whether data written to it stays there
//   - filewatch: notices that a file or a folder has changed
//   - hangup: lets a call end the connection by which it came
//   - ids: the form of the ids of tasks and of things that belong to tasks
//   - jsonline: JSON objects written member by member, for the objects that every message
//     needs
//   - keylock: one lock for each of any number of keys
//   - logtext: the daemon's log as a person reads it at a terminal
//   - metrics: counts the daemon's work and measures how long it takes
//   - mutant: switches one guard off in a build for tests, to see that the canary notices
//   - panes: one live screen of several panes, which the caller draws
//   - peer: finds out which process is at the other end of a socket, and lists and ends
//     processes
//   - plainfile: opens regular files in directories where others can swap them meanwhile;
//     resolves a name as the operating system does
//   - sshsig: SSH signatures, and the file of allowed signers
//   - term: terminal output: tables, folding, colour, invisible characters spelled out
//   - text: how a text looks to its reader: which characters show, spelling, look-alikes,
//     rendering
package base
