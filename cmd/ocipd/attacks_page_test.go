package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	attacksPage = "../../docs/for-auditors/attacks.md"
	attacksHead = `# Attacks and messages

<!-- Made by "make reference" from the samples of TestAttacks. Do not edit. -->

` + "`TestAttacks`" + ` attacks copies of a real log, and keeps each command with its output in [attacks.txt](../../cmd/ocipd/testdata/attacks.txt). It also
changes every bit, cuts the log at every offset, and drops, doubles, swaps, replaces and inserts every record. ` + "`N`" + ` stands for a number and ` + "`…`" + ` for
a hash.

- A changed record shows in this record; with a corrected hash, in the next one; with all later records corrected, in the next checkpoint.
- Every file has to match the manifest. Two files with the same record numbers are a fault, except a segment and its compressed copy.
- The verifier judges signed evidence first, so a false checkpoint hides nothing. After *another key in the place of the log's*
  and *a receipt that was made up*, the log itself is sound.

| message | attacks |
| --- | --- |
`
)

// TestAttacksPage holds the page of attacks against the samples of TestAttacks: each message with the
// attacks that it finds. The other pages show the attacks that pass, and a log without any. With
// UPDATE_SAMPLES in the environment the page is written anew.
func TestAttacksPage(t *testing.T) {
	t.Parallel()
	kept := readPage(t, sampleFile)
	var messages []string
	attacks := map[string][]string{}
	others := readPage(t, "../../docs/for-auditors/verifying.md") + readPage(t, "../../docs/for-auditors/what-no-log-shows.md")
	for section := range strings.SplitSeq(strings.TrimPrefix(kept, "-- "), "\n-- ") {
		name, sample, _ := strings.Cut(section, " --\n")
		sample = strings.TrimSpace(sample)
		message := messageOf(sample)
		if strings.HasSuffix(sample, "\n0") {
			listed := slices.ContainsFunc(strings.Split(others, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "| "+message+" | ") && strings.Contains(line, name)
			})
			if !listed && !strings.Contains(others, "```console\n"+sample+"\n```") {
				t.Errorf("no page of docs/for-auditors shows %s, or has the row %q", section, message)
			}
			continue
		}
		if !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
		attacks[message] = append(attacks[message], name)
	}
	var page strings.Builder
	page.WriteString(attacksHead)
	for _, message := range messages {
		fmt.Fprintf(&page, "| %s | %s |\n", message, strings.Join(attacks[message], "; "))
	}
	if os.Getenv("UPDATE_SAMPLES") != "" {
		if err := os.WriteFile(attacksPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(messages) < 15 || readPage(t, attacksPage) != page.String() {
		t.Errorf("docs/for-auditors/attacks.md is stale: make reference writes it")
	}
}
