// Package sshsig makes and checks SSH signatures of short texts, such as an
// approval: the format of `ssh-keygen -Y sign` (OpenSSH, PROTOCOL.sshsig), keys
// listed in an allowed_signers file as git uses it (ssh-keygen(1), ALLOWED
// SIGNERS), keys held by ssh-agent, and FIDO keys (PROTOCOL.u2f).
//
// Use: [ParseAllowedSigners] reads the list once, [Signers.Verify] or
// [Signers.VerifyAs] checks a signature against it, [AgentSigner] finds a key
// in an agent and [Sign] signs with it. Everything here may be called from
// several goroutines. Nothing reads the clock.
//
// What is accepted: Ed25519, ECDSA on the three NIST curves, RSA of 2048 bits
// and more with SHA-2, and the two FIDO types, each alone or in a certificate.
// DSA, SHA-1 and short RSA keys are not, on the list neither.
//
// A FIDO signature has to show a touch, unless the line of its key carries
// no-touch-required, and a PIN or fingerprint too where the line carries
// verify-required. Both words mean what they mean in authorized_keys (sshd(8)).
// ssh-keygen does not know them in an allowed_signers file and stops at such a
// line: a list that carries them cannot be shared with git.
//
// Certificates are checked by ssh.CertChecker and, where that is milder, here:
// a certificate must be a user's, name its principals, be valid at the time,
// be signed by the authority of the line without SHA-1, and carry no critical
// option but verify-required. ssh-keygen overlooks critical options, and before
// OpenSSH 10.3 missing principals too. A certificate of a FIDO key needs no
// touch only if the certificate and the line both say so, as in sshd.
//
// The caller's duty:
//
//   - Say in the signed text what was agreed to, and once: a signature holds no
//     time and no counter, and it proves nothing about when or how often it was
//     made. A signature is no name for itself either, for there are several of
//     the same text by the same key.
//   - Use a namespace of its own, such as approval@example.com, so that a
//     signature made for something else is not taken for this.
//   - Take a line out to revoke a key. Revocation lists (ssh-keygen -r) are not
//     read.
//
// The blob is read and written by github.com/hiddeco/sshsig, which checks the
// magic, the version, the hash and the namespace. This package reads the armor
// itself, because the library lets text stand around it, and checks besides
// what the library leaves to its caller: SHA-1 under an RSA certificate, an
// empty namespace, bytes behind the signature, and who may sign.
package sshsig
