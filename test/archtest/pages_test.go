package archtest

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

const (
	pageBytes     = 20 << 10
	freeRelatives = 0.04 // a sentence
)

var (
	// freeRelative is a clause that stands for a noun which nobody named, as in "what
	// leaves a channel" or "who writes it is asked". The reader has to guess the noun.
	freeRelative = regexp.MustCompile(`(?:^|[,;:(]\s|\b(?:and|or|of|by|from|to|with|is|are|says|in|on|that|about|than|for|all|beside|as)\s)` +
		`(?:[Ww]hat|[Ww]hoever|[Ww]hatever|[Ww]ho|[Ww]here|[Ww]hose)\s`)
	sentenceEnd = regexp.MustCompile(`[.!?:]\s+`)
)

// sentences are those of a page of more than three words, without code, tables and titles.
func sentences(text string) (list []string) {
	var paragraph []string
	end := func() {
		for _, s := range sentenceEnd.Split(strings.Join(paragraph, " "), -1) {
			if len(strings.Fields(s)) > 3 {
				list = append(list, s)
			}
		}
		paragraph = nil
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
			line = ""
		}
		if code || line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--") {
			end()
			continue
		}
		if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") {
			end()
		}
		paragraph = append(paragraph, strings.TrimLeft(line, "-* "))
	}
	end()
	return list
}

// generated is in pages that a command makes from a table, for looking things up.
const generated = "Do not edit. -->"

// TestPages holds pages to a size that a reader takes in at once, and to sentences that
// name their nouns. Records of decisions are left as they were written.
func TestPages(t *testing.T) {
	for _, f := range tree(t) {
		if !strings.HasSuffix(f.rel, ".md") || f.rel == "CHANGELOG.md" || strings.HasPrefix(f.rel, "docs/adr/") || strings.HasPrefix(f.rel, "examples/prose/") {
			continue
		}
		if len(f.text) > pageBytes && !strings.Contains(f.text, generated) {
			t.Errorf("%s has %d bytes, more than %d: make two pages of it", f.rel, len(f.text), pageBytes)
		}
		for _, row := range cutRows(pageCode.ReplaceAllString(f.text, "")) {
			t.Errorf("%s has a row of a table without its head: %s", f.rel, row)
		}
		namesItsNouns(t, f.rel, sentences(f.text), 1) // a short page may have one
	}
}

// cutRows are the first rows of tables without a head, such as rows after an empty line.
func cutRows(text string) (rows []string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		first := i == 0 || !strings.HasPrefix(lines[i-1], "|")
		if first && strings.HasPrefix(line, "|") && (i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "| --")) {
			rows = append(rows, line)
		}
	}
	return rows
}

// TestComments holds the comments of each package to sentences that name their nouns.
func TestComments(t *testing.T) {
	packages := map[string][]string{}
	for _, f := range tree(t) {
		folder, _, ours := strings.Cut(f.rel, "/")
		if f.parsed == nil || !ours || folder != "cmd" && folder != "internal" || strings.HasSuffix(f.rel, "_test.go") {
			continue
		}
		for _, c := range f.parsed.Comments {
			packages[path.Dir(f.rel)] = append(packages[path.Dir(f.rel)], sentences(c.Text())...)
		}
	}
	for folder, all := range packages {
		namesItsNouns(t, "comments of "+folder, all, 2)
	}
}

// namesItsNouns reports sentences with a clause in place of a noun, if they are more than few and more than the limit.
func namesItsNouns(t *testing.T, where string, all []string, few int) {
	t.Helper()
	var found []string
	for _, s := range all {
		if freeRelative.MatchString(s) {
			found = append(found, s)
		}
	}
	if limit := max(few, int(freeRelatives*float64(len(all)))); len(found) > limit {
		t.Errorf("%s: %d of %d sentences have a clause in place of a noun, such as \"what leaves\"; at most %d may:\n\t%s",
			where, len(found), len(all), limit, strings.Join(found, "\n\t"))
	}
}

// TestSentences finds clauses without a noun, and leaves others alone.
func TestSentences(t *testing.T) {
	for text, want := range map[string]int{
		"The daemon refuses what leaves a channel too often.":           0, // no word before it says that it stands for a noun
		"Who writes to a stranger is asked about it.":                   1,
		"The record says who decided about the message.":                1,
		"The person who decides sees the whole text of it.":             0,
		"```sh\nwhat is this that stands here now\n```\n":               0,
		"| who has them | what is it | of what is it |\n":               0,
		"# What a page of this kind is about\n":                         0,
		"A first sentence is here.\n- It depends on what is found here": 1,
	} {
		count := 0
		for _, s := range sentences(text) {
			count += len(freeRelative.FindAllString(s, -1))
		}
		if count != want {
			t.Errorf("%q has %d, want %d", text, count, want)
		}
	}
}
