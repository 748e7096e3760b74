package taskcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/examples"
	"github.com/openclawos/ocipd/internal/bridge/skill"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

func newFiles(t *command) *cobra.Command {
	return &cobra.Command{
		Use:     "files DIR",
		Example: "  ocipd task files workflows\n  cp -r workflows/ocipd-tasks ~/.claude/skills/",
		Short:   "write the skills and workflows of the protocol into a folder",
		Long: `Write the files of the protocol into a folder: the Agent Skill ocipd-tasks, which is
ocipd-tasks-zh in Chinese, for OpenClaw, Claude Code, Codex and other clients; ocip.lobster
for Lobster; and ocip-protocol.prose.md and ocip-protocol.prose for OpenProse. A file that is
there with another content is not replaced, and the exit code is 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return writeFiles(t, args[0]) },
	}
}

// protocolFiles are the files of the protocol.
func protocolFiles() ([]skill.File, error) {
	list, err := skill.Files()
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(examples.Workflows(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(examples.Workflows(), name)
		list = append(list, skill.File{Path: path.Base(name), Text: text})
		return err
	})
	slices.SortFunc(list, func(a, b skill.File) int { return strings.Compare(a.Path, b.Path) })
	return list, err
}

// writeFiles writes the files of the protocol into a folder.
func writeFiles(t *command, dir string) error {
	list, err := protocolFiles()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // every file is closed by then
	var kept []string
	for _, f := range list {
		file := filepath.Join(dir, filepath.FromSlash(f.Path))
		switch same, err := writeOnce(root, &f); {
		case err != nil:
			return fmt.Errorf("cannot write the files of the protocol: %w", err)
		case !same:
			kept = append(kept, file)
		default:
			fmt.Fprintln(t.Stdout, file)
		}
	}
	if len(kept) > 0 {
		fmt.Fprintf(t.Stderr, "kept, as they differ from ours: %s\n", strings.Join(kept, ", "))
		return cli.ErrSaid
	}
	return nil
}

// writeOnce writes a file that is not there, and reports whether the folder then has it as it is
// to be.
func writeOnce(root *os.Root, f *skill.File) (same bool, err error) {
	there, err := root.ReadFile(f.Path)
	if err == nil {
		return bytes.Equal(there, f.Text), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := root.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
		return false, err
	}
	// A dangling link is not a usable place either.
	file, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	if _, err := file.Write(f.Text); err != nil {
		return false, errors.Join(err, file.Close(), root.Remove(f.Path))
	}
	return true, file.Close()
}
