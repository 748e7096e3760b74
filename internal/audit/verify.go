package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Events of checkpoint records.
const (
	EventSigned  = "signed"
	EventRotated = "key_rotated"
	EventRetired = "retired"
)

const (
	// CheckpointEvery is the largest number of records before a checkpoint.
	CheckpointEvery = 1024
	// maxUnsigned is the largest number of uncovered records, including the last checkpoint itself,
	// when the next one is written.
	maxUnsigned = CheckpointEvery + 1

	// SignWithin is the largest age of an uncovered record when another record is written: a daemon
	// that finds an older one signs first.
	SignWithin = time.Minute
	// SignedLate is the time between two records, without a checkpoint between them, from which a
	// verifier reports it.
	SignedLate = 2 * SignWithin
)

// SignsWithin is the member of details in which a log states its limit, in seconds: on the records
// of starts and on checkpoints. The records of older versions lack it.
const SignsWithin = "signsWithin"

// Events of records about the log's witnesses.
const (
	EventWitnessAdded   = "witness_added"
	EventWitnessRemoved = "witness_removed"
)

// EventGrantMade is the event of the record of a signed pre-approval, and EventResolved that of an exchange
// that was settled.
const (
	EventGrantMade = "grant_made"
	EventResolved  = "resolved"
)

// EventStarted is the event of the first record of a start.
const EventStarted = "daemon_started"

// keyMember begins the extension line that hands a log over to another key.
const keyMember = "key "

// HandOver returns the checkpoint with which a log's key names the next one.
func HandOver(c Checkpoint, next string) Checkpoint {
	c.Extension = []string{keyMember + next}
	return c
}

// Proof is a verifier's knowledge besides the log. All of it is optional; missing parts are not
// checked.
type Proof struct {
	// Keys are the public keys that may have signed checkpoints. If one of them hands over to
	// another in the log, that one replaces it from there on.
	Keys []note.Verifier
	// Former are public keys that others have replaced. They vouch for checkpoints outside and for
	// nothing in the log: a key may be replaced because it was stolen.
	Former []note.Verifier
	// Held are signed notes of checkpoints that were kept outside the log: in a file, in a journal,
	// by counterparties. One that does not fit is a fault, regardless of its signer: an unknown
	// signature proves nothing, but a missing part of the log may have handed over to that key.
	Held []string
	// Tombstone stands for the records before the first line. If no key in force signed it, a
	// signed record must contain the same.
	Tombstone *Tombstone
}

// Report is a verifier's result for a log without a fault.
type Report struct {
	// Head is the last record.
	Head Head
	// Retired is the last record that retention removed.
	Retired uint64
	// Origin is the log's name, empty if no checkpoint states it.
	Origin string
	// Checkpoints counts the checkpoint records, Held the checkpoints from outside that fit and
	// that a known key signed, and Passed those before the first line. Unproven counts those that
	// fit without a known key's signature: anybody can have made them from the current log.
	Checkpoints, Held, Passed, Unproven int
	// Outside is the number of records that the largest of Held covers: cuts or changes after them
	// would not show. OutsideSince is the time of the first record after them.
	Outside      uint64
	OutsideSince time.Time
	// Signed is the number of records that a known key vouches for. The records after it are
	// chained, but anybody who can write the log could have written them.
	Signed uint64
	// UnsignedSince is the time of the first record after them.
	UnsignedSince time.Time
	// Late counts how often records were signed only long after they were written: the daemon had
	// crashed, or the machine slept.
	Late int
	// LastLate is the last of these times.
	LastLate Stretch
	// Gaps counts how often a record followed long after another without a checkpoint between them,
	// as versions before [SignsWithin] allowed.
	Gaps int
	// FirstGap is the first of these.
	FirstGap Stretch
}

// Stretch is a run of records that were unsigned for a while.
type Stretch struct {
	// First is its first record, and Last the one before the late record or checkpoint.
	First, Last uint64
	// From is when the first was written, To when the late one came.
	From, To time.Time
}

