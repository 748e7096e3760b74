package hook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Page is the reference page of the runtimes with command hooks, as Markdown. Each row links to the page
// of [Row.Page].
func Page() []byte {
	var b strings.Builder
	b.WriteString(`# Runtimes with command hooks

Each of these runtimes runs a command before a call of a tool. [` + "`ocipd hook`" + `](commands.md) is that command:
it asks the daemon, and answers in the runtime's form. [The guide](../guides/agent-runtimes.md) explains how to put a
runtime behind the daemon. [OpenCode](../guides/opencode.md) and [OpenClaw](../guides/openclaw.md) have plugins instead.
This page and the page of each runtime come from the table of runtimes in ocipd (` + "`ocipd protocol runtimes`" + `).

A call that the daemon cannot decide is refused: without a daemon, with a question that ocipd cannot read, and after
` + fmt.Sprint(hookWait-int(margin.Seconds())) + ` seconds without an answer. A call that a person has to approve waits up to ` + fmt.Sprint(int(hookWait*holdShare)) + ` seconds, and is refused
then; once it is approved, the same call is let through. Claude Code without a person ends its turn instead, to be resumed.

For Claude Code and Codex, ` + "`ocipd integrate`" + ` enters a server that their hooks ask, in place of a command: a call
then costs no start of a program, and Claude Code refuses it also if nothing is said. ` + "`ocipd hook`" + ` answers command
hooks that you enter there yourself.

| runtime | program | least version | run with ocipd | without an answer |
| --- | --- | --- | --- | --- |
`)
	rows := Rows()
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, "| [%s](runtimes/%s.md) | `%s` | %s | %s | %s |\n", r.Title, r.Name, r.Program, r.least(), r.run(), r.withoutAnswer())
	}
	return []byte(b.String())
}

func (r *Row) least() string {
	if r.Least == [3]int{} {
		return "not known"
	}
	return fmt.Sprintf("%d.%d.%d", r.Least[0], r.Least[1], r.Least[2])
}

func (r *Row) run() string { return cmp.Or(r.Run, "not run here") }

// withoutAnswer says briefly how the hook fails.
func (r *Row) withoutAnswer() string {
	closed := func(f Failure) bool { return f.Closed }
	switch {
	case !slices.ContainsFunc(r.Fails, closed):
		return "fails open"
	case slices.ContainsFunc(r.Fails, func(f Failure) bool { return !f.Closed }):
		return "fails closed, with exceptions"
	}
	return "fails closed"
}

// Page is the page of a runtime, as Markdown.
func (r *Row) Page() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.Title)
	fmt.Fprintf(&b, "`ocipd integrate %s` puts %s behind the daemon. [The guide](../../guides/%s) explains the command. This page comes from the table of\n"+
		"runtimes in ocipd (`ocipd protocol runtimes %s`); [all runtimes](../runtimes.md) have the same rules for calls that nobody decides.\n\n", r.Name, r.Title, r.Guide, r.Name)
	if r.Run == "" {
		b.WriteString("ocipd was not run with this program: the page is from the program's documentation.\n\n")
	}
	if r.Guide != sharedGuide {
		fmt.Fprintf(&b, "`ocipd integrate` enters a server that the hooks of %s ask. The answers and failures below are those of `ocipd hook`, the command\nfor hooks that you enter yourself.\n\n", r.Title)
	}
	var events []string
	for _, e := range r.Events {
		events = append(events, "`"+e.Name+"`")
	}
	b.WriteString("| | |\n| --- | --- |\n")
	for _, row := range [][2]string{
		{"program", "`" + r.Program + "`"},
		{"least version", r.least()},
		{"run with ocipd", r.run()},
		{"files that are changed", strings.Join(r.Files, "; ")},
		{"asks at", strings.Join(events, "; ")},
		{"to refuse, ocipd says", "`" + r.Events[0].Answers["deny"].Out + "`"},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, line := range lines {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	list("Gated", r.Gated)
	list("Not gated", r.Open)
	b.WriteString("\n## Failures\n\n| if | then |\n| --- | --- |\n")
	for _, f := range r.Fails {
		does := "the call goes through"
		if f.Closed {
			does = "the call is refused"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", f.How, does)
	}
	list("Switching it off", append([]string{fmt.Sprintf("`ocipd integrate %s --remove` takes every change back.", r.Name)}, r.Off...))
	return []byte(b.String())
}
