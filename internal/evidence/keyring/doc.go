// Package keyring keeps the daemon's keys on disk, in a directory of their own: the key that signs
// checkpoints, the keys for content digests, and the key that seals rows.
//
// Use: [OpenSigner] and [OpenDigests] on the same directory, each once, while no other process uses
// it. Both are safe for concurrent use.
//
// The directory is made with mode 0700 and its secret files with 0600. The package refuses a file
// that belongs to another user, is a link, or can be read by others, and its error names the remedy:
// a secret that others could have read is no secret. It replaces a file as a whole, by a rename
// after an fsync, so that a crash leaves the old one or the new one.
//
// The keys are not in the database, so that nobody with a copy of it, or of the log, can find out
// texts by guessing them. The caller's duty: keep the directory out of copies for others, put its
// signing key into a backup, and drive a rotation in the order that [Signer.Next] describes.
package keyring
