package audit

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// A proof and a receipt are checked with any key of the log, since they include the checkpoints
// that hand over to the next key. A checkpoint that no known key signed leads to no key.
func TestProofsOverRotations(t *testing.T) {
	first, second, third, forger := newKey(t, logName), newKey(t, logName), newKey(t, logName), newKey(t, logName)
	l := &signedLog{tb: t}
	l.records(3)
	l.sign(first)
	l.rotate(first, second)
	l.records(2)
	l.rotate(second, third)
	l.records(1)
	l.sign(third)
	var handOvers []string
	for _, line := range l.lines {
		if signed, ok := HandOverOf(line); ok {
			handOvers = append(handOvers, signed)
		}
	}
	newest := l.notes[len(l.notes)-1]
	before, _ := OpenCheckpoint(l.notes[0])
	next, _ := OpenCheckpoint(newest)
	var tree Tree
	none := func(int, uint64) ([]Hash, error) { return nil, errors.New("there is no tile") }
	for _, line := range l.lines[:next.Size] {
		if err := tree.Append(Leaf(line), func(Tile) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	path, err := tree.ProveExtension(before.Size, next.Size, none)
	if err != nil {
		t.Fatal(err)
	}
	inclusion, err := tree.Prove(2, next.Size, none)
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := func() (string, error) {
		c := HandOver(before, forger.text)
		return c.Sign(forger.signer)
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		key       key
		handOvers []string
		good      bool
	}{
		{"the first key", first, handOvers, true}, {"the second key", second, handOvers, true}, {"the third key", third, handOvers, true},
		{"the third key, alone", third, nil, true}, {"the first key, alone", first, nil, false}, {"the second key, alone", second, nil, false},
		{"the first key, and one hand-over is missing", first, handOvers[1:], false}, {"another key", forger, handOvers, false},
		{"another key that hands over to itself", first, []string{stolen}, false},
	} {
		c := Consistency{Old: before.Size, Path: path, Note: newest, HandOvers: test.handOvers}
		r := Receipt{Seq: 2, Path: inclusion, Note: newest, HandOvers: test.handOvers}
		text, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var c2 Consistency
		if err := c2.UnmarshalText(text); err != nil || !reflect.DeepEqual(c, c2) {
			t.Fatalf("%s: read back %+v, %v", test.name, c2, err)
		}
		if text, err = r.MarshalText(); err != nil {
			t.Fatal(err)
		}
		var r2 Receipt
		if err := r2.UnmarshalText(text); err != nil || !reflect.DeepEqual(r, r2) {
			t.Fatalf("%s: read back %+v, %v", test.name, r2, err)
		}
		if _, err := c2.Check(&before, test.key.public); (err == nil) != test.good {
			t.Errorf("%s: the proof says %v", test.name, err)
		}
		if _, err := r2.Check(l.lines[1], []note.Verifier{test.key.public}...); (err == nil) != test.good {
			t.Errorf("%s: the receipt says %v", test.name, err)
		}
	}
	var c Consistency
	good, _ := (&Consistency{Old: before.Size, Path: path, Note: newest, HandOvers: handOvers}).MarshalText()
	for name, tail := range map[string]string{"a plain checkpoint": "\n" + l.notes[0], "a blank line": "\n\n", "half a note": "\nx\n\n", "words": "\nwords\n"} {
		if err := c.UnmarshalText(append(slices.Clip(good), tail...)); err == nil {
			t.Errorf("%s behind the proof is taken", name)
		}
	}
}
