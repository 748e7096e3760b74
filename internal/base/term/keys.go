package term

import (
	"fmt"
	"slices"
	"strings"
)

// KeyLine is a line of keys with what they do, apart by two blanks, in at most so many
// cells. Where it is too long, what stands before the last two is left out, from the right
// and never the first: how to get help, and how to leave, are there on any terminal.
func KeyLine(keys string, width int) string {
	list := strings.Split(keys, "  ")
	for len(list) > 3 && Width(strings.Join(list, "  ")) > width {
		list = slices.Delete(list, len(list)-3, len(list)-2)
	}
	return Cut(strings.Join(list, "  "), width)
}

// KeyHelp explains keys, each with what it does, in lines of at most so many cells.
func KeyHelp(keys [][2]string, width int) (lines []string) {
	wide := 0
	for _, k := range keys {
		wide = max(wide, Width(k[0])+2)
	}
	for _, k := range keys {
		name := k[0]
		for _, does := range Fold(k[1], max(8, width-wide-3)) {
			lines = append(lines, Cut(fmt.Sprintf("  %-*s %s", wide, name, does), width))
			name = ""
		}
	}
	return lines
}
