// Package policies holds the default policy in Rego, with its tests.
//
// It serves where the operator names no policy of their own, and is the example
// to write one from: a folder of .rego files that replaces these as a whole.
package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.rego
var files embed.FS

// FS returns the default policy's files, tests (_test.rego) included.
func FS() fs.FS { return files }

//go:embed own/*.rego
var own embed.FS

// Starter returns the files to write one's own policy from, by name: the default
// policy, which asks a person where a question is raised, and rules of one's own as an
// example, with their tests.
func Starter() (map[string]string, error) {
	starter := make(map[string]string)
	for _, fsys := range []fs.FS{files, own} {
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(fsys, name)
			starter[path.Base(name)] = string(text)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("cannot read the built-in policy: %w", err)
		}
	}
	// The default policy asks nobody, and so has no questions.
	starter["agent_exchange.rego"] = strings.NewReplacer(
		`"require_approval": false,`, `"require_approval": count(questions) > 0,`,
		"reason := concat(\"; \", sort(denials)) if count(denials) > 0\n",
		"reason := concat(\"; \", sort(denials)) if count(denials) > 0\n\nelse := concat(\"; \", sort(questions)) if count(questions) > 0\n",
	).Replace(starter["agent_exchange.rego"]) + "\n# Nobody is asked but by rules of one's own.\nquestions contains \"\" if false\n"
	return starter, nil
}
