package daemon_test

import (
	"os"
	"testing"

	"github.com/openclawos/ocipd/internal/daemon"
)

// The reference page is the one that the table of methods gives. It also fails for a member of
// parameters without a meaning.
func TestMethodsAreDocumented(t *testing.T) {
	want, err := daemon.Reference()
	if err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile("../../docs/reference/protocol/methods.md"); err != nil || string(page) != string(want) {
		t.Errorf("docs/reference/protocol/methods.md is stale: make reference writes it (%v)", err)
	}
}
