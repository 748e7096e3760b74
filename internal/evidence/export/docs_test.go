package export

import "testing"

// The reference page is the one that the table of events and the sample record give.
func TestDocumented(t *testing.T) {
	want, err := Reference()
	if err != nil || readFile(t, "../../../docs/reference/export-formats.md") != string(want) {
		t.Errorf("docs/reference/export-formats.md is stale: make reference writes it (%v)", err)
	}
}
