package inbox

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/kernel/outbox"
)

// seal encrypts cursors, so that their readers cannot see record numbers, which count other
// tenants' activity. A reader returns its cursor unchanged. A made-up cursor, or another inbox's,
// does not open.
type seal struct{ mac, key []byte }

// seal returns the seal of the agent's inbox. It lasts as long as the tenant's digest key.
func (r *Reader) seal() (seal, error) {
	var s seal
	for use, key := range map[string]*[]byte{"mac": &s.mac, "key": &s.key} {
		digest, err := r.digest(r.agent.TenantID, "inbox cursor\x00"+use+"\x00"+r.agent.Identified())
		if err != nil {
			return s, fmt.Errorf("cannot seal a cursor: %w", err)
		}
		sum := sha256.Sum256([]byte(digest))
		*key = sum[:]
	}
	return s, nil
}

const (
	tagBytes = aes.BlockSize
	seqBytes = 8
	idBytes  = len(uuid.UUID{})
)

// close encodes a cursor for its reader. Equal cursors give equal texts.
func (s seal) close(c *outbox.Cursor) (string, error) {
	plain := binary.BigEndian.AppendUint64(make([]byte, tagBytes), c.Seq)
	for _, text := range append([]string{c.Newest}, c.KeptBack...) {
		id, err := uuid.Parse(text)
		if err != nil {
			return "", fmt.Errorf("cannot write a cursor to message %q: %w", text, err)
		}
		plain = append(plain, id[:]...)
	}
	copy(plain, s.tag(plain[tagBytes:]))
	s.turn(plain)
	return base64.RawURLEncoding.EncodeToString(plain), nil
}

// open decodes a cursor that close has encoded.
func (s seal) open(text string) (c outbox.Cursor, ok bool) {
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(plain) < tagBytes+seqBytes+idBytes || (len(plain)-tagBytes-seqBytes)%idBytes != 0 {
		return c, false
	}
	s.turn(plain)
	if !hmac.Equal(plain[:tagBytes], s.tag(plain[tagBytes:])) {
		return c, false
	}
	c.Seq = binary.BigEndian.Uint64(plain[tagBytes:])
	for rest := plain[tagBytes+seqBytes:]; len(rest) > 0; rest = rest[idBytes:] {
		id := uuid.UUID(rest[:idBytes]).String()
		if c.Newest == "" {
			c.Newest = id
		} else {
			c.KeptBack = append(c.KeptBack, id)
		}
	}
	return c, true
}

func (s seal) tag(plain []byte) []byte {
	m := hmac.New(sha256.New, s.mac)
	m.Write(plain)
	return m.Sum(nil)[:tagBytes]
}

// turn encrypts or decrypts the part after the tag; the tag is the initial counter.
func (s seal) turn(b []byte) {
	block, err := aes.NewCipher(s.key)
	if err != nil {
		panic(err) // A key of 32 bytes is one.
	}
	cipher.NewCTR(block, b[:tagBytes]).XORKeyStream(b[tagBytes:], b[tagBytes:])
}
