package audit

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const logName = "ocipd/018f0000-0000-7000-8000-00000000abcd"

type key struct {
	signer note.Signer
	public note.Verifier
	text   string
}

func newKey(tb testing.TB, name string) key {
	tb.Helper()
	secret, public, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		tb.Fatal(err)
	}
	k := key{text: public}
	if k.signer, err = note.NewSigner(secret); err != nil {
		tb.Fatal(err)
	}
	if k.public, err = note.NewVerifier(public); err != nil {
		tb.Fatal(err)
	}
	return k
}

// signedLog writes a log as a store does.
type signedLog struct {
	tb     testing.TB
	head   Head
	front  Frontier
	fronts []Frontier
	lines  [][]byte
	// notes are the plain checkpoints.
	notes []string
}

func (l *signedLog) add(r *Record) {
	l.tb.Helper()
	body, err := Encode(r)
	if err != nil {
		l.tb.Fatal(err)
	}
	var line []byte
	line, l.head = l.head.Seal(nil, start.Add(time.Duration(len(l.lines))*time.Second), body)
	l.lines = append(l.lines, line)
	l.front.Append(Leaf(line))
	l.fronts = append(l.fronts, Frontier{l.front.Size, slices.Clone(l.front.Hashes)})
}

func (l *signedLog) records(n int) {
	for range n {
		l.add(record(len(l.lines) + 1))
	}
}

func (l *signedLog) state(event, signed string) {
	l.add(&Record{ID: fmt.Sprintf("018f0000-0000-7000-8000-%012d", len(l.lines)+1), ActionType: ActionCheckpoint, Event: event, Details: map[string]any{"note": signed}})
}

func (l *signedLog) checkpoint() Checkpoint {
	return Checkpoint{Origin: logName, Size: l.head.Seq, Root: l.front.Root()}
}

func (l *signedLog) sign(k key) {
	l.tb.Helper()
	c := l.checkpoint()
	signed, err := c.Sign(k.signer)
	if err != nil {
		l.tb.Fatal(err)
	}
	l.notes = append(l.notes, signed)
	l.state(EventSigned, signed)
}

func (l *signedLog) rotate(from, to key) {
	l.tb.Helper()
	c := HandOver(l.checkpoint(), to.text)
	signed, err := c.Sign(from.signer, to.signer)
	if err != nil {
		l.tb.Fatal(err)
	}
	l.state(EventRotated, signed)
}

func (l *signedLog) bytes() []byte { return join(l.lines) }

// check verifies a log with a proof.
func check(log []byte, p Proof) (Report, error) {
	v, err := NewVerifier(p)
	if err != nil {
		return Report{}, err
	}
	if _, err := v.ReadFrom(bytes.NewReader(log)); err != nil {
		return Report{Head: v.Head()}, err
	}
	return v.Finish()
}

func faultOf(tb testing.TB, err error) *Fault {
	tb.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		tb.Fatalf("got %v, want a fault", err)
	}
	return f
}

// aLog has checkpoints after 3, 7 and 11 records, and a tail of two.
func aLog(tb testing.TB, k key) *signedLog {
	l := &signedLog{tb: tb}
	for range 3 {
		l.records(3)
		l.sign(k)
	}
	l.records(2)
	return l
}

func TestSignedLog(t *testing.T) {
	k := newKey(t, logName)
	l := aLog(t, k)
	r, err := check(l.bytes(), Proof{Keys: []note.Verifier{k.public}, Held: l.notes})
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Head: l.head, Origin: logName, Checkpoints: 3, Held: 3, Outside: 11, OutsideSince: start.Add(11 * time.Second), Signed: 11, UnsignedSince: start.Add(11 * time.Second)}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if r, err = check(l.bytes(), Proof{}); err != nil || r.Signed != 0 || r.Checkpoints != 3 || r.Origin != logName {
		t.Errorf("without a key: %+v, %v", r, err)
	}
}

