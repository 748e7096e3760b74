// Package frame makes and opens frames. One daemon of a fleet hands them to another through a carrier
// that neither of them trusts.
//
// A frame is a header in clear, a body sealed to the receiver's key, and the sender's signature
// over both:
//
//	2 bytes   length of the header, big endian
//	header    a JSON object, see [Header]
//	32 bytes  encapsulated key, and the ciphertext: HPKE of RFC 9180 in base mode, with
//	          DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20Poly1305; info is
//	          "ocipd carrier/1", a zero byte, and the SHA-256 of the header
//	64 bytes  Ed25519 signature over "ocipd carrier/1\n" and all bytes before it
//
// So nobody between the two daemons can read a body, change a frame, or put a body under another
// header. A carrier sees the header: tenant, the two hosts, the number in the lane, the id.
//
// The caller's duty: [Parse] reads the header alone. Check the tenant and the hosts in it before
// looking up a key for [Frame.Open].
package frame

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/text"
)

// The bounds of a frame and of its body, in bytes. A body of MaxBody fits into a frame with any
// header.
const (
	MaxBytes  = 512 << 10
	MaxBody   = MaxBytes - lengthBytes - maxHeader - sealBytes - ed25519.SignatureSize
	maxHeader = 2 << 10

	lengthBytes = 2
	// sealBytes is the encapsulated key (32) and the tag of the cipher (16).
	sealBytes = 48
)

const (
	infoText = "ocipd carrier/1\x00"
	signText = "ocipd carrier/1\n"
)

// Kind is the kind of a frame.
type Kind string

// A frame carries a message, the receiver's receipt, the news that a message is void (its sender has
// withdrawn it, and it only takes its place in the lane), or a beat: see internal/fleet/beat.
const (
	Message Kind = "msg"
	Receipt Kind = "rcpt"
	Void    Kind = "void"
	Beat    Kind = "beat"
)

// Header is the part of a frame that its carrier can read.
type Header struct {
	Version int  `json:"v"`
	Kind    Kind `json:"kind"`
	// Tenant has at most 256 bytes and no control characters.
	Tenant string `json:"tenant"`
	// From and To are the names of the hosts, in the form that a roster gives them. FromEpoch and ToEpoch are the epochs of their keys,
	// which name the lane together with the hosts: see internal/fleet/lane.
	From      string `json:"from"`
	FromEpoch int    `json:"from_epoch"`
	To        string `json:"to"`
	ToEpoch   int    `json:"to_epoch"`
	// Seq is the number in the lane, from 1: for a receipt, in the lane of the message, which runs
	// the other way. For a beat it is its time in milliseconds.
	Seq uint64 `json:"seq"`
	// ID is the dispatchId of the message, in the form of [IDOf]: 1 to 128 letters, digits and . _ : -
	// of ASCII.
	ID string `json:"id"`
	// Expires is when the message expires; zero never does.
	Expires time.Time `json:"exp,omitzero"`
}

// The forms of the texts in headers and receipts.
var (
	hostForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	idForm   = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	codeForm = regexp.MustCompile(`^[A-Z0-9_]{0,64}$`)
	hashForm = regexp.MustCompile(`^([0-9a-f]{64})?$`)
	logForm  = regexp.MustCompile(`^[ -~]{0,256}$`)
)

const (
	maxTenant = 256
	maxReason = 1024
)

// IsHost reports whether a text can be the name of a host: 1 to 63 small letters, digits and -.
func IsHost(name string) bool { return hostForm.MatchString(name) }

// IsLine reports whether a text has at most that many bytes and no control characters.
func IsLine(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, unicode.IsControl)
}

// check checks the members of a header.
func (h *Header) check() error {
	switch {
	case h.Version != 1:
		return fmt.Errorf("v: want 1, got %d", h.Version)
	case h.Kind != Message && h.Kind != Receipt && h.Kind != Void && h.Kind != Beat:
		return errors.New("kind: want msg, rcpt, void or beat")
	case h.Tenant == "" || !IsLine(h.Tenant, maxTenant):
		return fmt.Errorf("tenant: want 1 to %d bytes without control characters", maxTenant)
	case !IsHost(h.From):
		return errors.New("from: want the name of a host, of 1 to 63 small letters, digits and -")
	case !IsHost(h.To):
		return errors.New("to: want the name of a host, of 1 to 63 small letters, digits and -")
	case !idForm.MatchString(h.ID):
		return errors.New("id: want 1 to 128 letters, digits and . _ : -")
	case h.FromEpoch < 1 || h.ToEpoch < 1 || h.Seq < 1:
		return errors.New("from_epoch, to_epoch and seq: want numbers from 1")
	}
	return nil
}

// IDOf returns the dispatchId of a message, from an id that is unique at its host. The host's name
// ends it: so no host can give its own message the id of another host's.
func IDOf(unique, host string) string { return unique + ":" + host }

// IsIDOf reports whether a host may give a message this dispatchId.
func IsIDOf(id, host string) bool {
	unique, ok := strings.CutSuffix(id, ":"+host)
	return ok && unique != ""
}

// Frame is a frame whose header was read. Nothing of it is proven.
type Frame struct {
	Header
	whole, header, sealed, signature []byte
}

