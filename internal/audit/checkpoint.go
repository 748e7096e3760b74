package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a signed statement about the first Size records of a log: a tlog-checkpoint in a
// signed note (C2SP).
type Checkpoint struct {
	// Origin names the log, and the key that signs for it.
	Origin string
	Size   uint64
	Root   Hash
	// Extension are the lines after the root, for a checkpoint with further statements.
	Extension []string
}

// MaxNoteBytes bounds a signed note.
const MaxNoteBytes = 16 << 10

// NextKey returns the key to which a checkpoint hands the log over, or "".
func (c *Checkpoint) NextKey() string {
	if len(c.Extension) != 1 || !strings.HasPrefix(c.Extension[0], keyMember) {
		return ""
	}
	return strings.TrimPrefix(c.Extension[0], keyMember)
}

// HandsOver reports whether a checkpoint hands the log over to another key.
func (c *Checkpoint) HandsOver() bool { return c.NextKey() != "" }

// Text returns the signed text.
func (c *Checkpoint) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	for _, line := range c.Extension {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// Sign returns the signed note.
func (c *Checkpoint) Sign(signers ...note.Signer) (string, error) {
	signed, err := note.Sign(&note.Note{Text: c.Text()}, signers...)
	if err != nil {
		return "", fmt.Errorf("cannot sign the checkpoint of %d records: %w", c.Size, err)
	}
	return string(signed), nil
}

// errCheckpoint returns the error of a text that is no checkpoint.
func errCheckpoint(format string, args ...any) error {
	return fmt.Errorf("not a checkpoint: %w", fmt.Errorf(format, args...))
}

// parseCheckpoint reads the text of a note, strictly: a checkpoint has exactly
// one form.
func parseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[len(lines)-1] != "" {
		return Checkpoint{}, errCheckpoint("it has not three whole lines")
	}
	lines = lines[:len(lines)-1]
	c := Checkpoint{Origin: lines[0]}
	if c.Origin == "" {
		return Checkpoint{}, errCheckpoint("it names no log")
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	if err != nil || strconv.FormatUint(size, 10) != lines[1] {
		return Checkpoint{}, errCheckpoint("%.40q is not a number of records", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) {
		return Checkpoint{}, errCheckpoint("%.80q is not a root hash in base64", lines[2])
	}
	c.Size = size
	copy(c.Root[:], root)
	for _, line := range lines[3:] {
		if line == "" {
			return Checkpoint{}, errCheckpoint("it has an empty extension line")
		}
		c.Extension = append(c.Extension, line)
	}
	return c, nil
}

// ErrUnsigned means that none of the known keys signed a note.
var ErrUnsigned = errors.New("not signed by a known key")

// OpenCheckpoint reads a signed note. If keys are given, one of them must have signed it: otherwise
// the error is [ErrUnsigned] beside the checkpoint. A wrong signature of a known key is another
// error, and the checkpoint is empty.
func OpenCheckpoint(signed string, keys ...note.Verifier) (Checkpoint, error) {
	if len(signed) > MaxNoteBytes {
		return Checkpoint{}, errCheckpoint("longer than %d bytes", MaxNoteBytes)
	}
	// The library accepts several forms of base64; evidence has only one.
	_, signatures, _ := strings.Cut(signed, "\n\n")
	for line := range strings.Lines(signatures) {
		text := strings.TrimSuffix(line[strings.LastIndexByte(line, ' ')+1:], "\n")
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil {
			return Checkpoint{}, errCheckpoint("its signature is no strict base64")
		}
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(keys...))
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unverified):
		c, err := parseCheckpoint(unverified.Note.Text)
		if err != nil {
			return Checkpoint{}, err
		}
		return c, ErrUnsigned
	case err != nil:
		return Checkpoint{}, fmt.Errorf("not a checkpoint: %w", err)
	}
	c, err := parseCheckpoint(opened.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	// A key speaks only for the log of its own name.
	for _, s := range opened.Sigs {
		if s.Name != c.Origin {
			return Checkpoint{}, errCheckpoint("the key %s signed for the log %s", s.Name, c.Origin)
		}
	}
	return c, nil
}

// Annotation is the newest checkpoint in the form beside an envelope, for the other side to keep.
type Annotation struct {
	Origin    string `json:"origin"`
	Size      uint64 `json:"size"`
	Root      string `json:"root"`
	Signature string `json:"signature"`
}

// Annotate reduces a plain checkpoint's signed note to the parts that the rest does not determine.
func Annotate(signed string) (Annotation, error) {
	c, err := OpenCheckpoint(signed)
	if !errors.Is(err, ErrUnsigned) {
		return Annotation{}, fmt.Errorf("cannot shorten the checkpoint: %w", err)
	}
	text, signatures, _ := strings.Cut(signed, "\n\n")
	first, _, _ := strings.Cut(signatures, "\n")
	signature, found := strings.CutPrefix(first, "— "+c.Origin+" ")
	if !found || len(c.Extension) > 0 || text+"\n" != c.Text() {
		return Annotation{}, errors.New("cannot shorten the checkpoint: it says more than a log's name, size and root")
	}
	return Annotation{Origin: c.Origin, Size: c.Size, Root: base64.StdEncoding.EncodeToString(c.Root[:]), Signature: signature}, nil
}

// MaxOriginBytes bounds the name of a log in an annotation.
const MaxOriginBytes = 128

// Note restores the signed note, or returns an error if the annotation is none of a checkpoint. It
// does not check the signature.
func (a *Annotation) Note() (string, error) {
	if len(a.Origin) > MaxOriginBytes {
		return "", errCheckpoint("its origin is longer than %d bytes", MaxOriginBytes)
	}
	signed := fmt.Sprintf("%s\n%d\n%s\n\n— %s %s\n", a.Origin, a.Size, a.Root, a.Origin, a.Signature)
	if _, err := OpenCheckpoint(signed); !errors.Is(err, ErrUnsigned) {
		return "", err
	}
	return signed, nil
}

// Receipt proves that one record is in a log, to somebody who has only that record and the log's
// public key: a transparency log proof (C2SP tlog-proof).
type Receipt struct {
	// Seq is the record's number; the index in the tree is one less.
	Seq  uint64
	Path []Hash
	// Note is the signed checkpoint of a tree that holds the record.
	Note string
	// HandOvers are as those of [Consistency].
	HandOvers []string
}

const receiptHeader = "c2sp.org/tlog-proof@v1\n"

// maxHandOvers bounds the checkpoints in a proof, and maxHandOverBytes all of them together.
const (
	maxHandOvers     = 128
	maxHandOverBytes = 64 << 10
)

// MaxReceiptBytes bounds a receipt, and a proof of consistency.
const MaxReceiptBytes = MaxNoteBytes + 8<<10 + maxHandOverBytes

// MarshalText writes the receipt.
func (r *Receipt) MarshalText() ([]byte, error) {
	b := append([]byte(receiptHeader), "index "...)
	b = strconv.AppendUint(b, r.Seq-1, 10)
	b = append(b, '\n')
	return appendProof(b, r.Path, r.Note, r.HandOvers), nil
}

// appendProof appends the end of a proof: a line for each hash, and after a blank one the signed
// checkpoint, and each of those that hand over.
func appendProof(b []byte, path []Hash, signed string, handOvers []string) []byte {
	for _, h := range path {
		b = base64.StdEncoding.AppendEncode(b, h[:])
		b = append(b, '\n')
	}
	b = append(append(b, '\n'), signed...)
	for _, signed := range handOvers {
		b = append(append(b, '\n'), signed...)
	}
	return b
}

// apart separates the notes at the end of a proof.
func apart(text string) (signed string, handOvers []string, err error) {
	parts := strings.Split(text, "\n\n")
	if len(parts) <= 2 {
		return text, nil, nil
	}
	if len(parts)%2 != 0 || len(parts) > 2+2*maxHandOvers {
		return "", nil, errors.New("what follows the checkpoint is none that hands the log over")
	}
	for i := 0; i < len(parts); i += 2 {
		one := parts[i] + "\n\n" + strings.TrimSuffix(parts[i+1], "\n") + "\n"
		if i == 0 {
			signed = one
			continue
		}
		if c, err := OpenCheckpoint(one); !errors.Is(err, ErrUnsigned) || !c.HandsOver() {
			return "", nil, errors.New("what follows the checkpoint is none that hands the log over")
		}
		handOvers = append(handOvers, one)
	}
	// There is only one form of it.
	if string(appendProof(nil, nil, signed, handOvers)) != "\n"+text {
		return "", nil, errors.New("blank lines stand between the checkpoints")
	}
	return signed, handOvers, nil
}

// followed returns keys, with those that they hand over to in checkpoints, one after another. A
// checkpoint counts if one of the keys before it has signed it.
func followed(keys []note.Verifier, handOvers []string) []note.Verifier {
	keys = slices.Clone(keys)
	for _, signed := range handOvers {
		c, err := OpenCheckpoint(signed, keys...)
		if err != nil {
			continue
		}
		next, err := note.NewVerifier(c.NextKey())
		if err != nil || next.Name() != c.Origin || slices.ContainsFunc(keys, func(k note.Verifier) bool { return k.Name() == next.Name() && k.KeyHash() == next.KeyHash() }) {
			continue
		}
		keys = append(keys, next)
	}
	return keys
}

// readPath reads the hashes of a proof, a line each.
func readPath(lines []string, most int) (path []Hash, err error) {
	if len(lines) > most {
		return nil, fmt.Errorf("a path of %d hashes", len(lines))
	}
	for _, line := range lines {
		h, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(h) != len(Hash{}) {
			return nil, fmt.Errorf("%.80q is not a hash in base64", line)
		}
		path = append(path, Hash(h))
	}
	return path, nil
}

// UnmarshalText reads a receipt. It ignores extra data, which a record's receipt does not have.
func (r *Receipt) UnmarshalText(text []byte) error {
	if len(text) > MaxReceiptBytes {
		return fmt.Errorf("not a receipt: longer than %d bytes", MaxReceiptBytes)
	}
	rest, found := bytes.CutPrefix(text, []byte(receiptHeader))
	if !found {
		return errors.New("not a receipt: it does not begin with c2sp.org/tlog-proof@v1")
	}
	head, signed, found := bytes.Cut(rest, []byte("\n\n"))
	if !found {
		return errors.New("not a receipt: no checkpoint follows the proof")
	}
	lines := strings.Split(string(head), "\n")
	if strings.HasPrefix(lines[0], "extra ") {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return errors.New("not a receipt: no index")
	}
	number, found := strings.CutPrefix(lines[0], "index ")
	index, err := strconv.ParseUint(number, 10, 62)
	if !found || err != nil || strconv.FormatUint(index, 10) != number {
		return fmt.Errorf("not a receipt: %.40q names no index", lines[0])
	}
	got := Receipt{Seq: index + 1}
	if got.Note, got.HandOvers, err = apart(string(signed)); err != nil {
		return fmt.Errorf("not a receipt: %w", err)
	}
	if got.Path, err = readPath(lines[1:], 64); err != nil {
		return fmt.Errorf("not a receipt: %w", err)
	}
	if _, err := OpenCheckpoint(got.Note); !errors.Is(err, ErrUnsigned) {
		return fmt.Errorf("not a receipt: %w", err)
	}
	*r = got
	return nil
}

// Check returns the checkpoint that covers a line by this receipt. One of the keys must have signed
// it, or one that they hand over to.
func (r *Receipt) Check(line []byte, keys ...note.Verifier) (Checkpoint, error) {
	c, err := OpenCheckpoint(r.Note, followed(keys, r.HandOvers)...)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("the receipt of record %d proves nothing: %w", r.Seq, err)
	}
	return c, r.proves(line, &c)
}

