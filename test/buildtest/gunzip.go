package buildtest

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// Gunzip returns the content of a compressed file.
func Gunzip(t testing.TB, path string) []byte {
	t.Helper()
	packed, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
