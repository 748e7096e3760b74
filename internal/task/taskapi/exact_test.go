package taskapi

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api/members"
)

// What a request's digest or a record's covers in the form of RFC 8785 has no number that is another
// one in that form: an approval would count for both.
func TestDigestedNumbersAreExact(t *testing.T) {
	for path, p := range map[string]any{
		"params.wei":            new(PlanEffectParams),
		"effects[0].params.wei": new(CreateParams),
		"receipt.wei":           new(FinishEffectParams),
		"receipt.wei ":          new(RunnerReportParams),
		"params.wei ":           new(RequestApprovalParams),
	} {
		for number, refused := range map[string]bool{"1000000000000000001": true, "1000000000000000064": true, "1000000000000000000": false, "1e2": false, "-0": false, `"1000000000000000001"`: false} {
			object := `{"wei":` + number + `}`
			if err := json.Unmarshal([]byte(`{"params":`+object+`,"receipt":`+object+`,"effects":[{"params":`+object+`}]}`), p); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, f := range members.Check(p) {
				found = found || f.Path == strings.TrimSpace(path) && strings.HasSuffix(f.Message, "write it as a string")
			}
			if found != refused {
				t.Errorf("%T: %s is refused: %v", p, number, found)
			}
		}
	}
}
