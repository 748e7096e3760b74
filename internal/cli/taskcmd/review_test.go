package taskcmd

import (
	"testing"

	"github.com/openclawos/ocipd/internal/task"
)

// A finding on the command line may have a file, a line or an artifact.
func TestFinding(t *testing.T) {
	for text, want := range map[string]task.Finding{
		"major: it says nothing":                   {Severity: "major", Message: "it says nothing"},
		"minor:no blank":                           {Severity: "minor", Message: "no blank"},
		"it says nothing":                          {Severity: "major", Message: "it says nothing"},
		"csv.go:12: minor: quotes are lost":        {Severity: "minor", Message: "quotes are lost", File: "csv.go", Line: 12},
		"csv.go:12: quotes are lost: all":          {Severity: "major", Message: "quotes are lost: all", File: "csv.go", Line: 12},
		"a b/导出.go:7: critical: it deletes":        {Severity: "critical", Message: "it deletes", File: "a b/导出.go", Line: 7},
		"csv.go: critical: no test":                {Severity: "critical", Message: "no test", File: "csv.go"},
		"https://example.org/7: minor: it is open": {Severity: "minor", Message: "it is open", URI: "https://example.org/7"},
		// The daemon refuses these words.
		"odd: it says nothing":    {Severity: "odd", Message: "it says nothing"},
		"https://example.org/all": {Severity: "https", Message: "//example.org/all"},
	} {
		if got := finding(text); got != want {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
