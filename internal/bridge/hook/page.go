package hook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Page is the reference page of the runtimes with command hooks, as Markdown.
func Page() []byte {
	var b strings.Builder
	b.WriteString(`# Runtimes with command hooks

Each of these runtimes runs a command before a call of a tool. [` + "`ocipd hook`" + `](commands.md) is that command:
it asks the daemon, and answers in the runtime's form. [The guide](../guides/agent-runtimes.md) explains how to put a
runtime behind the daemon. This page comes from the table of runtimes in ocipd (` + "`ocipd protocol runtimes`" + `).

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
		least := "not known"
		if r.Least != [3]int{} {
			least = fmt.Sprintf("%d.%d.%d", r.Least[0], r.Least[1], r.Least[2])
		}
		closed := "fails closed"
		if slices.ContainsFunc(r.Fails, func(f Failure) bool { return !f.Closed }) {
			closed = "fails closed, except as [below](#" + strings.ReplaceAll(strings.ToLower(r.Title), " ", "-") + ")"
		}
		if !slices.ContainsFunc(r.Fails, func(f Failure) bool { return f.Closed }) {
			closed = "fails open"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", r.Title, r.Program, least, cmp.Or(r.Run, "not run here"), closed)
	}
	for i := range rows {
		rows[i].section(&b)
	}
	return []byte(b.String())
}

func (r *Row) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", r.Title)
	if r.Run == "" {
		b.WriteString("ocipd was not run with this program: the row is from the program's documentation.\n\n")
	}
	b.WriteString("| | |\n| --- | --- |\n")
	list := func(name string, lines []string) {
		fmt.Fprintf(b, "| %s | %s |\n", name, strings.Join(lines, "; "))
	}
	var events []string
	for _, e := range r.Events {
		events = append(events, "`"+e.Name+"`")
	}
	list("asks at", events)
	list("gated", r.Gated)
	if len(r.Open) > 0 {
		list("not gated", r.Open)
	}
	for _, f := range r.Fails {
		does := "the call goes through"
		if f.Closed {
			does = "the call is refused"
		}
		list("if "+f.How, []string{does})
	}
	list("to refuse, ocipd says", []string{"`" + r.Events[0].Answers["deny"].Out + "`"})
	list("a user switches it off by", r.Off)
}
