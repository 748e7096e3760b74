package tasks

import (
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/task"
)

// meanings are the conditions of the guards, in the order of the reference page.
func meanings() []string {
	return []string{
		string(task.Complete), "the specification has nothing in `missing`",
		string(task.Idle), "no attempt runs",
		string(task.Leased), "an attempt runs, and its lease has not ended",
		string(task.Unblocked), "every task of `depends_on` is completed",
		string(task.Delivered), "the last attempt succeeded and has an artifact that is no review and has a name that the spec declares as an output",
		string(task.SpecOK), "enough reviewers approve the present subject, and no newest review is against it",
		string(task.QualityOK), "enough reviewers approve its quality, and no newest review is against it",
		string(task.NoEffect), "no effect is planned or failed",
		string(task.Quiet), "no run is under way or has an unknown end",
		string(task.Approved), "every open effect has an approval that can be used",
		string(task.Unapproved), "an open effect has none",
		string(task.Unreviewed), "reviews are missing, because an effect was planned after them",
		string(task.Changes), "a person requested changes of an open effect",
	}
}

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
	for at, list := 0, meanings(); at < len(list); at += 2 {
		fmt.Fprintf(b, "| %s | %s |\n", list[at], list[at+1])
	}
	return b.String()
}
