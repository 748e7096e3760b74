package export

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
)

var update = flag.Bool("update", false, "write testdata/readings.txt anew")

// TestOCSFOfEveryEvent compares each row of the table of events, with each result of a policy, with
// recorded values: status, disposition, severity, alert, and the codes of refused, waiting and
// failed ones.
func TestOCSFOfEveryEvent(t *testing.T) {
	s := loadSchema(t)
	const golden = "testdata/readings.txt"
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(readings)) {
		action, name, _ := strings.Cut(key, " ")
		for _, result := range []string{"", audit.ResultAllow, audit.ResultDeny, audit.ResultApproval} {
			rec := &audit.Record{ID: "1", ActionType: action, Event: name, PolicyResult: result, Code: "COMMITMENT_REQUIRES_HUMAN", PolicyReason: "why"}
			o := event(t, s, rec)
			code := at(o, "status_code")
			if responded := at(o, "api", "response", "error"); code != responded {
				t.Errorf("%s %s: status_code is %v, and the response's error %v", key, result, code, responded)
			}
			if status := at(o, "status"); code != nil && status == "Success" {
				t.Errorf("%s %s: a success has the code %v", key, result, code)
			}
			fmt.Fprintf(&b, "%s | %s | %v | %v | %v | %v | %v\n", key, result, at(o, "status"), at(o, "disposition"), at(o, "severity"), at(o, "is_alert"), code)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")
	for i := range max(len(was), len(is)) {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			t.Fatalf("line %d of %s differs: %q; go test -run %s -update ./internal/evidence/export writes it anew", i+1, golden, is[min(i, len(is)-1)], t.Name())
		}
	}
}
