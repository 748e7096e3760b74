package task

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/test/buildtest"
)

// Whoever writes a spec cannot keep the daemon busy with it: what is nested deep, or what a
// parser of Markdown looks far ahead for, is read as fast as anything else.
func TestHostileMarkdown(t *testing.T) {
	const size, limit = 256 << 10, 4 * time.Second
	for _, part := range []string{
		"> ", "- ", "1. ", "> - ", "- > 1) ", "[a](", "[", "![a", "*_", "[a]: b\n", "[a]: <b\n", "<a ", "`", "# ", "\t", "\r",
		strings.Repeat("> ", maxNested+8) + "a\n", strings.Repeat("- 1. ", maxNested/2) + "a\n",
	} {
		began := buildtest.Used(t)
		ReadMarkdown([]byte("# Goal\n" + strings.Repeat(part, size/len(part))))
		if took := buildtest.Used(t) - began; took > limit {
			t.Errorf("%d bytes of %.20q take %s", size, part, took)
		}
	}
}

// What is nested too deep is text, and what stands around it is as it was.
func TestShallow(t *testing.T) {
	deep := strings.Repeat("> ", maxNested)
	for text, want := range map[string]string{
		"":                                    "",
		"> > a\n- 1. b":                       "> > a\n- 1. b",
		deep + "a\n":                          deep[:len(deep)-1] + "\\ a\n",
		"a\n" + deep + "> a\nb\n" + deep:      "a\n" + deep[:len(deep)-1] + "\\ > a\nb\n" + deep[:len(deep)-1] + "\\ ",
		strings.Repeat("- ", maxNested) + ">": strings.Repeat("- ", maxNested) + "\\>",
		strings.Repeat("-", 2*maxNested):      strings.Repeat("-", 2*maxNested),
	} {
		if got := string(shallow([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	f, title := ReadMarkdown([]byte("# T\n## Risks\n- a\n\n" + deep + deep + "b\n## Scope\n- c [d]\n\n[d]: e\n"))
	if title != "T" || len(f.Risks) != 2 || f.Risks[0] != "a" || !strings.Contains(f.Risks[1], "b") || !slices.Equal(f.ScopeIn, []string{"c [d]", "[d]: e"}) {
		t.Errorf("%q: %+v", title, f)
	}
}
