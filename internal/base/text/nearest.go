package text

import "strings"

// Near returns the number of letters by which a helpful guess may differ from a word.
func Near(word string) int { return max(1, len(word)/3) }

// Nearest returns the word that differs from s in the fewest letters, or "" if none differs in at
// most limit. A word cut short counts as near. A swap of neighbours counts as one letter.
func Nearest(s string, words []string, limit int) string {
	if len(s) > 64 {
		return ""
	}
	best := ""
	for _, w := range words {
		d := distance(s, w)
		if len(s) > 2 && strings.HasPrefix(w, s) {
			d = min(d, 1)
		}
		if d <= limit {
			best, limit = w, d-1
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their neighbour to turn a
// into b.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
