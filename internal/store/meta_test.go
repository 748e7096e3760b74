package store

import (
	"maps"
	"slices"
	"testing"
)

func TestMetaUnder(t *testing.T) {
	s := openTest(t)
	commit(t, s, &Change{Parts: []Part{Meta{"app:b", []byte("2")}, Meta{"app:a", []byte("1")}, Meta{"app", nil}, Meta{"app;", nil}, Meta{"apple", nil}}})
	commit(t, s, &Change{Parts: []Part{Dropped("app:a"), Dropped("never"), Dropped("app:c"), Meta{"app:c", []byte("3")}}, Drains: true})
	got, err := s.MetaUnder(t.Context(), "app:")
	if err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"app:b", "app:c"}) || string(got["app:c"]) != "3" {
		t.Errorf("found %q", got)
	}
}
