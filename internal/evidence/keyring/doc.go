// Package keyring keeps the daemon's keys on disk, in a directory of their own:
// the key that signs checkpoints, the keys that content digests are made with, and the
// key that rows are sealed with.
//
// Use: [OpenSigner] and [OpenDigests] on the same directory, each once, while no
// other process uses it. Both are safe for concurrent use.
//
// The directory is made with mode 0700 and its secret files with 0600. What is
// not ours, is a link, or can be read by others is refused, with what to do
// about it: a secret that others could have read is none. A file is replaced
// whole, by a rename after an fsync, so that a crash leaves the old one or the
// new one.
//
// The keys are kept out of the database so that whoever is handed a copy of it,
// or of the log, cannot find out texts by guessing them. The caller's duty: keep
// the directory out of what is handed out, put its signing key into a backup,
// and drive a rotation in the order [Signer.Next] describes.
package keyring