// Verifier checks lines one after another and remembers its progress. It takes constant memory
// besides its proof. The zero Verifier starts at the beginning of a chain and knows no keys.
type Verifier struct {
	head     Head
	frontier Frontier
	leaves   *leafHash
	report   Report

	// keys are those in force; handed are all that ever were.
	keys, handed []note.Verifier
	// held are the checkpoints from outside, smallest first; those before met have been compared.
	held []heldCheckpoint
	met  int

	// stone is the note of a tombstone that no key in force signed, and vouched the record that
	// holds it too.
	stone   string
	vouched uint64
	// unknown is the first record whose checkpoint no known key signed, if no signed one has
	// followed.
	unknown uint64
	// stray is a checkpoint from outside that does not fit, and that no known key signed.
	stray *Fault

	// open is the first record since the last checkpoint. Prompt is set once the log says that it
	// is signed within [SignWithin]; it is never reset.
	open   Head
	prompt bool
}

// heldCheckpoint is a checkpoint from outside.
type heldCheckpoint struct {
	Checkpoint
	signed string
	fits   bool
	// after is the time of the first record after those that it covers.
	after time.Time
}

// HeldCheckpoint is a checkpoint from outside that the log fits.
type HeldCheckpoint struct {
	Size uint64
	Note string
	// Proven says that a known key signed it.
	Proven bool
	// After is the time of the first record after those that it covers, zero if there is none.
	After time.Time
}

// HeldOutside returns the checkpoints from outside that the log fits, the smallest first, as far as
// they cover the records that were read.
func (v *Verifier) HeldOutside() (list []HeldCheckpoint) {
	for i := range v.held[:v.met] {
		if c := &v.held[i]; c.fits {
			list = append(list, HeldCheckpoint{Size: c.Size, Note: c.signed, Proven: v.proven(c), After: c.after})
		}
	}
	return list
}

// NewVerifier returns a verifier that compares a log with a proof. An error describes a fault of
// the proof itself; it is a [*Fault] if the tombstone, which comes with the log, cannot be trusted.
func NewVerifier(p Proof) (*Verifier, error) {
	v := &Verifier{keys: slices.Clone(p.Keys), handed: slices.Concat(p.Keys, p.Former)}
	for _, k := range v.handed {
		if v.report.Origin != "" && v.report.Origin != k.Name() {
			return nil, fmt.Errorf("cannot verify with the keys of two logs: %s and %s", v.report.Origin, k.Name())
		}
		v.report.Origin = k.Name()
	}
	if t := p.Tombstone; t != nil {
		v.head, v.frontier = t.Head, Frontier{Size: t.Frontier.Size, Hashes: slices.Clone(t.Frontier.Hashes)}
		v.report.Retired = t.Head.Seq
		_, err := OpenTombstone(t.Signed, v.keys...)
		switch {
		case err == nil:
			v.report.Signed = t.Head.Seq
		case !errors.Is(err, ErrUnsigned):
			return nil, &Fault{Seq: 1, Problem: fmt.Sprintf("the tombstone of the first %d records cannot be believed: %v", t.Head.Seq, err)}
		case len(v.keys) > 0 && t.Origin != v.report.Origin:
			return nil, &Fault{Seq: 1, Problem: fmt.Sprintf("the tombstone of the first %d records is of the log %s, and this one is %s", t.Head.Seq, t.Origin, v.report.Origin)}
		case len(v.keys) > 0:
			v.stone = t.Signed
		}
		v.report.Origin = cmp.Or(v.report.Origin, t.Origin)
	}
	for _, signed := range p.Held {
		c, err := OpenCheckpoint(signed)
		if !errors.Is(err, ErrUnsigned) {
			return nil, &Fault{Problem: fmt.Sprintf("what is held outside the log is no checkpoint: %v", err)}
		}
		v.held = append(v.held, heldCheckpoint{Checkpoint: c, signed: signed})
	}
	slices.SortStableFunc(v.held, func(a, b heldCheckpoint) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.signed, b.signed))
	})
	// One checkpoint may be kept in several places.
	v.held = slices.CompactFunc(v.held, func(a, b heldCheckpoint) bool { return a.signed == b.signed })
	for v.met < len(v.held) && v.held[v.met].Size < v.head.Seq {
		v.report.Passed++
		v.met++
	}
	if err := v.meet(); err != nil {
		return nil, err
	}
	return v, nil
}

