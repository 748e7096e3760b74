package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDashboardAsksForWhatThereIs holds the dashboard against the families, both
// ways: what it asks for is served, with the labels it asks by, and nothing that
// is served is missing from it.
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
	// The daemon itself adds what was built.
	served := map[string][]string{"ocipd_build_info": {"version", "goversion"}}
	for _, f := range New(words()).Families() {
		served[f.Name] = f.Labels
		if f.Kind == KindHistogram {
			served[f.Name+"_bucket"] = []string{"le"}
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
