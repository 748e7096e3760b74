package skill

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/bridge/mcpserver"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
	"go.yaml.in/yaml/v3"
)

// written are the files of all skills, by their paths.
func written(t *testing.T) map[string]string {
	t.Helper()
	list, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, f := range list {
		files[f.Path] = string(f.Text)
	}
	return files
}

// A skill has the name of its folder, a description of the length that clients take, and no link
// that leads nowhere.
func TestFilesAreSkills(t *testing.T) {
	files := written(t)
	for _, l := range languages() {
		page := files[l.skill+"/SKILL.md"]
		parts := strings.SplitN(page, "---\n", 3)
		var front struct{ Name, Description string }
		if len(parts) != 3 || yaml.Unmarshal([]byte(parts[1]), &front) != nil {
			t.Fatalf("%s begins with\n%.300s", l.skill, page)
		}
		if front.Name != l.skill || !regexp.MustCompile(`^[a-z0-9-]{1,64}$`).MatchString(front.Name) || len([]rune(front.Description)) > 1024 || len(front.Description) < 100 {
			t.Errorf("%s says that it is %q: %q", l.skill, front.Name, front.Description)
		}
		links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(page, -1)
		for _, link := range links {
			if files[path.Join(l.skill, link[1])] == "" {
				t.Errorf("%s has no %s", l.skill, link[1])
			}
		}
		if len(links) < 5 {
			t.Errorf("%s links %d files", l.skill, len(links))
		}
	}
}

// rows are the rows of a text's tables that begin with code.
func rows(text string) (list [][]string) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.HasPrefix(line, "| `") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			list = append(list, cells)
		}
	}
	return list
}

// The transitions, guards and permissions of the skills are those of the reference page.
func TestTablesAreThoseOfTheReference(t *testing.T) {
	reference, err := os.ReadFile("../../../docs/reference/protocol/methods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, phases, _ := strings.Cut(string(reference), "\n## Phases of tasks\n")
	want := rows(phases)
	if len(want) < 30 {
		t.Fatalf("the reference has %d transitions", len(want))
	}
	// callers are the roles that may call each method, by the reference.
	callers := make(map[string]string)
	for section := range strings.SplitSeq(string(reference), "\n## task.") {
		name, text, _ := strings.Cut(section, "\n")
		_, access, _ := strings.Cut(text, "\nAccess: task (")
		callers["task_"+name], _, _ = strings.Cut(access, ")")
	}
	files := written(t)
	for _, l := range languages() {
		store := files[l.skill+"/references/task-store.md"]
		_, section, _ := strings.Cut(store, l.heads.tools[0]+" | "+l.heads.tools[1])
		got := slices.DeleteFunc(rows(section), func(row []string) bool { return strings.HasPrefix(row[0], "`task_") })
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("the transitions of %s are\n%q\nand those of the reference\n%q", l.skill, got, want)
		}
		matrix := rows(files[l.skill+"/references/agent-permissions.md"])
		if len(matrix) < 20 {
			t.Errorf("%s says who may call %d tools", l.skill, len(matrix))
		}
		for _, row := range matrix {
			tool := strings.Trim(row[0], "`")
			for i, r := range task.ActorRoles() {
				may := slices.Contains(strings.Split(callers[tool], ", "), string(r))
				if has := row[i+1] == l.yes; has != may {
					t.Errorf("%s: a %s has %s: %v, and by the reference %v", l.skill, r, tool, has, may)
				}
			}
		}
	}
}

// Each language has a word for everything in the tables.
func TestWordsAreWhole(t *testing.T) {
	tools, err := mcpserver.TaskTools()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages() {
		if l.meanings == nil {
			continue
		}
		guards := make(map[task.Guard]bool)
		for _, p := range task.Phases() {
			if l.phases[p] == "" {
				t.Errorf("%s has no word for the phase %s", l.skill, p)
			}
			for _, m := range task.Transitions(p) {
				for _, g := range m.Guards {
					guards[g] = true
				}
			}
		}
		for g := range guards {
			if l.meanings[g] == "" {
				t.Errorf("%s does not explain the guard %s", l.skill, g)
			}
		}
		for _, tool := range tools {
			if l.tools[tool.Name] == "" {
				t.Errorf("%s does not say what %s is for", l.skill, tool.Name)
			}
		}
		for _, r := range task.ActorRoles() {
			if w := l.roles[r]; w.name == "" || w.does == "" || w.never == "" {
				t.Errorf("%s does not say what a %s does", l.skill, r)
			}
		}
	}
}

// Each step's role has its tools, each role is known by its sign, and each language's specification
// is complete.
func TestStepsCanBeTaken(t *testing.T) {
	for _, s := range Steps() {
		for _, tool := range s.Tools {
			if !slices.Contains(taskservice.ToolsOf(s.Role), tool) {
				t.Errorf("in %s a %s does not have %s", s.Phase, s.Role, tool)
			}
		}
	}
	for _, r := range task.ActorRoles() {
		has := taskservice.ToolsOf(r)
		i := slices.IndexFunc(Signs(), func(s Sign) bool { return slices.Contains(has, s.Tool) })
		if i < 0 || Signs()[i].Role != r && r != task.QualityReviewer {
			t.Errorf("a %s is taken for the role of sign %d", r, i)
		}
	}
	files := written(t)
	for _, l := range languages() {
		_, spec, _ := strings.Cut(files[l.skill+"/SKILL.md"], "````markdown\n")
		spec, _, _ = strings.Cut(spec, "````")
		fields, _ := task.ReadMarkdown([]byte(spec))
		if missing := fields.Missing("Export"); len(missing) > 0 || fields.Goal == "" {
			t.Errorf("the specification of %s lacks %v:\n%s", l.skill, missing, spec)
		}
	}
}