// Seal makes a frame: the body is sealed to the receiver's X25519 key, and the whole is signed.
func Seal(h *Header, body []byte, to *ecdh.PublicKey, by ed25519.PrivateKey) ([]byte, error) {
	h.Version = 1
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("cannot make a frame: %w", err)
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("cannot make a frame: its body has %d bytes, and at most %d are allowed", len(body), MaxBody)
	}
	header, err := json.Marshal(h, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("cannot make a frame: %w", err)
	}
	if len(header) > maxHeader {
		return nil, fmt.Errorf("cannot make a frame: its header has %d bytes, and at most %d are allowed", len(header), maxHeader)
	}
	public, err := hpke.NewDHKEMPublicKey(to)
	if err != nil {
		return nil, fmt.Errorf("cannot seal a frame: %w", err)
	}
	sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(header), body)
	if err != nil {
		return nil, fmt.Errorf("cannot seal a frame: %w", err)
	}
	f := binary.BigEndian.AppendUint16(make([]byte, 0, lengthBytes+len(header)+len(sealed)+ed25519.SignatureSize), uint16(len(header)))
	f = append(append(f, header...), sealed...)
	return append(f, ed25519.Sign(by, append([]byte(signText), f...))...), nil
}

func info(header []byte) []byte {
	sum := sha256.Sum256(header)
	return append([]byte(infoText), sum[:]...)
}

// Parse reads the header of a frame.
func Parse(b []byte) (*Frame, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("the frame has %d bytes, and at most %d are allowed", len(b), MaxBytes)
	}
	if len(b) < lengthBytes {
		return nil, errors.New("the frame is cut off")
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes, and at most %d are allowed", n, maxHeader)
	}
	if len(b) < lengthBytes+n+sealBytes+ed25519.SignatureSize {
		return nil, errors.New("the frame is cut off")
	}
	end := len(b) - ed25519.SignatureSize
	f := &Frame{whole: b[:end], header: b[lengthBytes : lengthBytes+n], sealed: b[lengthBytes+n : end], signature: b[end:]}
	if err := json.Unmarshal(f.header, &f.Header, json.RejectUnknownMembers(true)); err != nil {
		return nil, errors.New("the header cannot be read")
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("the header cannot be used: %w", err)
	}
	return f, nil
}

// ErrSignature means that a frame is not signed with the sender's key.
var ErrSignature = errors.New("the frame is not signed with the key of its host")

// Open checks the signature with the sender's Ed25519 key and returns the body, opened with the
// receiver's X25519 key.
func (f *Frame) Open(by ed25519.PublicKey, with *ecdh.PrivateKey) ([]byte, error) {
	if len(by) != ed25519.PublicKeySize || !ed25519.Verify(by, append([]byte(signText), f.whole...), f.signature) {
		return nil, ErrSignature
	}
	private, err := hpke.NewDHKEMPrivateKey(with)
	if err != nil {
		return nil, fmt.Errorf("cannot open a frame: %w", err)
	}
	body, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(f.header), f.sealed)
	if err != nil {
		return nil, errors.New("the frame is not sealed to the key of this host")
	}
	return body, nil
}

// Result is the outcome of a message at its receiver.
type Result string

// The results. A message that the receiver's rules refuse is denied, with a code; one that came too
// late is expired; one that its sender has withdrawn is void.
const (
	Allow   Result = "allow"
	Deny    Result = "deny"
	Expired Result = "expired"
	Voided  Result = "void"
)

// The codes of refusals between hosts, besides those of OCIP: a message does not fit into a frame;
// too many wait for the other host; and a host gives a number of its lane to a second message.
const (
	TooLarge   = "REMOTE_TOO_LARGE"
	QueueFull  = "REMOTE_QUEUE_FULL"
	RolledBack = "LANE_ROLLED_BACK"
)

// Outcome is the body of a receipt. It names the record of the decision in the receiver's log, so
// that the receiver can no longer show a log without it.
type Outcome struct {
	Result Result `json:"result"`
	// Code is empty, or up to 64 capital letters, digits and _.
	Code string `json:"code,omitzero"`
	// Reason is in the form that [Reason] makes.
	Reason string `json:"reason,omitzero"`
	// Log is the origin of the receiver's log, in up to 256 printable characters of ASCII; Record is
	// the number of its record, and Hash that record's hash: 64 small hexadecimal digits, or empty
	// if the receiver has removed the record.
	Log    string `json:"log"`
	Record uint64 `json:"record"`
	Hash   string `json:"hash"`
}

// Write returns the body of a receipt.
func (o *Outcome) Write() ([]byte, error) { return json.Marshal(o, json.Deterministic(true)) }

// Reason makes a text into the reason of a receipt: at most 1024 bytes of UTF-8, with a space for
// each control character.
func Reason(s string) string { return Line(s, maxReason) }

// Line makes a text into one for [IsLine], with a space for each control character.
func Line(s string, limit int) string {
	return text.Clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s), limit)
}

// ReadOutcome reads the body of a receipt. Its sender may be lying: the error names the member that
// is too long or of another form than [Outcome] gives, and repeats nothing of it.
func ReadOutcome(body []byte) (o Outcome, err error) {
	if err := json.Unmarshal(body, &o, json.RejectUnknownMembers(true)); err != nil {
		return o, errors.New("the receipt cannot be read")
	}
	switch o.Result {
	case Allow, Deny, Expired, Voided:
	default:
		return o, errors.New("result: want allow, deny, expired or void")
	}
	switch {
	case o.Record == 0:
		return o, errors.New("record: want the number of a record")
	case !codeForm.MatchString(o.Code):
		return o, errors.New("code: want at most 64 capital letters, digits and _")
	case !IsLine(o.Reason, maxReason):
		return o, fmt.Errorf("reason: want at most %d bytes without control characters", maxReason)
	case !logForm.MatchString(o.Log):
		return o, errors.New("log: want at most 256 printable characters of ASCII")
	case !hashForm.MatchString(o.Hash):
		return o, errors.New("hash: want 64 small hexadecimal digits, or none")
	}
	return o, nil
}
