package acp

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// maxOutputs bounds the files recorded for an attempt. maxSeen bounds the names
	// read in a workspace.
	maxOutputs = 200
	maxSeen    = 100_000
	// anyFolders stands for any folders in a pattern, at most maxAny times.
	anyFolders = "**"
	maxAny     = 4
)

// outputs returns the files of a workspace that match the outputs of a spec. Entries are names,
// or patterns with *, ?, [] and **, which stands for any folders. It skips other entries.
func outputs(dir string, entries []string) (files []string, err error) {
	var patterns [][]string
	for _, e := range entries {
		if p := pattern(e); p != nil {
			patterns = append(patterns, p)
		}
	}
	if len(patterns) == 0 {
		return nil, nil
	}
	seen := 0
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		seen++
		switch {
		case err != nil && name != ".":
			return nil // a folder that cannot be read has no outputs
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case len(files) >= maxOutputs || seen > maxSeen:
			return fs.SkipAll
		case d.Type().IsRegular() && slices.ContainsFunc(patterns, func(p []string) bool { return match(p, strings.Split(name, "/")) }):
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// pattern splits an entry of a spec's outputs into names, and returns nil if it is not a pattern.
func pattern(entry string) []string {
	if _, quoted, ok := strings.Cut(entry, "`"); ok {
		entry, _, _ = strings.Cut(quoted, "`")
	}
	entry = strings.TrimPrefix(strings.TrimSpace(entry), "./")
	if entry == "" || strings.HasPrefix(entry, "/") || strings.ContainsAny(entry, " \t\n") {
		return nil
	}
	if strings.HasSuffix(entry, "/") {
		entry += anyFolders
	}
	names := slices.CompactFunc(strings.Split(path.Clean(entry), "/"), func(a, b string) bool { return a == anyFolders && b == anyFolders })
	count := 0
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == ".." {
			return nil
		}
		if name == anyFolders {
			count++
		}
	}
	if count > maxAny {
		return nil
	}
	return names
}

// match reports whether a path, as a list of names, matches a pattern.
func match(p, names []string) bool {
	if len(p) == 0 {
		return len(names) == 0
	}
	if p[0] == anyFolders {
		for i := range len(names) + 1 {
			if match(p[1:], names[i:]) {
				return true
			}
		}
		return false
	}
	if len(names) == 0 {
		return false
	}
	ok, err := path.Match(p[0], names[0])
	return err == nil && ok && match(p[1:], names[1:])
}
