// Package skill makes the Agent Skills about tasks, for clients such as OpenClaw, Claude Code and
// Codex: one in English and one in Chinese. Their tables come from the tables by which the daemon
// decides, at the time of writing, so that they cannot differ from them.
package skill

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"

	"github.com/openclawos/ocipd/examples"
)

//go:embed files
var pages embed.FS

// File is one file of a skill.
type File struct {
	// Path is the file's path below the folder of skills, with slashes.
	Path string
	Text []byte
}

// ending is the ending of the embedded pages, which are templates.
const ending = ".tmpl"

// programs are the paths, in a skill, of the workflows that it has.
var programs = map[string]string{
	"workflows/ocip-protocol.prose.md": "prose/ocip-protocol.prose.md",
	"lobster/ocip.lobster":             "lobster/ocip.lobster",
}

// Files are the files of all skills.
func Files() (list []File, err error) {
	for _, l := range languages() {
		files, err := l.files()
		if err != nil {
			return nil, fmt.Errorf("cannot write the skill %s: %w", l.skill, err)
		}
		list = append(list, files...)
	}
	return list, nil
}

// files are the files of the skill in one language.
func (l *language) files() (list []File, err error) {
	about, err := l.tables()
	if err != nil {
		return nil, err
	}
	root, err := fs.Sub(pages, "files/"+l.folder)
	if err != nil {
		return nil, err
	}
	parsed, err := template.ParseFS(root, "*"+ending, "*/*"+ending)
	if err != nil {
		return nil, err
	}
	spec, err := fs.ReadFile(root, "spec.md"+ending)
	if err != nil {
		return nil, err
	}
	about["Spec"] = string(spec)
	for _, name := range []string{"SKILL.md", "references/agent-permissions.md", "references/task-store.md", "references/migration.md"} {
		var b bytes.Buffer
		if err := parsed.ExecuteTemplate(&b, path.Base(name)+ending, about); err != nil {
			return nil, err
		}
		list = append(list, File{path.Join(l.skill, name), b.Bytes()})
	}
	for name, source := range programs {
		text, err := fs.ReadFile(examples.Workflows(), source)
		if err != nil {
			return nil, err
		}
		list = append(list, File{path.Join(l.skill, name), text})
	}
	return list, nil
}

// table writes a table in Markdown.
func table(b *strings.Builder, head []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}
