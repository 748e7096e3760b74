package taskservice

import (
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/task"
)

// PhasesPage returns the section of the reference page on phases, as Markdown.
func PhasesPage() string {
	b := new(strings.Builder)
	b.WriteString("\n## Phases of tasks\n\nA person closes an open circuit by `task.close_circuit`, and `task.open_circuit` opens it.\n\n| from | to | guards |\n| --- | --- | --- |\n")
	fmt.Fprintf(b, "| (create) | `%s` | |\n| (create) | `%s` | %s |\n", task.SpecDraft, task.SpecReview, task.Complete)
	for _, from := range task.Phases() {
		for _, row := range task.Transitions(from) {
			var guards []string
			for _, g := range row.Guards {
				guards = append(guards, string(g))
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", row.From, row.To, strings.Join(guards, ", "))
		}
	}
	b.WriteString("\n| guard | holds if |\n| --- | --- |\n")
	for _, c := range task.Conditions() {
		fmt.Fprintf(b, "| %s | %s |\n", c.Guard, c.Means)
	}
	return b.String()
}
