package db

import (
	"bytes"
	"testing"
)

func FuzzWipeGap(f *testing.F) {
	f.Add([]byte{13, 0, 0, 0, 1, 0, 20, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, page []byte) {
		for _, first := range []bool{false, true} {
			before := bytes.Clone(page)
			if found := wipeGap(page, first); found == bytes.Equal(before, page) {
				t.Errorf("found is %t, changed is %t", found, !bytes.Equal(before, page))
			}
			if wipeGap(page, first) {
				t.Error("something is left")
			}
		}
	})
}
