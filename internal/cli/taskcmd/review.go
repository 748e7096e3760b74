package taskcmd

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/spf13/cobra"
)

func newReview(t *command) *cobra.Command {
	var as, verdict, summary string
	var findings []string
	c := t.about(&cobra.Command{
		Use: "review TASK",
		Example: "  ocipd task review tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --as checker --verdict approved\n" +
			"  ocipd task review tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7 --verdict changes_requested --finding 'csv.go:12: major: no test of quotes'",
		Short: "review a task's spec or its result",
		Long: `Review a task: its spec while the spec is under review, otherwise its result. With
a reviewer's token the review is that reviewer's. A person reviews with --as NAME;
the command then issues itself a grant for that reviewer.`,
	}, func(ctx context.Context, id string) error { return t.review(ctx, id, as, verdict, summary, findings) })
	flags := c.Flags()
	flags.StringVar(&as, "as", "", "review as this `ACTOR`, by a grant that is made for it")
	flags.StringVar(&verdict, "verdict", "", "the `VERDICT`: "+strings.Join(task.Verdicts(), ", "))
	flags.StringVar(&summary, "summary", "", "`TEXT` that says why")
	flags.StringArrayVar(&findings, "finding", nil, "one `FINDING`, FILE:LINE: severity: message, where severity is "+strings.Join(task.Severities(), ", ")+"; FILE, or FILE and LINE, may be left out; once for each")
	cli.KeyFlag(c, &t.key)
	cli.Required(c, "verdict")
	cli.Choices(c, "verdict", task.Verdicts())
	return c
}

func (t *command) review(ctx context.Context, id, as, verdict, summary string, findings []string) error {
	token, err := t.token()
	if err != nil {
		return err
	}
	if as != "" {
		var granted taskapi.Granted
		expires := 600
		if err := t.said(t.OperateSigned(ctx, t.key, "task.grant", &taskapi.GrantParams{TaskID: id, Actor: as, ExpiresS: &expires}, &granted)); err != nil {
			return err
		}
		token = granted.Token
	}
	if token == "" {
		return cli.Usagef("cannot review as an operator: name the reviewer with --as")
	}
	ctx, cancel := context.WithTimeout(ctx, cli.AnswerTime)
	defer cancel()
	path, err := t.KernelSocket()
	if err != nil {
		return err
	}
	name, role, err := t.attached(ctx, path, token)
	if err != nil {
		return err
	}
	c, err := t.attach(ctx, token)
	if err != nil {
		return err
	}
	defer c.Close()
	var v taskapi.View
	if err := t.said(c.Call(ctx, "task.get", &taskapi.GetParams{Ref: taskapi.Ref{TaskID: id}}, &v)); err != nil {
		return err
	}
	p := taskapi.ReviewParams{Write: write(id), AttemptID: v.CurrentAttempt, ReviewType: task.ReviewSpec, ReviewerRef: name, Verdict: verdict, Summary: summary, Findings: []task.Finding{}}
	if role == string(task.QualityReviewer) {
		p.ReviewType = task.ReviewQuality
	}
	for _, f := range findings {
		p.Findings = append(p.Findings, finding(f))
	}
	var raw jsontext.Value
	if err := t.said(c.Call(ctx, "task.append_review", &p, &raw)); err != nil {
		return err
	}
	if t.asJSON {
		_, err := t.Stdout.Write(t.Screen().JSONLine(raw))
		return err
	}
	_, err = fmt.Fprintf(t.Stdout, "%s says of %s: %s\n", name, id, verdict)
	return err
}

// usualSeverity is that of a finding that says none.
const usualSeverity = "major"

// placedFinding is a finding with its place: a file or an artifact, and a line.
var placedFinding = regexp.MustCompile(`(?s)^(\S.*?):(?:(\d+):)?\s*(?:(critical|major|minor):)?\s*(\S.*)$`)

// finding reads a finding from the command line: severity: message, behind FILE: or FILE:LINE: if it
// has a place. A place that is the address of an artifact has ://. The daemon refuses a severity that
// there is not.
func finding(text string) task.Finding {
	word, message, ok := strings.Cut(text, ":")
	if !ok {
		return task.Finding{Severity: usualSeverity, Message: strings.TrimSpace(text)}
	}
	plain := task.Finding{Severity: strings.TrimSpace(word), Message: strings.TrimSpace(message)}
	if slices.Contains(task.Severities(), plain.Severity) {
		return plain
	}
	m := placedFinding.FindStringSubmatch(text)
	if scheme := strings.Index(text, "://"); scheme >= 0 && (m == nil || len(m[1]) == scheme) {
		// The colon of the scheme ends no place.
		if m = placedFinding.FindStringSubmatch(text[scheme+len("://"):]); m != nil {
			m[1] = text[:scheme+len("://")] + m[1]
		}
	}
	if m == nil || m[2] == "" && m[3] == "" {
		return plain
	}
	f := task.Finding{Severity: cmp.Or(m[3], usualSeverity), Message: m[4], File: m[1]}
	f.Line, _ = strconv.Atoi(m[2]) // digits, or none
	if strings.Contains(f.File, "://") {
		f.File, f.URI = "", f.File
	}
	return f
}

// attached asks for the holder of a token.
func (t *command) attached(ctx context.Context, path, token string) (name, role string, err error) {
	c, err := client.Dial(ctx, path)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	var a taskapi.Attached
	err = t.said(c.Call(ctx, "task.attach", &taskapi.AttachParams{Token: token}, &a))
	return a.Actor, string(a.Role), err
}
