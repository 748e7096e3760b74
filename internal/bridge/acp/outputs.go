package acp

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// maxOutputs is how many files are recorded of an attempt, and maxSeen how many names
	// of a workspace are looked at.
	maxOutputs = 200
	maxSeen    = 100_000
	// anyFolders stands for any folders in a pattern, and maxAny is how often it may.
	anyFolders = "**"
	maxAny     = 4
)

// outputs are the files of a workspace that match a spec's outputs: names, or patterns with
// *, ? and [], where ** stands for any folders. An entry that is no such thing is left out.
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

// pattern is an entry of a spec's outputs by its names, nil where it is none.
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

// match reports whether the names of a path match a pattern.
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
