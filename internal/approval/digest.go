package approval

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
)

// Digest is the digest of texts, in their order.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// NewSalt makes what keeps the digests of a request from being guessed: 256 bits, in
// hexadecimal.
func NewSalt() string {
	salt := make([]byte, 32)
	_, _ = rand.Read(salt) // it never fails
	return hex.EncodeToString(salt)
}

// Asked names what is asked for, by a digest: the same again is the same request. It
// stands beside the text only, and goes with it.
// The kind stands before it, except for messages, the first there were.
func Asked(kind string, parts ...string) string {
	if kind == api.ApprovalOfMessage {
		return Digest(parts...)
	}
	return kind + ":" + Digest(parts...)
}
