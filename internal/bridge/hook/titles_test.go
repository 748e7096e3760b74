package hook

import "testing"

// Every runtime has a name for people.
func TestTitles(t *testing.T) {
	t.Parallel()
	for _, r := range table {
		if r.Title == "" {
			t.Errorf("%s is not among the known programs", r.Program)
		}
	}
}
