// Package witness has a third party cosign a log's checkpoints: another user or another machine,
// which remembers the largest one it has seen and signs only extensions of it (C2SP tlog-witness,
// with the signatures of C2SP tlog-cosignature). A holder of a cosigned checkpoint knows that the
// witness has seen no other log of that name. A daemon that was restored to an older state finds
// out at its start.
//
// A [Witness] is the one side, [Ask] the other. The caller gives a witness a directory of its own,
// and asks with checkpoints that are durable.
package witness
