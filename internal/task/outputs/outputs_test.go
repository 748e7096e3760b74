package outputs

import (
	"slices"
	"strings"
	"testing"
)

// An artifact is a declared one if its name is that of an entry, or matches it. Entries that only
// describe outputs leave the name open.
func TestHas(t *testing.T) {
	tests := []struct {
		entries, uri string
		want         bool
	}{
		{"out.csv", "out.csv", true},
		{"./out.csv", "out.csv", true},
		{"out.csv", "undeclared.sh", false},
		{"internal/export/*.go", "internal/export/a.go", true},
		{"internal/export/*.go", "internal/export/deep/a.go", false},
		{"build/", "build/deep/x.tar", true},
		{"`a.csv` and `b.csv`", "b.csv", true},
		{"`a.csv` and `b.csv`", "c.csv", false},
		{"the program `deploy`", "deploy", true},
		{"the program `deploy`", "other", false},
		{"https://example.org/pull/7", "https://example.org/pull/7", true},
		{"https://example.org/pull/7", "https://example.org/pull/8", false},
		{"out.csv|a report about it", "report.md", false},
		{"out.csv|Makefile", "Makefile", true},
		{"发票/导出.csv", "发票/导出.csv", true},
		{"发票/导出.csv", "别的.csv", false},
		// These describe an output, and name none.
		{"a report about it", "report.md", true},
		{"documentation", "docs/guide.md", true},
		{"按月导出的发票文件", "out.csv", true},
		{"导入/导出功能", "out.csv", true},
		{"", "out.csv", true},
	}
	for _, tt := range tests {
		d := Of(strings.Split(tt.entries, "|"))
		if got := d.Has(tt.uri); got != tt.want {
			t.Errorf("%q has %q: %v", tt.entries, tt.uri, got)
		}
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("**/a/*.go", "b/a/c.go")
	f.Add("in/[a-z]?/", "in/ab/c")
	f.Add("`a` `b", "a")
	f.Fuzz(func(t *testing.T, entry, name string) {
		d := Of([]string{entry})
		for _, p := range d.patterns {
			if slices.Contains(p, "..") || len(p) > 0 && p[0] == "" {
				t.Errorf("%q leads out: %q", entry, p)
			}
		}
		names := strings.Split(name, "/")
		d.Match(strings.Join(names[:min(len(names), 20)], "/"))
	})
}
