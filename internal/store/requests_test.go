package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// An answer is kept for a day.
func TestRequestKeys(t *testing.T) {
	s := openTest(t)
	now := time.UnixMilli(1_000_000_000).UTC()
	for i := range 10 {
		commit(t, s, with(&RequestKey{Actor: "a", Key: fmt.Sprint(i), Asked: "x", At: now.Add(time.Duration(i)), Result: []byte(`1`)}))
	}
	if k, err := s.RequestOf(t.Context(), "a", "3", now.Add(time.Hour)); err != nil || string(k.Result) != "1" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := s.RequestOf(t.Context(), "b", "3", now); !errors.Is(err, ErrNotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	later := now.Add(25 * time.Hour)
	if _, err := s.RequestOf(t.Context(), "a", "3", later); !errors.Is(err, ErrNotFound) {
		t.Errorf("an old one: %v", err)
	}
	for i := range 3 {
		commit(t, s, with(&RequestKey{Actor: "b", Key: fmt.Sprint(i), At: later, Result: []byte(`1`)}))
	}
	if err := s.Tidy(t.Context(), later, later); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s, "request_keys"); n != 3 {
		t.Errorf("%d answers are kept", n)
	}
}
