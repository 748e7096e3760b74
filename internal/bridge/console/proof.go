package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
)

// A page proves at each request that it has the key of its session, and the console proves the same in
// its answer. No key is ever sent, so a program that took the port gets none, and has no answer that
// the page believes. The key of a link is in its fragment, which a browser does not send; both sides
// make that of the session from it.
const (
	// proofScheme begins the header Authorization of a request: the SHA-256 of the key in hexadecimal,
	// the page's nonce and the proof follow, with dots between them.
	proofScheme = "Proof "
	// proofHeader has the console's proof in an answer.
	proofHeader = "Ocipd-Proof"
	// nonceSize is the size of a nonce in bytes, and maxProofs bounds those of a session, which the
	// console remembers: a proof is good once.
	nonceSize = 16
	maxProofs = 1 << 18
)

// Each use of a key begins with other bytes, so that the result of one stands for no other.
const (
	requestProof = "ocipd console request\x00"
	answerProof  = "ocipd console answer\x00"
	sessionKey   = "ocipd console session\x00"
)

// digest names a key without telling it.
type digest [sha256.Size]byte

func digestOf(key string) digest { return sha256.Sum256([]byte(key)) }

// macOf is the HMAC-SHA-256 of the parts, one after the other.
func macOf(key string, parts ...string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	for _, part := range parts {
		_, _ = io.WriteString(mac, part) // it never fails
	}
	return mac.Sum(nil)
}

// claim names the session of a request, with the proof.
type claim struct {
	key   digest
	nonce [nonceSize]byte
	// text is the nonce as it was sent.
	text  string
	proof []byte
}

// claimOf reads the claim of a request, which has one header Authorization.
func claimOf(r *http.Request) (c claim, ok bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return c, false
	}
	text, ok := strings.CutPrefix(values[0], proofScheme)
	parts := strings.Split(text, ".")
	if !ok || len(parts) != 3 {
		return c, false
	}
	key, wrong := hex.DecodeString(parts[0])
	nonce, bad := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	proof, worse := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if wrong != nil || bad != nil || worse != nil || len(key) != sha256.Size || len(nonce) != nonceSize {
		return c, false
	}
	return claim{digest(key), [nonceSize]byte(nonce), parts[1], proof}, true
}

// proves reports whether a claim about a request is made with a key: it covers the method, the path,
// the nonce and the body.
func (c claim) proves(key string, r *http.Request, body []byte) bool {
	return hmac.Equal(c.proof, macOf(key, requestProof, r.Method, "\n", r.RequestURI, "\n", c.text, "\n", string(body)))
}

// answer is the proof that the console has the key too. It covers the nonce alone: the header that has
// it comes before the body.
func (c claim) answer(key string) string {
	return base64.RawURLEncoding.EncodeToString(macOf(key, answerProof, c.text))
}

// session is the key of the session that a claim with a link's key begins.
func (c claim) session(key string) string {
	return base64.RawURLEncoding.EncodeToString(macOf(key, sessionKey, c.text))
}
