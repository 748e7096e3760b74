// Package sealedtext encrypts texts of records to the public keys that the operator names, and
// decrypts them with a private key. It uses age (https://age-encryption.org/v1).
//
// Use: [ParseRecipients] once, then [Recipients.Seal] for each text; [Unseal] where somebody has
// the private key. The daemon never has one.
package sealedtext
