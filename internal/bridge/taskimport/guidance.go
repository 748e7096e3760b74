package taskimport

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Limits of the search for instructions to agents.
const (
	maxGuidance      = 256 << 10
	maxGuidanceFiles = 500
	maxDepth         = 4
)

// guides are the names of files with instructions to agents, and guideDirs the folders of such files.
func guides() []string { return []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md", "SKILL.md"} }

func guideDirs() []string {
	return []string{"agents", "prompts", "skills", ".agents", ".claude", ".codex", ".openclaw", "references"}
}

// former matches terms of the first version.
var former = regexp.MustCompile(`shared/blackboard\.json|\bblackboard\.json\b|\bsessionKey\b|\.beads/|\bbd (create|update|close|ready|sync|list|show|dep)\b|\bsessions_send\b`)

// guidance finds instructions to work by the first version. If the user does not delete
// them, agents keep writing files that nobody reads.
func (r *reader) guidance() {
	left := maxGuidanceFiles
	r.guidanceIn(".", 0, &left)
}

func (r *reader) guidanceIn(dir string, depth int, left *int) {
	entries, err := fs.ReadDir(r.files, dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case *left <= 0:
			return
		case e.IsDir() && depth < maxDepth && (depth > 0 || slices.Contains(guideDirs(), e.Name())):
			r.guidanceIn(name, depth+1, left)
		case !e.Type().IsRegular():
		case slices.Contains(guides(), e.Name()), depth > 0 && (strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".prose")), depth == 0 && strings.HasSuffix(name, ".prose"):
			*left--
			r.guide(name)
		}
	}
}

// guide notes the first line of a file that mentions the first version.
func (r *reader) guide(name string) {
	f, err := r.files.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGuidance))
	if err != nil {
		return
	}
	found := former.FindAllIndex(text, -1)
	if len(found) == 0 {
		return
	}
	line := bytes.Count(text[:found[0][0]], []byte("\n")) + 1
	more := ""
	if n := len(found) - 1; n > 0 {
		more = ", and in " + itoa(n) + " more places"
	}
	add(&r.p.Guidance, Note{File: name, Line: line}, "it speaks of %q%s", text[found[0][0]:found[0][1]], more)
}