// Add checks the next line.
func (v *Verifier) Add(line []byte) error {
	next, p, err := v.head.follow(line)
	if err != nil {
		return err
	}
	delimits := false
	switch {
	case isCheckpoint(p.members):
		if delimits, err = v.checkpoint(line, next.Seq); err != nil {
			return err
		}
	case isStart(p.members):
		v.started(line)
	}
	if err := v.inTime(next, delimits); err != nil {
		return err
	}
	if v.leaves == nil {
		v.leaves = newLeafHash()
	}
	v.frontier.Append(v.leaves.sum(line))
	for i := v.met - 1; i >= 0 && v.held[i].Size == v.head.Seq; i-- {
		v.held[i].after = next.Time
	}
	v.head = next
	if v.report.UnsignedSince.IsZero() {
		v.report.UnsignedSince = next.Time
	}
	if v.report.Signed > 0 && len(v.keys) > 0 && next.Seq-v.report.Signed > maxUnsigned {
		return &Fault{Seq: next.Seq, Problem: fmt.Sprintf("more than %d records stand here without a signed checkpoint: written by somebody who has not the key, or checkpoints were removed", maxUnsigned)}
	}
	return v.meet()
}

// isCheckpoint recognizes a checkpoint by the fixed beginning of a record. The id, the action type
// and the event are first in every record.
func isCheckpoint(members []byte) bool {
	return beginsWith(members, `","actionType":"`+ActionCheckpoint+`"`)
}

// isStart recognizes the record of a start in the same way.
func isStart(members []byte) bool {
	return beginsWith(members, `","actionType":"`+ActionSecurity+`","event":"`+EventStarted+`"`)
}

// WitnessOf returns a line's statement about the list of witnesses: that the one with a key was
// added to it, or removed.
func WitnessOf(line []byte) (key, name string, listed, ok bool) {
	p, ok := placeOf(line[:max(0, len(line)-tailLen)])
	if !ok || !beginsWith(p.members, `","actionType":"`+ActionSecurity+`","event":"witness_`) {
		return "", "", false, false
	}
	e, err := Parse(line)
	if err != nil || e.Event != EventWitnessAdded && e.Event != EventWitnessRemoved {
		return "", "", false, false
	}
	key, _ = e.Details["key"].(string)
	name, _ = e.Details["witness"].(string)
	return key, name, e.Event == EventWitnessAdded, key != ""
}

// IsCheckpoint reports whether a line is the record of a checkpoint over all records before it.
func IsCheckpoint(line []byte) bool {
	p, ok := placeOf(line[:max(0, len(line)-tailLen)])
	return ok && isCheckpoint(p.members) && !beginsWith(p.members, `","actionType":"`+ActionCheckpoint+`","event":"`+EventRetired+`"`)
}

// IsConfiguration reports whether a line is the record of a configuration that is put in force, by
// the fixed beginning of a record.
func IsConfiguration(line []byte) bool {
	p, ok := placeOf(line[:max(0, len(line)-tailLen)])
	return ok && beginsWith(p.members, `","actionType":"`+ActionConfigChange+`","event":"loaded"`)
}

// beginsWith checks the part of a record after its id.
func beginsWith(members []byte, after string) bool {
	rest := members[len(idMember):]
	end := bytes.IndexByte(rest, '"')
	return end >= 0 && bytes.HasPrefix(rest[end:], []byte(after))
}

// started notes how the daemon that started here signs.
func (v *Verifier) started(line []byte) {
	if e, err := Parse(line); err == nil {
		v.prompt = v.prompt || signsPromptly(&e)
	}
}

// signsPromptly reports whether a record states a limit of at most [SignWithin].
func signsPromptly(e *Entry) bool {
	within, ok := e.Details[SignsWithin].(float64)
	return ok && within > 0 && within <= SignWithin.Seconds()
}

// inTime checks whether the records before the next one were signed in time. A forger without the
// key cannot sign, so a forgery over months has no checkpoint.
func (v *Verifier) inTime(next Head, checkpoint bool) error {
	late := v.open.Seq > 0 && next.Time.Sub(v.open.Time) > SignedLate
	stretch := Stretch{First: v.open.Seq, Last: v.head.Seq, From: v.open.Time, To: next.Time}
	switch {
	case checkpoint && late:
		v.report.Late++
		v.report.LastLate = stretch
	case late && v.prompt:
		return &Fault{Seq: next.Seq, Problem: fmt.Sprintf("it is of %s, and no checkpoint is of record %d of %s: written by somebody who has not the key, or checkpoints were removed",
			next.Time.Format(time.RFC3339), v.open.Seq, v.open.Time.Format(time.RFC3339))}
	case late:
		if v.report.Gaps++; v.report.Gaps == 1 {
			v.report.FirstGap = stretch
		}
		v.open = next
	}
	switch {
	case checkpoint:
		v.open = Head{}
	case v.open.Seq == 0:
		v.open = next
	}
	return nil
}

