package approvalsui

import "github.com/openclawos/ocipd/internal/base/term"

// help shows the keys; from is the first visible line.
type help struct {
	shown bool
	from  int
}

// helpRoom is the number of visible lines of the help.
func helpRoom(height int) int { return max(1, height-1) }

// next shows the next part of the help, or closes it.
func (h *help) next(width, height int) {
	if h.from += helpRoom(height); h.from >= len(keyHelp(width)) {
		*h = help{}
	}
}

// lines are the visible lines of the help.
func (h *help) lines(width, height int) []string {
	lines := keyHelp(width)
	if len(lines) <= height {
		return append(lines, make([]string, height-len(lines))...)
	}
	lines = lines[min(h.from, len(lines)-1):]
	more := "any key closes this help"
	room := helpRoom(height)
	if len(lines) > room {
		more = term.Count(len(lines)-room, "more line") + ": any key goes on"
		lines = lines[:room]
	}
	lines = append(lines, make([]string, room-len(lines))...)
	return append(lines, term.Cut(more, width))[:max(1, height)]
}

// keyHelp describes all keys.
func keyHelp(width int) []string {
	return append([]string{"ocipd approvals: keys", ""}, term.KeyHelp([][2]string{
		{"up, down, k, j", "choose a request; in a page, scroll by a line"},
		{"page keys", "go through the list by pages, as ctrl+d and ctrl+u; home and end too"},
		{"space", "scroll the page below; shift+space goes back"},
		{"enter", "read the request on the whole screen; esc goes back"},
		{"i", "show what ocipd adds too, or fold it again"},
		{"a", "approve exactly what is shown"},
		{"d", "deny; the exchange ends"},
		{"t", "take over: send it, or other words, as your own"},
		{"r", "resolve: deny it and settle the exchange"},
		{"c", "deny an effect and ask its task for changes; n says which"},
		{"m", "mark, or no longer; a, d, t, r, c then ask about each marked"},
		{"M", "mark all that are listed; d and A then deny all"},
		{"n", "write a note for the record of the next decision"},
		{"/", "list only requests with a text; esc ends that"},
		{"o", "the likeliest first, or the oldest"},
		{"g", "one row for equal texts to one receiver and for its unlikely ones, or a row for each; a approves the unlikely together, with every text shown"},
		{"q", "quit"},
		{"?", "this help; any key closes it"},
	}, width)...)
}
