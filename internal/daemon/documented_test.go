package daemon_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/daemon"
)

// documentedMethods are the rows of docs/reference/protocol for each method: the cells by column name.
func documentedMethods(t *testing.T) map[string]map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/reference/protocol/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("the pages of the protocol are %q, %v", pages, err)
	}
	var text strings.Builder
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(page)
	}
	rows := make(map[string]map[string]string)
	names := regexp.MustCompile("`([a-z]+\\.[a-z_]+)`")
	var columns []string
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case strings.TrimSpace(cells[0]) == "method":
			columns = cells
		case columns != nil:
			for _, name := range names.FindAllStringSubmatch(cells[0], -1) {
				row := make(map[string]string)
				for i, column := range columns[:min(len(columns), len(cells))] {
					row[strings.TrimSpace(column)] = cells[i]
				}
				if rows[name[1]] != nil {
					t.Errorf("%s has two rows", name[1])
				}
				rows[name[1]] = row
			}
		}
	}
	return rows
}

// paramsOf are the members of a method's parameters.
func paramsOf(of reflect.Type) (names []string) {
	for f := range of.Fields() {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name != "" && name != "-":
			names = append(names, name)
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			names = append(names, paramsOf(f.Type)...)
		}
	}
	return names
}

// The pages have a row for each method, and for no other, with its permitted callers and
// every member of its parameters.
func TestMethodsAreDocumented(t *testing.T) {
	rows := documentedMethods(t)
	word := regexp.MustCompile(`[A-Za-z_]+`)
	said := func(name string) []string {
		said := word.FindAllString(rows[name]["params"], -1)
		for _, other := range regexp.MustCompile("`([a-z]+\\.[a-z_]+)`").FindAllStringSubmatch(rows[name]["params"], -1) {
			said = append(said, word.FindAllString(rows[other[1]]["params"], -1)...)
		}
		return said
	}
	served := make(map[string][]string)
	for _, m := range daemon.MethodTable() {
		served[m.Name] = append(served[m.Name], string(m.Access))
		for _, param := range paramsOf(m.Params) {
			if param == "request_key" && m.Access == "task" {
				continue // said of all that write
			}
			if rows[m.Name] != nil && !slices.Contains(said(m.Name), param) {
				t.Errorf("the row of %s does not have %s", m.Name, param)
			}
		}
	}
	for name, access := range served {
		row := rows[name]
		switch who, told := row["access"]; {
		case row == nil:
			t.Errorf("%s has no row", name)
		case told && who != strings.Join(access, ", "):
			t.Errorf("%s: the pages say %q of who may call it, want %q", name, who, access)
		}
	}
	for name := range rows {
		if served[name] == nil {
			t.Errorf("%s is not served", name)
		}
	}
}
