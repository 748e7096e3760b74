package audit

import (
	"errors"
	"reflect"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// Every prefix of a log is shown to be its beginning, and nothing else is.
func TestConsistency(t *testing.T) {
	k, other := newKey(t, logName), newKey(t, logName)
	const most = 70
	var tree Tree
	var roots []Hash
	var front Frontier
	none := func(int, uint64) ([]Hash, error) { return nil, errors.New("there is no tile") }
	for i := range most {
		roots = append(roots, front.Root())
		leaf := Leaf([]byte{byte(i)})
		front.Append(leaf)
		if err := tree.Append(leaf, func(Tile) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	roots = append(roots, front.Root())
	point := func(size uint64, root Hash, signer note.Signer) (Checkpoint, string) {
		c := Checkpoint{Origin: logName, Size: size, Root: root}
		signed, err := c.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		return c, signed
	}
	for size := range uint64(most + 1) {
		_, signed := point(size, roots[size], k.signer)
		for old := range size + 1 {
			path, err := tree.ProveExtension(old, size, none)
			if err != nil {
				t.Fatal(err)
			}
			c := Consistency{Old: old, Path: path, Note: signed}
			before, _ := point(old, roots[old], k.signer)
			if next, err := c.Check(&before, k.public); err != nil || next.Size != size {
				t.Fatalf("%d from %d: %v", size, old, err)
			}
			text, err := c.MarshalText()
			var again Consistency
			if err = errors.Join(err, again.UnmarshalText(text)); err != nil || !reflect.DeepEqual(again, c) {
				t.Fatalf("%d from %d read back: %+v, %v", size, old, again, err)
			}
			if _, err := c.Check(&before, other.public); !errors.Is(err, ErrUnsigned) {
				t.Errorf("with another key: %v", err)
			}
			if old == 0 {
				continue
			}
			before.Root[3] ^= 1
			if _, err := c.Check(&before, k.public); !errors.Is(err, ErrFork) {
				t.Fatalf("%d from another %d: %v", size, old, err)
			}
		}
	}
	if _, err := tree.ProveExtension(5, most+1, none); err == nil {
		t.Error("more records than there are could be proved")
	}
}

func FuzzConsistency(f *testing.F) {
	f.Add([]byte("old 3\n8zvbrdFaCcUtd5e52xbrFJOfO+aivJDNcj2g7DkQhp4=\n\nlog\n5\n8zvbrdFaCcUtd5e52xbrFJOfO+aivJDNcj2g7DkQhp4=\n\n\u2014 log AAAAAAAA\n"))
	f.Add([]byte("old 0\n\nx"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c, again Consistency
		if c.UnmarshalText(text) != nil {
			return
		}
		written, err := c.MarshalText()
		if err != nil || string(written) != string(text) || again.UnmarshalText(written) != nil {
			t.Errorf("%q is written as %q, %v", text, written, err)
		}
	})
}
