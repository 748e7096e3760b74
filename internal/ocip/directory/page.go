package directory

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
)

// channelsText has a row for each known network: its direct conversations and its groups in session
// keys, and the differences of names, besides capitals, that the network ignores.
//
//go:embed channels.txt
var channelsText string

const channelsHead = `# Channels

<!-- Made by "make reference" from the table of networks. Do not edit. -->

The recipient members are those that the channel's app reads in ` + "`metadata`" + ` ([Addresses](addresses.md#addresses)). *Equal names* are differences that
the network ignores, and *undone text* is the markup that the channel's app removes ([How a text is read](decision.md#how-a-text-is-read)).

| channel | recipient members | direct conversation | group | equal names | undone text |
| --- | --- | --- | --- | --- | --- |
`

// Reference returns the reference page of channels as Markdown. A network without a row is an
// error.
func Reference() ([]byte, error) {
	b, all := new(strings.Builder), networks()
	b.WriteString(channelsHead)
	for line := range strings.Lines(channelsText) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		n, ok := all[cells[0]]
		if !ok || len(cells) != 4 {
			return nil, fmt.Errorf("cannot describe the channel %s: it is no known network", cells[0])
		}
		delete(all, cells[0])
		for i := range cells {
			cells[i] = strings.TrimPrefix(cells[i], "-")
		}
		members := slices.Concat(n.direct, n.group)
		slices.Sort(members)
		equal := cells[3]
		if n.fold == text.CaseASCII || n.fold == text.CaseRFC1459 {
			equal = strings.TrimSuffix("capitals, "+equal, ", ")
		}
		var undone []string
		for _, r := range n.rendering {
			undone = append(undone, "`"+string(r)+"`")
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s | %s |\n", cells[0], strings.Join(slices.Compact(members), "`, `"), cells[1], cells[2], equal, strings.Join(undone, ", "))
	}
	for name := range all {
		return nil, fmt.Errorf("cannot describe the channel %s: channels.txt has no row", name)
	}
	b.WriteString("| any other | any of these, `to`, `room` | `direct:NAME`, `dm:NAME`, `NAME` | `group:NAME`, `channel:NAME`, `room:NAME` | | |\n")
	return []byte(b.String()), nil
}
