// Package outputs reads the outputs that a specification declares, and says whether a name is one
// of them.
package outputs

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	// anyFolders stands for any folders in a pattern, at most maxAny times.
	anyFolders = "**"
	maxAny     = 4
)

// extension ends the name of a file.
var extension = regexp.MustCompile(`\.[A-Za-z][A-Za-z0-9]{0,9}$`)

// Declared are the outputs of a specification. An entry is a name, or a pattern with *, ?, [] and
// **, which stands for any folders, or a text about an output; a text may have names in backquotes.
type Declared struct {
	patterns [][]string
	// names are the entries and the texts in backquotes, as they are written.
	names []string
	// named is set if an entry surely names something: it has backquotes, or it is one word that has
	// an extension, a slash or a sign of a pattern. Other words may describe an output that has
	// another name.
	named bool
}

// Of reads the entries of a specification.
func Of(entries []string) (d Declared) {
	for _, entry := range entries {
		names, quoted := []string{entry}, strings.Split(entry, "`")
		if len(quoted) > 2 {
			names = nil
			for i := 1; i < len(quoted)-1; i += 2 {
				names = append(names, quoted[i])
			}
			d.named = true
		}
		for _, name := range names {
			name = strings.TrimSpace(name)
			d.names = append(d.names, name)
			if p := pattern(name); p != nil {
				d.patterns = append(d.patterns, p)
				d.named = d.named || sure(name)
			}
		}
	}
	return d
}

// sure reports whether a word is a name rather than a description. In a script without blanks
// between words, a sentence is one word too.
func sure(word string) bool {
	if extension.MatchString(word) || strings.ContainsAny(word, "*?[") || strings.HasSuffix(word, "/") {
		return true
	}
	beyond := func(r rune) bool { return r > '~' }
	return strings.Contains(word, "/") && !strings.ContainsFunc(word, beyond)
}

// Patterns reports whether an entry can be looked for among files.
func (d *Declared) Patterns() bool { return len(d.patterns) > 0 }

// Match reports whether a path of the workspace matches an entry.
func (d *Declared) Match(name string) bool {
	names := strings.Split(name, "/")
	return slices.ContainsFunc(d.patterns, func(p []string) bool { return match(p, names) })
}

// Has reports whether an artifact of this name is a declared one. Where the entries only describe
// the outputs, any name may be meant.
func (d *Declared) Has(uri string) bool {
	return !d.named || slices.Contains(d.names, uri) || d.Match(uri)
}

// pattern splits a word into names, and returns nil if it is not a pattern of the workspace.
func pattern(word string) []string {
	word = strings.TrimPrefix(word, "./")
	if word == "" || strings.HasPrefix(word, "/") || strings.ContainsAny(word, " \t\n") {
		return nil
	}
	if strings.HasSuffix(word, "/") {
		word += anyFolders
	}
	names := slices.CompactFunc(strings.Split(path.Clean(word), "/"), func(a, b string) bool { return a == anyFolders && b == anyFolders })
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
