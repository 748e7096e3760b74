package term

import (
	"fmt"
	"slices"
	"strings"
)

// KeyLine returns a line of keys and their actions, separated by two blanks, in at most that many
// cells. If it is too long, KeyLine leaves out entries from the right, but never the first one and
// the last two, which open the help and leave: any terminal shows them.
func KeyLine(keys string, width int) string {
	list := strings.Split(keys, "  ")
	for len(list) > 3 && Width(strings.Join(list, "  ")) > width {
		list = slices.Delete(list, len(list)-3, len(list)-2)
	}
	return Cut(strings.Join(list, "  "), width)
}

// KeyHelp explains keys and their actions, in lines of at most that many cells.
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