const unknownKey = "its checkpoint is signed by a key that nothing in the log hands over to"

// checkpoint checks a record that holds a signed note. It reports whether that covers all the
// records before.
func (v *Verifier) checkpoint(line []byte, seq uint64) (all bool, err error) {
	fault := func(format string, args ...any) (bool, error) {
		return false, &Fault{Seq: seq, Problem: fmt.Sprintf(format, args...)}
	}
	e, err := Parse(line)
	if err != nil {
		return fault("%v", err)
	}
	signed, _ := e.Details["note"].(string)
	c, err := OpenCheckpoint(signed, v.keys...)
	known := err == nil
	if !known && !errors.Is(err, ErrUnsigned) {
		return fault("%v", err)
	}
	v.report.Origin = cmp.Or(v.report.Origin, c.Origin)
	v.report.Checkpoints++
	switch {
	case c.Origin != v.report.Origin:
		return fault("its checkpoint is of the log %s, and this one is %s", c.Origin, v.report.Origin)
	case e.Event == EventRetired && c.Size < seq-1:
		// It states the beginning of the log, and is compared if that is still available.
	case c.Size != seq-1:
		return fault("its checkpoint is of %d records, and stands after %d", c.Size, seq-1)
	case c.Root != v.frontier.Root():
		return fault("the records before it are not those its checkpoint was signed for: the log was rewritten")
	}
	all = e.Event != EventRetired
	v.prompt = v.prompt || signsPromptly(&e)
	if !all && signed == v.stone {
		v.vouched = seq
	}
	if !known {
		if v.report.Signed > v.report.Retired && len(v.keys) > 0 {
			return false, &Fault{Seq: seq, Problem: unknownKey}
		}
		v.unknown = cmp.Or(v.unknown, seq)
		return all, nil
	}
	if !all {
		return false, nil
	}
	v.report.Signed, v.report.UnsignedSince, v.unknown = c.Size, time.Time{}, 0
	if e.Event != EventRotated {
		return true, nil
	}
	if len(c.Extension) != 1 {
		return fault("it does not name the next key")
	}
	text, ok := strings.CutPrefix(c.Extension[0], keyMember)
	next, err := note.NewVerifier(text)
	if !ok || err != nil || next.Name() != c.Origin {
		return fault("the next key it names is not one of this log")
	}
	v.keys = []note.Verifier{next}
	if !slices.ContainsFunc(v.handed, func(k note.Verifier) bool { return k.KeyHash() == next.KeyHash() }) {
		v.handed = append(v.handed, next)
	}
	return true, nil
}

// meet compares the checkpoints from outside that cover the records read so far. One that no known
// key signed is judged at the end: anybody may have made it, and it must not hide what others
// prove.
func (v *Verifier) meet() error {
	for ; v.met < len(v.held) && v.held[v.met].Size == v.head.Seq; v.met++ {
		c := &v.held[v.met]
		c.fits = c.Origin == v.origin(c) && c.Root == v.frontier.Root()
		switch {
		case c.fits:
		case v.knows(c):
			return v.misfit(c.Size, c, fmt.Sprintf("the first %d records are not those of a checkpoint that is held outside: the log was rewritten", c.Size))
		default:
			v.strays(c)
		}
	}
	return nil
}

// knows reports whether a checkpoint from outside can accuse the log: a known key signed it,
// or no key is known.
func (v *Verifier) knows(c *heldCheckpoint) bool { return len(v.handed) == 0 || v.proven(c) }

// proven reports whether a known key signed a checkpoint from outside.
func (v *Verifier) proven(c *heldCheckpoint) bool {
	_, err := OpenCheckpoint(c.signed, v.handed...)
	return err == nil
}

// origin returns the log's name, or the checkpoint's if the log does not state it.
func (v *Verifier) origin(c *heldCheckpoint) string { return cmp.Or(v.report.Origin, c.Origin) }

// misfit returns the fault that a checkpoint from outside shows.
func (v *Verifier) misfit(seq uint64, c *heldCheckpoint, problem string) *Fault {
	if c.Origin != v.origin(c) {
		problem = fmt.Sprintf("a checkpoint held outside is of the log %s, and this one is %s", c.Origin, v.report.Origin)
	}
	return &Fault{Seq: seq, Problem: problem}
}

