// Package sshsig makes and checks SSH signatures of short texts, such as an approval: the format of
// `ssh-keygen -Y sign` (OpenSSH, PROTOCOL.sshsig), keys listed in an allowed_signers file as git
// uses it (ssh-keygen(1), ALLOWED SIGNERS), keys held by ssh-agent, and FIDO keys (PROTOCOL.u2f).
//
// Use: [ParseAllowedSigners] reads the list once, [Signers.Verify] or [Signers.VerifyAs] checks a
// signature against it, [AgentSigner] finds a key in an agent and [Sign] signs with it. Everything
// here may be called from several goroutines. Nothing reads the clock.
//
// The package accepts Ed25519, ECDSA on the three NIST curves, RSA of 2048 bits and more with
// SHA-2, and the two FIDO types, each alone or in a certificate. It accepts no DSA, no SHA-1 and no
// short RSA keys, not even in the list.
//
// A FIDO signature has to show a touch, unless the line of its key carries no-touch-required. It
// also has to show a PIN or fingerprint if the line carries verify-required. Both words mean the
// same as in authorized_keys (sshd(8)). ssh-keygen does not know them in an allowed_signers file
// and stops at such a line: a list that carries them cannot be shared with git.
//
// A passkey is a line of the type sk-ecdsa-sha2-nistp256@openssh.com, whose application is the name
// of the page's host. Its signatures are of the type webauthn-sk-ecdsa-sha2-nistp256@openssh.com,
// which ssh-keygen checks too. ssh-keygen accepts them from any page; this package accepts them from
// the origins of [Signers.OfPages] alone. Of a passkey it demands that the authenticator verified its
// user, whoever asked for the signature.
//
// Certificates are checked by ssh.CertChecker and, for rules that it leaves out, here: a
// certificate must be a user's, name its principals, be valid at the time, be signed by the
// authority of the line without SHA-1, and carry no critical option but verify-required. ssh-keygen
// overlooks critical options, and before OpenSSH 10.3 missing principals too. A certificate of a
// FIDO key needs no touch only if the certificate and the line both say so, as in sshd.
//
// The caller's duty:
//
//   - State in the signed text the exact decision, and use the text only once: a signature
//     holds no time and no counter, and does not prove when or how often it was
//     made. A signature does not identify itself either, since one key can make several
//     of the same text.
//   - Use a namespace of its own, such as approval@example.com, so that a
//     signature for another purpose does not count.
//   - Take a line out to revoke a key. The package reads no revocation lists
//     (ssh-keygen -r).
//
// The library github.com/hiddeco/sshsig reads and writes the blob. It checks the magic, the
// version, the hash and the namespace. This package reads the armor itself, because the library
// lets text stand around it. It also makes the checks that the library leaves to its caller: SHA-1
// under an RSA certificate, an empty namespace, bytes behind the signature, and the list of
// signers.
package sshsig
