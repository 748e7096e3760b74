package approval

import (
	"errors"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// byKey is a list of signers in which a signature is the name of its key.
type byKey map[string]string

func (l byKey) Verify(armored, _ []byte, _ time.Time) (principal, fingerprint string, err error) {
	if l[string(armored)] == "" {
		return "", "", errors.New("nobody's")
	}
	return l[string(armored)], "SHA256:" + string(armored), nil
}

// Lines of the list without a name stand for one person, also if the list named them at their
// approvals, and two lines of one name are one person.
func TestUnnamedSignersAreOnePerson(t *testing.T) {
	for name, tt := range map[string]struct {
		list  byKey
		given int
	}{
		"two names":           {byKey{"k1": "carol", "k2": "dave"}, 2},
		"one name":            {byKey{"k1": "carol", "k2": "carol"}, 1},
		"one pattern":         {byKey{"k1": "*", "k2": "*"}, 1},
		"two patterns":        {byKey{"k1": "*@acme", "k2": "?*"}, 1},
		"a name and patterns": {byKey{"k1": "carol", "k2": "*", "k3": "*,*"}, 2},
		"a key that is gone":  {byKey{"k1": "carol"}, 1},
	} {
		a := &api.Approval{Approvals: []api.ApprovalDecision{
			{By: "carol", Fingerprint: "SHA256:k1", Signature: "k1"}, {By: "dave", Fingerprint: "SHA256:k2", Signature: "k2"}, {By: "erin", Fingerprint: "SHA256:k3", Signature: "k3"},
		}}
		if recount(a, tt.list); a.Given != tt.given || len(a.Approvals) != tt.given {
			t.Errorf("%s: %d people, want %d", name, a.Given, tt.given)
		}
	}
	if by := (&api.ApprovalDecision{By: "?*", Fingerprint: "SHA256:k2"}); others([]api.ApprovalDecision{{By: "*", Fingerprint: "SHA256:k1"}}, by) != 0 {
		t.Error("two lines without a name are two people")
	}
}