// strays remembers a checkpoint that does not fit and that no known key signed.
func (v *Verifier) strays(c *heldCheckpoint) {
	if v.stray != nil {
		return
	}
	problem := fmt.Sprintf("a checkpoint of %d records that is held outside does not fit, and proves nothing: %v; either it was made up, or a key is missing here", c.Size, ErrUnsigned)
	if c.Origin != v.origin(c) {
		problem = fmt.Sprintf("a checkpoint held outside proves nothing: it is of the log %s, and this one is %s", c.Origin, v.report.Origin)
	}
	v.stray = &Fault{Problem: problem}
}

// Finish returns the report of the whole log. If the proof covers more than the log holds, that is
// a [*Fault] of the first missing record.
func (v *Verifier) Finish() (Report, error) {
	v.report.Head = v.head
	if f := v.missing(); f != nil {
		return v.report, f
	}
	v.report.Held, v.report.Unproven = 0, 0
	for _, c := range v.HeldOutside() {
		switch {
		case c.Proven:
			v.report.Held++
			v.report.Outside, v.report.OutsideSince = c.Size, c.After
		case c.Size > v.report.Signed && len(v.handed) > 0:
			return v.report, &Fault{Problem: fmt.Sprintf("a checkpoint of %d records that is held outside proves nothing: no known key signed it; either it was made up, or a key is missing here", c.Size)}
		default:
			v.report.Unproven++
		}
	}
	if v.report.Signed == v.head.Seq {
		v.report.UnsignedSince = time.Time{}
	}
	if v.stray != nil {
		return v.report, v.stray
	}
	return v.report, nil
}

// missing returns the fault that shows at a log's end.
func (v *Verifier) missing() *Fault {
	for i := len(v.held) - 1; i >= v.met; i-- {
		last := &v.held[i]
		if v.knows(last) {
			return v.misfit(v.head.Seq+1, last,
				fmt.Sprintf("the log ends before it, and a checkpoint of %d records is held outside: its tail was cut, or it is an older copy", last.Size))
		}
		v.strays(last)
	}
	if len(v.keys) == 0 {
		return nil
	}
	fault := func(seq uint64, format string, args ...any) *Fault {
		return &Fault{Seq: seq, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.head.Seq == 0:
		return fault(1, "the log is empty, and one that has a key begins with a signed checkpoint")
	case v.report.Signed == 0:
		return fault(v.head.Seq+1, "no checkpoint in the log is signed by the key of %s: it was written by somebody who has not the key, or the key is another one's", v.report.Origin)
	case v.unknown > 0:
		return fault(v.unknown, unknownKey)
	case v.stone != "" && (v.vouched == 0 || v.vouched > v.report.Signed):
		return fault(1, "the first %d records are gone, and their tombstone is signed by no known key: nothing that is signed says that they were retired", v.report.Retired)
	}
	return nil
}

// Root returns the root of the tree over the good records.
func (v *Verifier) Root() Hash { return v.frontier.Root() }

// Head returns the last good record.
func (v *Verifier) Head() Head { return v.head }

// readBuffer is the number of bytes that are read from a file at once.
const readBuffer = 128 << 10

// ReadFrom checks every line of r, in constant memory. A last line without its newline is a fault:
// it was torn or cut.
func (v *Verifier) ReadFrom(r io.Reader) (int64, error) {
	buffered := bufio.NewReaderSize(r, readBuffer)
	var read int64
	var long []byte
	for {
		line, err := buffered.ReadSlice('\n')
		read += int64(len(line))
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > 2*MaxBodyBytes {
				return read, &Fault{Seq: v.head.Seq + 1, Problem: fmt.Sprintf("longer than %d bytes", 2*MaxBodyBytes)}
			}
			continue
		}
		if long != nil {
			line, long = append(long, line...), nil
		}
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return read, nil
		case errors.Is(err, io.EOF):
			return read, &Fault{Seq: v.head.Seq + 1, Problem: "cut short: no newline at the end"}
		case err != nil:
			return read, fmt.Errorf("cannot read the audit log: %w", err)
		}
		if err := v.Add(line[:len(line)-1]); err != nil {
			return read, err
		}
	}
}
