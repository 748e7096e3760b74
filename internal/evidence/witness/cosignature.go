package witness

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/audit"
)

// cosignatureKey is the type of keys that cosign, and keyLen the length of such a key.
//
// Source: C2SP signed-note, tlog-cosignature.
const (
	cosignatureKey = 0x04
	keyLen         = ed25519.PublicKeySize
	signatureLen   = 8 + ed25519.SignatureSize
)

// Key is the public key of a witness.
type Key struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// Name is the witness's name.
func (k *Key) Name() string { return k.name }

// String returns the key in its public form: NAME+HASH+KEY.
func (k *Key) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.hash, base64.StdEncoding.EncodeToString(append([]byte{cosignatureKey}, k.key...)))
}

func newKey(name string, key ed25519.PublicKey) (*Key, error) {
	// The name occurs in lines and on terminals.
	if name == "" || len(name) > 128 || strings.Contains(name, "+") || strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return nil, fmt.Errorf("%.80q is no name of a witness: want up to 128 bytes that show, without blanks and plus signs", name)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%c", name, cosignatureKey)
	h.Write(key)
	return &Key{name, binary.BigEndian.Uint32(h.Sum(nil)), key}, nil
}

// ParseKey reads the public key of a witness.
func ParseKey(text string) (*Key, error) {
	bad := fmt.Errorf("%.120q is no public key of a witness such as ocipd audit witness serve prints", text)
	name, rest, _ := strings.Cut(text, "+")
	hash, encoded, found := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !found || err != nil || len(raw) != 1+keyLen || raw[0] != cosignatureKey {
		return nil, bad
	}
	k, err := newKey(name, raw[1:])
	if err != nil || k.String() != name+"+"+hash+"+"+encoded {
		return nil, bad
	}
	return k, nil
}

// message returns the bytes to sign for a checkpoint at a time.
func message(text string, at int64) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text)
}

// textOf divides a signed note into its text and its signatures.
func textOf(signed string) (text, signatures string) {
	text, signatures, _ = strings.Cut(signed, "\n\n")
	return text + "\n", signatures
}

// maxSignatures bounds the signatures of a note that are checked.
const maxSignatures = 64

// Cosigned returns the time of the witness's last cosignature on a note, or false if there is none.
func (k *Key) Cosigned(signed string) (at time.Time, ok bool) {
	text, signatures := textOf(signed)
	seen := 0
	for line := range strings.Lines(signatures) {
		if seen++; seen > maxSignatures {
			break
		}
		name, encoded, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, "— "), "\n"), " ")
		raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || name != k.name || len(raw) != 4+signatureLen || binary.BigEndian.Uint32(raw) != k.hash {
			continue
		}
		seconds := binary.BigEndian.Uint64(raw[4:])
		if seconds > 1<<40 || !ed25519.Verify(k.key, message(text, int64(seconds)), raw[12:]) {
			continue
		}
		if t := time.Unix(int64(seconds), 0).UTC(); !ok || t.After(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// signer cosigns.
type signer struct {
	*Key
	private ed25519.PrivateKey
}

// Largest returns the number of records in the largest checkpoint that the witness has signed, and
// the time.
func (k *Key) Largest(notes []string) (size uint64, at time.Time) {
	for _, signed := range notes {
		c, err := audit.OpenCheckpoint(signed)
		if when, ok := k.Cosigned(signed); ok && errors.Is(err, audit.ErrUnsigned) && c.Size >= size {
			size, at = c.Size, when
		}
	}
	return size, at
}

// cosign returns the signature line of a note's text.
func (s *signer) cosign(text string, at time.Time) string {
	raw := binary.BigEndian.AppendUint32(nil, s.hash)
	raw = binary.BigEndian.AppendUint64(raw, uint64(at.Unix()))
	raw = append(raw, ed25519.Sign(s.private, message(text, at.Unix()))...)
	return "— " + s.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

const privateBegin = "PRIVATE+WITNESS+"

func newSigner(name string, random io.Reader) (*signer, error) {
	public, private, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, fmt.Errorf("cannot make the key of a witness: %w", err)
	}
	k, err := newKey(name, public)
	if err != nil {
		return nil, err
	}
	return &signer{k, private}, nil
}

// text returns the stored form of the private key.
func (s *signer) text() string {
	return privateBegin + s.name + "+" + base64.StdEncoding.EncodeToString(s.private.Seed()) + "\n"
}

func parseSigner(text string) (*signer, error) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), privateBegin)
	name, encoded, found := strings.Cut(rest, "+")
	seed, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || !found || err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("it holds no private key of a witness")
	}
	private := ed25519.NewKeyFromSeed(seed)
	k, err := newKey(name, private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return &signer{k, private}, nil
}

// parseSize reads the body of an answer that names a size.
func parseSize(text string) (uint64, error) {
	size, err := strconv.ParseUint(strings.TrimSuffix(text, "\n"), 10, 62)
	if err != nil {
		return 0, fmt.Errorf("the witness answers %.80q, and not a number of records", text)
	}
	return size, nil
}