// Proves reports whether the path leads from a line to the checkpoint, regardless of its signer.
func (r *Receipt) Proves(line []byte) error {
	c, err := OpenCheckpoint(r.Note)
	if !errors.Is(err, ErrUnsigned) {
		return err
	}
	return r.proves(line, &c)
}

func (r *Receipt) proves(line []byte, c *Checkpoint) error {
	path := make(tlog.RecordProof, len(r.Path))
	for i, h := range r.Path {
		path[i] = tlog.Hash(h)
	}
	if r.Seq > c.Size {
		return fmt.Errorf("the receipt of record %d proves nothing: its checkpoint is of %d records", r.Seq, c.Size)
	}
	if tlog.CheckRecord(path, int64(c.Size), tlog.Hash(c.Root), int64(r.Seq-1), tlog.Hash(Leaf(line))) != nil {
		return fmt.Errorf("the receipt of record %d is not of this line: the line, the path or the number was changed", r.Seq)
	}
	return nil
}

// HandOverOf returns the note of a line in which a key hands over to the next.
func HandOverOf(line []byte) (signed string, ok bool) {
	p, ok := placeOf(line[:max(0, len(line)-tailLen)])
	if !ok || !isCheckpoint(p.members) {
		return "", false
	}
	e, err := Parse(line)
	if err != nil || e.Event != EventRotated {
		return "", false
	}
	signed, ok = e.Details["note"].(string)
	return signed, ok
}

// CheckpointOf returns the checkpoint in a line over all the records before it, signed by one of
// the keys. It does not check that the records are the signed ones.
func CheckpointOf(line []byte, keys ...note.Verifier) (c Checkpoint, signed string, ok bool) {
	p, ok := placeOf(line[:max(0, len(line)-tailLen)])
	if !ok || !isCheckpoint(p.members) {
		return Checkpoint{}, "", false
	}
	e, err := Parse(line)
	if err != nil || e.Event == EventRetired {
		return Checkpoint{}, "", false
	}
	signed, _ = e.Details["note"].(string)
	c, err = OpenCheckpoint(signed, keys...)
	return c, signed, err == nil && c.Size == e.Seq-1
}
