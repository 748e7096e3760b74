package sshsig

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// GenerateKey makes an Ed25519 key with a comment: the content of the file that has the private key, without
// a passphrase, and the public key.
func GenerateKey(comment string) (file []byte, public ssh.PublicKey, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	if public, err = ssh.NewPublicKey(private.Public()); err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return pem.EncodeToMemory(block), public, nil
}
