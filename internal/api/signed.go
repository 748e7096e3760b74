package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/decimal"
)

// Signing says whether a call of an operator's method takes a person's signature where
// decisions are signed (approvals.allowed_signers).
type Signing string

const (
	// Reads changes nothing.
	Reads Signing = "reads"
	// Unsigned stops, takes back, or does what an app or a program may do without a person.
	Unsigned Signing = "unsigned"
	// Signed loosens, destroys, settles, forgets, or speaks for an agent: the call is signed,
	// over [SignedCall].
	Signed Signing = "signed"
	// SignedParams decides about something that was shown: its parameters carry a signature
	// over that.
	SignedParams Signing = "params"
)

// ChallengeParams asks for the nonce of a signed call (operator, operator.challenge).
type ChallengeParams struct {
	Method string `json:"method" is:"required max=256" doc:"The method that is called next."`
}

// Challenge says whether a call of the method has to be signed.
type Challenge struct {
	SignatureRequired bool `json:"signatureRequired"`
	// Nonce is good for the next signed call of the connection, and for no other. It is absent if
	// the method's parameters carry the signature, or none is required.
	Nonce string `json:"nonce,omitzero" doc:"For the next signed call on this connection. A second challenge replaces it, and each call uses it up, also one without a valid signature."`
}

// SignedCall is the signed text of a call: the method, and the digest of the nonce and the
// parameters in their canonical form (RFC 8785). Since the nonce is kept by nobody, no text can be
// guessed from the digest.
func SignedCall(method, nonce string, params jsontext.Value) (string, error) {
	canonical := jsontext.Value("{}")
	if len(params) > 0 && params.Kind() != 'n' {
		// The signature would be over another number too.
		if where, number, found := decimal.Inexact(params); found {
			return "", fmt.Errorf("cannot sign the parameters of %s: %s: the number %.64s is another one in RFC 8785: write it as a string", method, strings.ReplaceAll(strings.TrimPrefix(where, "/"), "/", "."), number)
		}
		canonical = params.Clone()
		if err := canonical.Canonicalize(); err != nil {
			return "", fmt.Errorf("cannot sign the parameters of %s: %w", method, err)
		}
	}
	sum := sha256.Sum256(append([]byte(nonce), canonical...))
	return "ocipd call v1\n" + method + "\nsha256:" + hex.EncodeToString(sum[:]) + "\n", nil
}
