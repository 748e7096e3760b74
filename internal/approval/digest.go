package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
)

// digestName begins every digest.
const digestName = "sha256"

// Digest is the digest of texts, in their order.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return digestName + ":" + hex.EncodeToString(h.Sum(nil))
}

// Asked names what is asked for, by a digest: the same again is the same request.
// The kind stands before it, except for messages.
func Asked(kind string, parts ...string) string {
	if kind == api.ApprovalOfMessage {
		return Digest(parts...)
	}
	return kind + ":" + Digest(parts...)
}

// kindOf is the kind of what [Asked] names.
func kindOf(asked string) string {
	if kind, _, ok := strings.Cut(asked, ":"); ok && kind != digestName {
		return kind
	}
	return api.ApprovalOfMessage
}
