// Package witness has a third party cosign a log's checkpoints: another user or
// another machine, which remembers the largest one it has seen and signs only what
// goes on from it (C2SP tlog-witness, with the signatures of C2SP tlog-cosignature).
// Whoever holds a cosigned checkpoint knows that the witness was shown no other log of
// that name, and a daemon that was put back to an older state finds out at its start.
//
// A [Witness] is the one side, [Ask] the other. The caller gives a witness a directory
// of its own, and asks with checkpoints that are durable.
package witness
