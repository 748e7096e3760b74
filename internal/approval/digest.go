package approval

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
)

// Digest returns the digest of texts, in their order.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// NewSalt returns 256 random bits in hexadecimal, which keep the texts behind a request's digests
// from being guessed.
func NewSalt() string {
	salt := make([]byte, 32)
	_, _ = rand.Read(salt) // it never fails
	return hex.EncodeToString(salt)
}

// Asked returns a digest that names a request: the same request has the same digest. It is stored
// only beside the text, and removed with it. It includes the kind, except for messages, which were
// the first kind.
func Asked(kind string, parts ...string) string {
	if kind == api.ApprovalOfMessage {
		return Digest(parts...)
	}
	return kind + ":" + Digest(parts...)
}
