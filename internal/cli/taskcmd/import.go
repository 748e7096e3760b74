package taskcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/taskimport"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newImport(t *command) *cobra.Command {
	var tenant, level string
	var apply, dryRun bool
	c := &cobra.Command{
		Use: "import DIR",
		Example: "  ocipd task import ~/billing\n" +
			"  ocipd task import ~/billing --apply",
		Short: "take over the tasks of a project of the first version",
		Long: `Take over the tasks that a project kept in files before there was a task
store: shared/blackboard.json, specs/ID.md and .beads/issues.jsonl. Without --apply
nothing changes and no daemon is needed: the report lists for each task its new phase,
what it lacks before anybody may work on it, and what cannot be imported, and it names
texts that still tell agents to work as before. A closed task becomes completed and
marked as imported, a stopped one circuit_open, and all others begin in spec_draft,
because they have passed no gate here. Each task is imported once; a further run
continues where an earlier one ended. Only the operator imports.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if apply && dryRun {
				return cli.Usagef("cannot do both --apply and --dry-run")
			}
			return t.importProject(cmd.Context(), args[0], apply, &taskapi.ImportParams{TenantID: tenant, Classification: level})
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	flags := c.Flags()
	cli.KeyFlag(c, &t.key)
	flags.BoolVar(&apply, "apply", false, "import the tasks")
	flags.BoolVar(&dryRun, "dry-run", false, "change nothing, which is usual")
	flags.StringVar(&tenant, "tenant", "", "the `TENANT` whose tasks they become, where there are several")
	flags.StringVar(&level, "classification", "", "the `LEVEL` of their texts (default the lowest)")
	return c
}

// importReport is the output of `ocipd task import --json`.
type importReport struct {
	Directory string              `json:"directory"`
	Applied   bool                `json:"applied"`
	Tasks     []importedTask      `json:"tasks"`
	Project   *taskimport.Project `json:",inline"`
}

// importedTask is a task of the project with the new task.
type importedTask struct {
	*taskimport.Task `json:",inline"`
	TaskID           string `json:"task_id,omitzero"`
	// Before is set if an earlier import created it.
	Before bool `json:"imported_before,omitzero"`
}

func (t *command) importProject(ctx context.Context, dir string, apply bool, p *taskapi.ImportParams) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("cannot tell where %s is: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("cannot read the project: %w", err)
	}
	defer root.Close()
	project := taskimport.Read(root.FS())
	r := &importReport{Directory: dir, Tasks: []importedTask{}, Project: project}
	for _, one := range project.Tasks {
		r.Tasks = append(r.Tasks, importedTask{Task: one})
	}
	var failed error
	if apply && len(project.Faults) == 0 {
		p.Workspace = dir
		failed = t.importAll(ctx, r, p)
		r.Applied = failed == nil
	}
	if t.asJSON {
		err = t.PrintJSON(r)
	} else {
		err = r.print(t.Stdout, t.Screen(), p, apply)
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case len(project.Faults) > 0:
		return cli.ErrSaid
	}
	return nil
}

// importAll imports tasks after their dependencies.
func (t *command) importAll(ctx context.Context, r *importReport, p *taskapi.ImportParams) error {
	if token, err := t.token(); err != nil || token != "" {
		return cli.Usagef("cannot import by a token: only the operator imports")
	}
	c, err := t.DialOperator(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	step, end := t.Progress("tasks", len(r.Tasks))
	defer end()
	ids := make(map[string]string)
	for i := range r.Tasks {
		one := &r.Tasks[i]
		p := *p
		p.Origin, p.Title, p.Phase, p.Status, p.Retries, p.LastError = one.Origin(), one.Title, one.Phase, one.Status, one.Retries, one.LastError
		p.SpecMarkdown, p.Spec, p.Labels, p.Priority = one.Markdown, &one.Fields, one.Labels, &one.Priority
		for _, id := range one.DependsOn {
			p.DependsOn = append(p.DependsOn, ids[id])
		}
		for _, file := range one.Artifacts {
			p.Artifacts = append(p.Artifacts, taskapi.Imported{URI: file})
		}
		var made taskapi.Created
		if err := t.CallSigned(ctx, c, t.key, "task.import", &p, &made); err != nil {
			end()
			where := fmt.Sprintf("cannot import %s (%s), and stopped there; what was imported before it stays, and a further run goes on", one.ID, strings.TrimSuffix(one.At.String(), ": "))
			if said := t.said(err); !errors.Is(said, cli.ErrSaid) {
				return fmt.Errorf("%s: %w", where, said)
			}
			fmt.Fprintln(t.Stderr, term.OneLine(where))
			return cli.ErrSaid
		}
		one.TaskID, one.Before = made.TaskID, made.Replayed
		ids[one.ID] = made.TaskID
		step(i + 1)
	}
	return nil
}

// again is the command that imports the shown tasks, for copying. It shows DIR for a folder
// whose name cannot be copied.
func again(dir string, p *taskapi.ImportParams) string {
	words := []string{"ocipd task import", "DIR", "--apply"}
	if arg := cli.Argument(dir); strings.Contains(arg, dir) {
		words[1] = arg
	}
	if p.TenantID != "" {
		words = append(words, "--tenant", cli.Argument(p.TenantID))
	}
	if p.Classification != "" {
		words = append(words, "--classification", cli.Argument(p.Classification))
	}
	return strings.Join(words, " ")
}

// print prints the report for a person.
func (r *importReport) print(w io.Writer, scr term.Screen, p *taskapi.ImportParams, apply bool) error {
	table := &term.Table{Columns: []term.Column{
		{Title: "WAS", Least: 8}, {Title: "BECOMES", Whole: true}, {Title: "TITLE", Least: 12}, {Title: "TO MEND", Least: 24, Below: true, Fold: true},
	}}
	for i := range r.Tasks {
		one := &r.Tasks[i]
		var lacks []string
		if !one.Phase.Final() {
			for _, m := range one.Missing {
				lacks = append(lacks, m.String())
			}
		}
		was := one.ID
		if one.Status != "" {
			was += " (" + one.Status + ")"
		}
		becomes := string(one.Phase)
		if one.Before {
			becomes = "imported before"
		}
		table.Add(term.Plain(was), term.Tinted(becomes, phaseColour(one.Phase)), term.Plain(one.Title), term.Plain(strings.Join(lacks, "; ")))
		if one.TaskID != "" {
			table.Note(term.Plain(one.TaskID))
		}
	}
	if err := table.Write(w, scr); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		notes []taskimport.Note
	}{
		{"Left out, since it has no place:", r.Project.Dropped},
		{"To delete, or agents go on as before:", r.Project.Guidance},
		{"To mend in the files before anything is imported:", r.Project.Faults},
	} {
		if len(part.notes) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", part.title)
		for _, n := range part.notes {
			fmt.Fprintf(w, "  %s\n", term.OneLine(n.String()))
		}
	}
	what := imported(r)
	switch {
	case len(r.Tasks) == 0 && len(r.Project.Faults) == 0:
		fmt.Fprintf(w, "%s has no tasks of the first version: there is no %s, %s or %s/ID.md\n", term.Printable(r.Directory), taskimport.Blackboard, taskimport.Issues, taskimport.Specs)
	case len(r.Project.Faults) > 0:
		fmt.Fprintf(w, "\nnothing was changed: %s would be imported once the files are mended\n", what)
	case !apply:
		fmt.Fprintf(w, "\nnothing was changed; to import %s: %s\n", what, again(r.Directory, p))
	case r.Applied:
		fmt.Fprintf(w, "\n%s\n", what)
	}
	return nil
}

// imported says how many tasks are or would be imported, and how many were before.
func imported(r *importReport) string {
	before := 0
	for i := range r.Tasks {
		if r.Tasks[i].Before {
			before++
		}
	}
	what := term.Count(len(r.Tasks)-before, "task")
	switch {
	case r.Applied && before > 0:
		what += fmt.Sprintf(" imported, and %d before; see: ocipd task board", before)
	case r.Applied:
		what += " imported; see: ocipd task board"
	}
	return what
}
