package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newShow(t *command) *cobra.Command {
	return t.about(&cobra.Command{
		Use: "show TASK", Aliases: []string{"get"},
		Example: "  ocipd task show tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7",
		Short:   "show a task: its phase, open conditions and next phases",
	}, func(ctx context.Context, id string) error {
		v, raw, err := t.view(ctx, id)
		if err != nil {
			return err
		}
		if t.asJSON {
			_, err := t.Stdout.Write(t.Screen().JSONLine(raw))
			return err
		}
		return t.show(v)
	})
}

// circuitRows are the rows of a task with an open circuit: what went wrong, the last approved work
// and the ways out.
func circuitRows(v *taskapi.View, row func(name, format string, args ...any)) {
	for _, s := range v.FailureSummary {
		row("circuit", "%s", s)
	}
	if v.LastGoodRevision != nil {
		row("last good", "%s", taskapi.GoodLine(*v.LastGoodRevision, v.LastGood))
	}
	for _, s := range v.Unblock {
		row("a way out", "%s", s)
	}
}

// rows is a function that writes rows of a name and a text.
func rows(b *strings.Builder) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-12s %s\n", name, term.OneLine(fmt.Sprintf(format, args...)))
	}
}

// standing describes how an approval stands: by whom, and whether it still lets a start happen.
func standing(a *task.Approval) string {
	text := a.Status
	if a.ResolvedBy != "" {
		text += " by " + a.ResolvedBy
	}
	switch {
	case a.Status != task.ApprovalApproved:
	case a.Used:
		text += ", used by a start"
	default:
		text += ", for one start until " + a.ExpiresAt.Local().Format(time.DateTime)
	}
	return text
}

// madeRows are the rows of the current artifacts.
func madeRows(v *taskapi.View, row func(name, format string, args ...any)) {
	for i := range v.Artifacts {
		if a := &v.Artifacts[i]; a.Current {
			undeclared := ""
			if a.Undeclared {
				undeclared = " (not an output that the spec declares)"
			}
			row("artifact", "%s %s %s%s", a.Kind, a.URI, a.Digest, undeclared)
		}
	}
}

// specRows are the rows of a spec: each of its fields, an entry a row.
func specRows(s *task.Spec, row func(name, format string, args ...any)) {
	row("spec", "version %d by %s %s", s.Version, s.Author, s.URI)
	for line := range strings.Lines(s.Goal) {
		row("  goal", "%s", strings.TrimSpace(line))
	}
	for _, field := range []struct {
		name    string
		entries []string
	}{
		{"scope", s.ScopeIn}, {"non-goals", s.ScopeOut}, {"inputs", s.Inputs}, {"outputs", s.Outputs}, {"criteria", s.AcceptanceCriteria}, {"risks", s.Risks},
	} {
		for _, entry := range field.entries {
			row("  "+field.name, "%s", entry)
		}
		if field.entries != nil && len(field.entries) == 0 {
			row("  "+field.name, "none")
		}
	}
}

// reviewRows are the rows of the reviews: each one's summary, and a row for each finding, which
// begins with its place as the option --finding takes it.
func reviewRows(v *taskapi.View, row func(name, format string, args ...any)) {
	for i := range v.Reviews {
		r := &v.Reviews[i]
		text := r.Type + " " + r.Verdict + " by " + r.Actor
		if r.Stale {
			text += " (stale)"
		}
		if r.Summary != "" {
			text += ": " + r.Summary
		}
		row("review", "%s", text)
		for j := range r.Findings {
			f := &r.Findings[j]
			place := cmp.Or(f.File, f.URI)
			if f.Line > 0 {
				place += ":" + strconv.Itoa(f.Line)
			}
			if place != "" {
				place += ": "
			}
			row("  "+f.Severity, "%s%s", place, f.Message)
		}
	}
}

// effectRows are the rows of the effects, each with its approvals.
func effectRows(v *taskapi.View, row func(name, format string, args ...any)) {
	for i := range v.Effects {
		e := &v.Effects[i]
		row("effect", "%s %s %s: %s", e.Key, e.Kind, e.State, cmp.Or(e.RequestedAction, "(no description)"))
		if e.Digest != "" {
			row("  request", "%s", e.Digest)
		}
		for j := range v.Approvals {
			if a := &v.Approvals[j]; a.EffectID == e.ID {
				row("  approval", "%s %s", a.ID, standing(a))
			}
		}
	}
}

func (t *command) show(v *taskapi.View) error {
	var b strings.Builder
	row := rows(&b)
	row("task", "%s", v.ID)
	row("title", "%s", v.Title)
	row("phase", "%s, revision %d", v.Phase, v.Revision)
	if v.Origin != "" {
		row("imported", "from %s", v.Origin)
	}
	row("workspace", "%s", v.Workspace)
	specRows(&v.Spec, row)
	for _, m := range v.Missing {
		row("  to mend", "%s", m)
	}
	if len(v.OpenDependencies) > 0 {
		row("waits for", "%s", strings.Join(v.OpenDependencies, ", "))
	}
	for i := range v.Attempts {
		a := &v.Attempts[i]
		row(fmt.Sprintf("attempt %d", a.Ordinal), "%s by %s %s %s", a.Status, a.Actor, a.Failure, a.Error)
	}
	madeRows(v, row)
	reviewRows(v, row)
	effectRows(v, row)
	for _, o := range v.Transitions {
		switch {
		case o.Allowed && o.Via == task.ByCloseCircuit:
			row("may go to", "%s, by ocipd task circuit close --to %s", o.To, o.To)
		case o.Allowed && o.Via == task.ByOpenCircuit:
			row("may go to", "%s, by ocipd task circuit open", o.To)
		case o.Allowed:
			row("may go to", "%s", o.To)
		default:
			row("not yet to", "%s: it needs %s", o.To, task.Needs(o.Guards))
		}
	}
	if len(v.More) > 0 {
		row("left out", "the older %s", strings.Join(v.More, ", "))
	}
	circuitRows(v, row)
	_, err := fmt.Fprint(t.Stdout, b.String())
	return err
}
