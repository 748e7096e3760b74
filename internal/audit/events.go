package audit

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// The events of a digest key that is gone: an operator destroyed it, or accepted its loss.
const (
	KeyDestroyed = "digest_key_destroyed"
	KeyLost      = "digest_key_lost"
)

// kindsText is the table of the kinds of records: titles, and rows of action type, events, cause
// and added details. The event "-" stands for records without one.
//
//go:embed kinds.txt
var kindsText string

// membersText has the meaning of each member of a record, in the order of the line: names, and
// what they say.
//
//go:embed members.txt
var membersText string

// kind is a row of the table, or a title.
type kind struct {
	title, action string
	events        []string
	when, adds    string
}

var kinds = sync.OnceValue(func() (list []kind) {
	for line := range strings.Lines(kindsText) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "# "); ok {
			list = append(list, kind{title: title})
		} else if cells := strings.Split(line, " | "); len(cells) == 4 {
			list = append(list, kind{action: cells[0], events: strings.Split(cells[1], ", "), when: cells[2], adds: strings.TrimPrefix(cells[3], "-")})
		} else if line != "" {
			panic("audit: a row of kinds.txt has no four cells: " + line)
		}
	}
	return list
})

// Events returns the events of each action type, as records name them. The event "" stands for
// records without one.
func Events() map[string][]string {
	all := map[string][]string{}
	for _, k := range kinds() {
		for _, event := range k.events {
			if event = strings.TrimPrefix(event, "-"); !slices.Contains(all[k.action], event) {
				all[k.action] = append(all[k.action], event)
			}
		}
	}
	return all
}

// KnownEvent reports whether records of an action type have such an event.
func KnownEvent(actionType, event string) bool { return slices.Contains(Events()[actionType], event) }

// recordsHead begins the reference page, and decisionMembers follows the rows about messages.
const (
	recordsHead = `# Records

<!-- Made by "make reference" from the tables of internal/audit. Do not edit. -->

` + "`actionType` and `event` of a [record](../for-auditors/record-format.md) name its kind. The last column lists the members that an event adds to\n`details`. *Who* is `by, uid`, and *reason* is `policyReason`" + `. A decision on a page adds ` + "`via: console`, `client`\n(the browser: `pid, exe, uid`), and `proof: none` for a click" + `. Events with "about to" precede the action. Refused connections, wrong tokens,
undecodable requests and missing capabilities are not on record.
`
	decisionMembers = `
### Members of a decision

` + "- `changedBy`: the changes. `removed`: removed members. `mended`: the number of half characters replaced by U+FFFD. `cause`: the error of a\n" +
		"  failed policy. Members of the verdict, such as `escalation`.\n" +
		"- `carried`: the runtime delivers. To an agent of this daemon: `envelope` and `chain`.\n" +
		"- `digest, expiresAt` of a held message; `salt`, encrypted, if texts are kept.\n" +
		"- The basis of a permission: `interceptors` (required and asked), `answers` (the last message's request and the sender's debt),\n" +
		"  `firstContact`, `dataLevel`.\n" +
		"- On the receiver's side `peerLog`, the [sender's checkpoint](../for-auditors/witnesses.md#checkpoints-in-messages), or `peerLogMalformed`.\n"
	meaningsHead = `
## Members

The members of a record, in the order of the [line](../for-auditors/record-format.md#the-line).

| member | meaning |
| --- | --- |
`
	membersHead = `
## Names of members

The members of a record have other names in filters, on the command line and in exports.

- *In a filter*: ` + "`audit.query` and `audit.tail`" + `.
- *In a sink's filter*: ` + "`audit.sinks[].filter` takes `key: value`" + ` for each.
- *Redacted as*: the name in ` + "`audit.redact.members`" + `. Members with the same name are redacted together.

| member | in a filter | on the command line | in a sink's filter | redacted as | OTLP | OCSF resource | journal |
| --- | --- | --- | --- | --- | --- | --- | --- |
`
)

// Reference returns the reference page of records as Markdown.
func Reference() []byte {
	b, action, section := new(strings.Builder), "", ""
	b.WriteString(recordsHead)
	for _, k := range kinds() {
		if k.title != "" {
			if section == "Messages" {
				b.WriteString(decisionMembers)
			}
			action, section = "", k.title
			fmt.Fprintf(b, "\n## %s\n\n| `actionType` | `event` | when | adds |\n| --- | --- | --- | --- |\n", k.title)
			continue
		}
		cells := []string{"", "none", k.when, k.adds}
		if k.action != action {
			action, cells[0] = k.action, "`"+k.action+"`"
		}
		if k.events[0] != "-" {
			cells[1] = "`" + strings.Join(k.events, "`, `") + "`"
		}
		writeCells(b, cells)
	}
	b.WriteString(meaningsHead)
	for line := range strings.Lines(membersText) {
		names, meaning, _ := strings.Cut(strings.TrimSpace(line), " | ")
		writeCells(b, []string{"`" + strings.ReplaceAll(names, ", ", "`, `") + "`", meaning})
	}
	b.WriteString(membersHead)
	for _, m := range Members() {
		cells := []string{m.Name, m.Filter, "", m.Key(), m.Redacted, m.OTLP, m.OCSF, m.Journal()}
		if m.Filter != "" {
			cells[2] = "--" + m.Flag
		}
		if strings.Join(cells[1:], "") == "" {
			continue
		}
		for i := range cells {
			if cells[i] != "" {
				cells[i] = "`" + cells[i] + "`"
			}
		}
		writeCells(b, cells)
	}
	return []byte(b.String())
}

// writeCells writes a row of a Markdown table.
func writeCells(b *strings.Builder, cells []string) {
	b.WriteString(strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |\n", "  ", " "))
}
