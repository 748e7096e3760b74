package taskcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/openclawos/ocipd/examples"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/spf13/cobra"
)

func (t *command) newFiles() *cobra.Command {
	return &cobra.Command{
		Use:     "files DIR",
		Example: "  ocipd task files workflows",
		Short:   "write the workflows of the protocol into a folder",
		Long: `Write the workflows of the protocol into a folder: ocip.lobster for Lobster, and
ocip-protocol.prose.md and ocip-protocol.prose for OpenProse. A file that is there with
another content is not replaced, and the exit code is 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return t.files(args[0]) },
	}
}

func (t *command) files(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder: %w", err)
	}
	var kept []string
	err := fs.WalkDir(examples.Workflows(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(examples.Workflows(), name)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, path.Base(name))
		switch there, err := cli.ReadFile(file); {
		case err == nil && string(there) == string(text):
		case err == nil:
			kept = append(kept, file)
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			// A dangling link is not a usable place either.
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			if _, err := f.Write(text); err != nil {
				return errors.Join(err, f.Close(), os.Remove(file))
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(t.Stdout, file)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("cannot write the workflows: %w", err)
	case len(kept) > 0:
		fmt.Fprintf(t.Stderr, "kept, as they differ from ours: %s\n", strings.Join(kept, ", "))
		return cli.ErrSaid
	}
	return nil
}
