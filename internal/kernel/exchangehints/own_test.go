package exchangehints

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
)

func TestWithoutLookalikes(t *testing.T) {
	for member, as := range map[string]string{
		"ocip": "", "OCIP": "ocip", "\u043ecip": "ocip", "ocip\u200b": "ocip", "ocipchain": "ocipChain", "ocipLog": "", "Exchange": "exchange", "task": "", "TASK": "task",
		"__proto__": "__proto__", "proto": "", strings.Repeat("\u200b", 99) + "ocip": "",
		"aiDi\u017fclosure": "aiDisclosure", "dispatch_id": "", "tasks": "", "": "", "\xff": "", strings.Repeat("x", 1<<16): "",
	} {
		given := api.Object{member: api.String("said"), "other": api.String("stays")}
		left, found := WithoutLookalikes(given)
		if _, stays := left[member]; stays != (as == "") || len(left["other"]) == 0 || len(given) != 2 || as != "" && !slices.Equal(found, []string{as}) || as == "" && found != nil {
			t.Errorf("%q reads as %q, want %q; left are %v", member, found, as, left)
		}
	}
}

// No copy contains the daemon's members, and the input does not change.
func TestWithoutOwn(t *testing.T) {
	given := api.Object{"ocip": api.String("forged"), "OCIP": api.String("forged"), "threadId": api.String("7")}
	left, changes := WithoutOwn(given)
	if len(left) != 1 || string(left["threadId"]) != `"7"` || len(given) != 3 ||
		!slices.Equal(changes, []string{"kernel: what reads as metadata.ocip removed", "kernel: metadata.ocip replaced"}) {
		t.Errorf("left are %v, changed %q", left, changes)
	}
	if left, changes := WithoutOwn(nil); left == nil || len(left) != 0 || changes != nil {
		t.Errorf("of nothing: %v, %q", left, changes)
	}
}
