package store

import (
	"maps"
	"slices"
	"testing"
)

func TestMetaUnder(t *testing.T) {
	s := openTest(t)
	commit(t, s, &Change{Meta: []Meta{{"app:b", []byte("2")}, {"app:a", []byte("1")}, {"app", nil}, {"app;", nil}, {"apple", nil}}})
	commit(t, s, &Change{Dropped: []string{"app:a", "never", "app:c"}, Meta: []Meta{{"app:c", []byte("3")}}, Drains: true})
	got, err := s.MetaUnder(t.Context(), "app:")
	if err != nil {
		t.Fatal(err)
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"app:b", "app:c"}) || string(got["app:c"]) != "3" {
		t.Errorf("found %q", got)
	}
}
