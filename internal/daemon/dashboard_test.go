package daemon_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDashboardAsksForWhatThereIs compares the dashboard with the list of metrics, which
// TestFamilies compares with a daemon. Both ways: the dashboard's metrics exist with its
// labels, and no metric is missing from it.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("../../docs/dashboards/ocipd.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string][]string{}
	for _, f := range regexp.MustCompile(`(?m)^(\w+) (\w+) \{(.*?)\} `).FindAllStringSubmatch(string(list), -1) {
		name, kind, labels := f[1], f[2], strings.Split(f[3], ",")
		served[name] = labels
		if kind == "histogram" {
			served[name+"_bucket"] = labels
		}
	}
	asked := map[string]bool{}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			names := regexp.MustCompile(`ocipd_\w+`).FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("panel %q asks %q", p.Title, target.Expr)
			}
			for _, name := range names {
				labels, ok := served[name]
				if !ok {
					t.Errorf("panel %q asks for %s, which is not served", p.Title, name)
				}
				asked[strings.TrimSuffix(name, "_bucket")] = true
				used := regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1)
				for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(target.Expr, -1) {
					for label := range strings.SplitSeq(by[1], ", ") {
						used = append(used, []string{"", label})
					}
				}
				for _, label := range used {
					if !slices.Contains(labels, label[1]) {
						t.Errorf("panel %q uses the label %s of %s, which has %q", p.Title, label[1], name, labels)
					}
				}
			}
		}
	}
	for name := range served {
		if !asked[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