// TestEveryByte changes every byte of a log in every line, cuts it at every offset, and drops,
// doubles, swaps and inserts every record. The lines before the first bad one are verified once.
func TestEveryByte(t *testing.T) {
	k := newKey(t, logName)
	l := aLog(t, k)
	before := make([]Verifier, 0, len(l.lines)+1)
	v, err := NewVerifier(Proof{Keys: []note.Verifier{k.public}, Held: l.notes})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		at := *v
		at.frontier.Hashes = slices.Clone(v.frontier.Hashes)
		at.leaves = nil
		before = append(before, at)
		if i == len(l.lines) {
			break
		}
		if err := v.Add(l.lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(from int, rest []byte, what string, at int) {
		t.Helper()
		v := before[from]
		v.frontier.Hashes = slices.Clone(v.frontier.Hashes)
		var err error
		for line := range bytes.Lines(rest) {
			whole, found := bytes.CutSuffix(line, []byte("\n"))
			if err = v.Add(whole); err != nil || !found {
				return
			}
		}
		_, err = v.Finish()
		if err == nil {
			t.Fatalf("%s %d: good up to %d", what, at, v.head.Seq)
		}
	}
	signed := 11
	for i, line := range l.lines {
		rest := join(l.lines[i:])
		for at := range len(line) + 1 {
			changed := bytes.Clone(rest)
			changed[at] ^= 1
			refused(i, changed, fmt.Sprintf("line %d, changed byte", i), at)
			// The tail after the last held checkpoint can be cut at a line's end, and nothing shows
			// it.
			if i < signed || at > 0 {
				refused(i, rest[:at], fmt.Sprintf("line %d, cut at", i), at)
			}
		}
		if i < len(l.lines)-1 {
			refused(i, join(l.lines[i+1:]), "dropped", i)
		}
		refused(i, join(slices.Insert(slices.Clone(l.lines[i:]), 0, line)), "doubled", i)
		for j := i + 1; j < len(l.lines); j++ {
			swapped := slices.Clone(l.lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			refused(i, join(swapped[i:]), "swapped with another", j)
			// A run of lines removed, as when a segment is gone.
			refused(i, join(l.lines[j:]), "removed up to", j)
		}
	}
}

// TestRewritten tries what an attacker can do who can write the log, and knows how to chain it, but
// does not have the key.
func TestRewritten(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	honest := aLog(t, k)
	keys := []note.Verifier{k.public}
	rewrite := func(change func(l *signedLog)) []byte {
		l := &signedLog{tb: t}
		change(l)
		return l.bytes()
	}
	forged := func(n int) *Record { r := record(n); r.PolicyResult = "deny"; return r }
	tests := []struct {
		name    string
		log     []byte
		proof   Proof
		seq     uint64
		problem string
	}{
		{"all of it, no checkpoints", rewrite(func(l *signedLog) { l.add(forged(1)); l.records(9) }), Proof{Keys: keys}, 11, "no checkpoint in the log is signed"},
		{"all of it, signed by another key", rewrite(func(l *signedLog) { l.add(forged(1)); l.records(2); l.sign(other); l.records(2) }), Proof{Keys: keys}, 7, "no checkpoint in the log is signed"},
		{"the old checkpoints over other records", rewrite(func(l *signedLog) { l.add(forged(1)); l.records(2); l.state(EventSigned, honest.notes[0]) }), Proof{Keys: keys}, 4, "the log was rewritten"},
		{"from the middle on, by another key", rewrite(func(l *signedLog) { l.records(3); l.sign(k); l.records(2); l.sign(other) }), Proof{Keys: keys}, 7, "nothing in the log hands over to"},
		{"from the middle on, without checkpoints", rewrite(func(l *signedLog) { l.records(3); l.sign(k); l.records(maxUnsigned + 10) }), Proof{Keys: keys}, 4 + maxUnsigned, "without a signed checkpoint"},
		{"a checkpoint moved back", rewrite(func(l *signedLog) { l.records(3); l.sign(k); l.state(EventSigned, honest.notes[0]) }), Proof{Keys: keys}, 5, "is of 3 records, and stands after 4"},
		{"an older copy", join(honest.lines[:8]), Proof{Keys: keys, Held: honest.notes}, 9, "a checkpoint of 11 records is held outside"},
		{"emptied", nil, Proof{Keys: keys, Held: honest.notes[:1]}, 1, "a checkpoint of 3 records is held outside"},
		{"a tail rewritten that a checkpoint is of", rewrite(func(l *signedLog) { l.records(3); l.sign(k); l.add(forged(5)); l.records(6) }), Proof{Keys: keys, Held: honest.notes}, 7, "are not those of a checkpoint that is held outside"},
		{"without a key, held against checkpoints", rewrite(func(l *signedLog) { l.add(forged(1)); l.records(9) }), Proof{Held: honest.notes}, 3, "are not those of a checkpoint that is held outside"},
		{"a hand-over by another key", rewrite(func(l *signedLog) { l.records(3); l.sign(k); l.rotate(other, other) }), Proof{Keys: keys}, 5, "nothing in the log hands over to"},
		{"another log", rewrite(func(l *signedLog) {
			l.records(1)
			l.state(EventSigned, strings.Replace(honest.notes[0], logName, "ocipd/x", 2))
		}), Proof{Keys: keys}, 2, "is of the log ocipd/x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := check(tt.log, tt.proof)
			if f := faultOf(t, err); f.Seq != tt.seq || !strings.Contains(f.Problem, tt.problem) {
				t.Errorf("got %v, want record %d: %s", err, tt.seq, tt.problem)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	first, second, third := newKey(t, logName), newKey(t, logName), newKey(t, logName)
	l := &signedLog{tb: t}
	l.records(3)
	l.sign(first)
	l.rotate(first, second)
	l.records(2)
	l.sign(second)
	l.rotate(second, third)
	l.sign(third)
	for name, k := range map[string]key{"first": first, "second": second, "third": third} {
		r, err := check(l.bytes(), Proof{Keys: []note.Verifier{k.public}, Held: l.notes[2:]})
		if err != nil || r.Signed != l.head.Seq-1 {
			t.Errorf("with the %s key: %+v, %v", name, r, err)
		}
	}
	// A held checkpoint from an old key's time fits, regardless of the current signer, and counts
	// for a verifier that knows that key. The old key cannot end the log, whoever has it.
	for _, test := range []struct {
		former         []note.Verifier
		held, unproven int
	}{{nil, 1, 2}, {[]note.Verifier{second.public}, 2, 1}, {[]note.Verifier{first.public, second.public}, 3, 0}} {
		r, err := check(l.bytes(), Proof{Keys: []note.Verifier{third.public}, Former: test.former, Held: l.notes})
		if err != nil || r.Held != test.held || r.Unproven != test.unproven || r.Outside != 9 {
			t.Errorf("held from before the rotation, with %d former keys: %+v, %v", len(test.former), r, err)
		}
	}
	stolen := &signedLog{tb: t}
	stolen.add(record(99))
	stolen.records(4)
	stolen.sign(first)
	_, err := check(stolen.bytes(), Proof{Keys: []note.Verifier{third.public}, Former: []note.Verifier{first.public, second.public}})
	if f := faultOf(t, err); !strings.Contains(f.Problem, "no checkpoint in the log is signed") {
		t.Error(err)
	}
	_, err = check(stolen.bytes(), Proof{Keys: []note.Verifier{third.public}, Former: []note.Verifier{first.public, second.public}, Held: l.notes})
	if f := faultOf(t, err); !strings.Contains(f.Problem, "the log was rewritten") {
		t.Error(err)
	}
	// Of the held ones, only the third key's checkpoint proves anything here; it does, whatever
	// comes before it.
	_, err = check(stolen.bytes(), Proof{Keys: []note.Verifier{third.public}, Held: l.notes})
	if f := faultOf(t, err); f.Seq != stolen.head.Seq+1 || !strings.Contains(f.Problem, "a checkpoint of 9 records is held outside") {
		t.Error(err)
	}
	// Signatures that the old key makes after its replacement do not count.
	l.records(1)
	l.sign(first)
	_, err = check(l.bytes(), Proof{Keys: []note.Verifier{first.public}})
	if f := faultOf(t, err); !strings.Contains(f.Problem, "nothing in the log hands over to") {
		t.Error(err)
	}
}

func TestTombstone(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	l := aLog(t, k)
	for upTo := uint64(1); upTo < l.head.Seq; upTo++ {
		head := headOf(t, l.lines[upTo-1])
		tomb, err := SignTombstone(logName, head, l.fronts[upTo-1], k.signer)
		if err != nil {
			t.Fatal(err)
		}
		read, err := OpenTombstone(tomb.Signed, k.public)
		if err != nil || read.Head != head || !slices.Equal(read.Frontier.Hashes, tomb.Frontier.Hashes) {
			t.Fatalf("read as %+v, %v", read, err)
		}
		if _, err := OpenTombstone(tomb.Signed, other.public); !errors.Is(err, ErrUnsigned) {
			t.Errorf("with another key: %v", err)
		}
		rest := join(l.lines[upTo:])
		r, err := check(rest, Proof{Keys: []note.Verifier{k.public}, Tombstone: &read, Held: l.notes})
		if err != nil || r.Retired != upTo || r.Head != l.head || r.Signed < max(upTo, 11) || r.Held+r.Passed != 3 {
			t.Fatalf("after %d: %+v, %v", upTo, r, err)
		}
		if _, err := check(rest, Proof{Keys: []note.Verifier{k.public}}); err == nil {
			t.Errorf("without the tombstone of %d records it verifies", upTo)
		}
		if upTo > 1 {
			_, err := check(join(l.lines[upTo-1:]), Proof{Keys: []note.Verifier{k.public}, Tombstone: &read})
			if faultOf(t, err).Seq != upTo+1 {
				t.Errorf("one record too many: %v", err)
			}
		}
		_, err = check(rest, Proof{Keys: []note.Verifier{other.public}, Tombstone: &read})
		if err == nil {
			t.Error("a tombstone of another key is believed")
		}
		for i := range tomb.Signed {
			changed := []byte(tomb.Signed)
			changed[i] ^= 1
			if _, err := OpenTombstone(string(changed), k.public); err == nil {
				t.Fatalf("byte %d of a tombstone changed, and it is believed", i)
			}
		}
	}
}

// TestTombstoneOfNoKey removes the beginning of a log as an attacker does who has everything but
// the key: the tombstone is right in all but its signature.
func TestTombstoneOfNoKey(t *testing.T) {
	first, second, other := newKey(t, logName), newKey(t, logName), newKey(t, logName)
	entomb := func(l *signedLog, upTo uint64, k key) *Tombstone {
		t.Helper()
		tomb, err := SignTombstone(k.public.Name(), headOf(t, l.lines[upTo-1]), l.fronts[upTo-1], k.signer)
		if err != nil {
			t.Fatal(err)
		}
		return &tomb
	}
	l := aLog(t, first)
	tomb := entomb(l, 4, other)
	_, err := check(join(l.lines[4:]), Proof{Keys: []note.Verifier{first.public}, Tombstone: tomb, Held: l.notes})
	if f := faultOf(t, err); f.Seq != 1 || !strings.Contains(f.Problem, "nothing that is signed says that they were retired") {
		t.Error(err)
	}
	// A statement in the unsigned part is not enough.
	l.state(EventRetired, tomb.Signed)
	_, err = check(join(l.lines[4:]), Proof{Keys: []note.Verifier{first.public}, Tombstone: tomb})
	if f := faultOf(t, err); f.Seq != l.head.Seq || !strings.Contains(f.Problem, "nothing in the log hands over to") {
		t.Error(err)
	}
	// The old key's retirement counts, since the new one signed the record of it.
	l = aLog(t, first)
	genuine := entomb(l, 4, first)
	l.state(EventRetired, genuine.Signed)
	l.rotate(first, second)
	l.sign(second)
	r, err := check(join(l.lines[4:]), Proof{Keys: []note.Verifier{second.public}, Tombstone: genuine, Held: l.notes})
	if err != nil || r.Retired != 4 || r.Signed != l.head.Seq-1 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = check(join(l.lines[4:]), Proof{Keys: []note.Verifier{second.public}, Tombstone: entomb(l, 4, other)})
	if f := faultOf(t, err); f.Seq != 1 {
		t.Error(err)
	}
	// A checkpoint without a known signature after a tombstone, with nothing signed after it.
	cut := &signedLog{tb: t}
	cut.records(5)
	tomb = entomb(cut, 3, first)
	cut.sign(other)
	_, err = check(join(cut.lines[3:]), Proof{Keys: []note.Verifier{first.public}, Tombstone: tomb})
	if f := faultOf(t, err); f.Seq != 6 || !strings.Contains(f.Problem, "nothing in the log hands over to") {
		t.Error(err)
	}
	// A wrong signature of the key.
	broken := *entomb(l, 4, first)
	at := strings.LastIndexByte(broken.Signed, ' ') + 20
	broken.Signed = broken.Signed[:at] + string('A'+(broken.Signed[at]-'A'+1)%2) + broken.Signed[at+1:]
	if _, err := NewVerifier(Proof{Keys: []note.Verifier{first.public}, Tombstone: &broken}); faultOf(t, err).Seq != 1 {
		t.Error(err)
	}
	elsewhere, foreign := &signedLog{tb: t}, newKey(t, "ocipd/elsewhere")
	elsewhere.records(5)
	if _, err := NewVerifier(Proof{Keys: []note.Verifier{first.public}, Tombstone: entomb(elsewhere, 3, foreign)}); !strings.Contains(faultOf(t, err).Problem, "is of the log ocipd/elsewhere") {
		t.Error(err)
	}
}

// TestHeldOfNoKey has an attacker make up checkpoints outside: they must neither vouch for a log
// nor hide what others prove.
func TestHeldOfNoKey(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	l := aLog(t, k)
	keys := []note.Verifier{k.public}
	made := func(size uint64, root Hash) string {
		t.Helper()
		c := Checkpoint{Origin: logName, Size: size, Root: root}
		signed, err := c.Sign(other.signer)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	short := join(l.lines[:9])
	fits, wrong, beyond := made(9, l.fronts[8].Root()), made(5, Hash{1}), made(1<<40, Hash{2})
	// An unproven checkpoint below the signed records is no fault, and does not count: anybody who
	// has the log can make it. The same holds without a key.
	for name, known := range map[string][]note.Verifier{"one that fits": keys, "one that fits, and no key": nil} {
		if r, err := check(l.bytes(), Proof{Keys: known, Held: []string{fits}}); err != nil || r.Held != 0 || r.Unproven != 1 || r.Outside != 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if r, err := check(l.bytes(), Proof{Keys: keys, Held: []string{fits, l.notes[0]}}); err != nil || r.Held != 1 || r.Unproven != 1 || r.Outside != 3 || !r.OutsideSince.Equal(start.Add(3*time.Second)) {
		t.Errorf("one that fits, and a smaller genuine one: %+v, %v", r, err)
	}
	for _, held := range [][]string{{fits}, {fits, l.notes[0]}, {wrong}, {beyond}, {wrong, beyond, l.notes[1]}} {
		_, err := check(short, Proof{Keys: keys, Held: held})
		if f := faultOf(t, err); f.Seq != 0 || !strings.Contains(f.Problem, "proves nothing") {
			t.Errorf("%d that nobody signed: %v", len(held), err)
		}
	}
	_, err := check(short, Proof{Keys: keys, Held: []string{wrong, l.notes[2], beyond}})
	if f := faultOf(t, err); f.Seq != 10 || !strings.Contains(f.Problem, "a checkpoint of 11 records is held outside") {
		t.Errorf("beside a genuine one: %v", err)
	}
	// The signing key may be one that the missing part handed over to.
	next := newKey(t, logName)
	l.rotate(k, next)
	l.sign(next)
	_, err = check(join(l.lines[:14]), Proof{Keys: keys, Held: l.notes})
	if f := faultOf(t, err); !strings.Contains(f.Problem, "a key is missing here") {
		t.Errorf("the hand-over was cut: %v", err)
	}
	if _, err := check(nil, Proof{Keys: keys}); !strings.Contains(faultOf(t, err).Problem, "the log is empty") {
		t.Errorf("emptied: %v", err)
	}
}

func TestReceipt(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	l := aLog(t, k)
	var tree Tree
	tiles := make(kept)
	for _, line := range l.lines {
		if err := tree.Append(Leaf(line), tiles.put); err != nil {
			t.Fatal(err)
		}
	}
	for seq := uint64(1); seq <= 11; seq++ {
		path, err := tree.Prove(seq, 11, tiles.read)
		if err != nil {
			t.Fatal(err)
		}
		made := Receipt{Seq: seq, Path: path, Note: l.notes[2]}
		text, err := made.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var r Receipt
		if err := r.UnmarshalText(text); err != nil || r.Seq != seq || !slices.Equal(r.Path, path) || r.Note != made.Note {
			t.Fatalf("read as %+v, %v", r, err)
		}
		line := l.lines[seq-1]
		if c, err := r.Check(line, k.public); err != nil || c.Size != 11 {
			t.Errorf("record %d: %+v, %v", seq, c, err)
		}
		if _, err := r.Check(line, other.public); !errors.Is(err, ErrUnsigned) {
			t.Errorf("with another key: %v", err)
		}
		if _, err := r.Check(l.lines[seq], k.public); err == nil {
			t.Errorf("the receipt of %d is good for the next record", seq)
		}
		for i := range text {
			changed := bytes.Clone(text)
			changed[i] ^= 1
			var r Receipt
			if r.UnmarshalText(changed) == nil {
				if _, err := r.Check(line, k.public); err == nil {
					t.Fatalf("byte %d of a receipt changed, and it proves record %d", i, r.Seq)
				}
			}
		}
	}
}

func TestAnnotation(t *testing.T) {
	k := newKey(t, logName)
	l := aLog(t, k)
	a, err := Annotate(l.notes[1])
	if err != nil {
		t.Fatal(err)
	}
	if signed, err := a.Note(); err != nil || signed != l.notes[1] {
		t.Errorf("from %+v came %q, %v", a, signed, err)
	}
	next := HandOver(l.checkpoint(), k.text)
	more, err := next.Sign(k.signer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Annotate(more); err == nil {
		t.Error("a checkpoint that says more was cut down")
	}
	for _, bad := range []Annotation{{}, {Origin: "a\nb", Size: 1, Root: a.Root, Signature: a.Signature}, {Origin: strings.Repeat("a", 200), Root: a.Root, Signature: a.Signature}, {Origin: a.Origin, Root: "x", Signature: a.Signature}, {Origin: a.Origin, Root: a.Root, Signature: "x\n"}} {
		if signed, err := bad.Note(); err == nil {
			t.Errorf("from %+v came %q", bad, signed)
		}
	}
}

func FuzzOpenCheckpoint(f *testing.F) {
	k := newKey(f, logName)
	l := aLog(f, k)
	tomb, err := SignTombstone(logName, l.head, l.fronts[len(l.fronts)-1], k.signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(l.notes[0])
	f.Add(tomb.Signed)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := OpenCheckpoint(text)
		if err != nil && !errors.Is(err, ErrUnsigned) {
			return
		}
		if body, _, _ := strings.Cut(text, "\n\n"); body+"\n" != c.Text() {
			t.Errorf("%q read as a checkpoint that is written %q", text, c.Text())
		}
		if _, err := OpenCheckpoint(text, k.public); err == nil && text != l.notes[0] && text != tomb.Signed {
			if body, _, _ := strings.Cut(text, "\n\n"); !strings.HasPrefix(l.notes[0], body) && !strings.HasPrefix(tomb.Signed, body) {
				t.Errorf("%q passes for signed", text)
			}
		}
		if tomb, err := OpenTombstone(text); err == nil || errors.Is(err, ErrUnsigned) {
			if tomb.Frontier.Root() != c.Root {
				t.Errorf("%q: a frontier of another root", text)
			}
		}
	})
}

func FuzzReceipt(f *testing.F) {
	k := newKey(f, logName)
	l := aLog(f, k)
	r := Receipt{Seq: 3, Path: []Hash{{1}, {2}}, Note: l.notes[0]}
	text, err := r.MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Receipt
		if r.UnmarshalText(text) != nil {
			return
		}
		again, err := r.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var same Receipt
		if err := same.UnmarshalText(again); err != nil || same.Seq != r.Seq || !slices.Equal(same.Path, r.Path) || same.Note != r.Note {
			t.Errorf("%q came back as %+v, %v", text, same, err)
		}
		if _, err := r.Check([]byte("a line"), k.public); err == nil {
			t.Errorf("%q proves a line that is in no log", text)
		}
	})
}

func BenchmarkVerifySigned(b *testing.B) {
	k := newKey(b, logName)
	l := &signedLog{tb: b}
	for range 8 {
		l.records(CheckpointEvery)
		l.sign(k)
	}
	log := l.bytes()
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := check(log, Proof{Keys: []note.Verifier{k.public}}); err != nil {
			b.Fatal(err)
		}
	}
}
