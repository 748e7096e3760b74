package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words of a private dialect, which a stranger cannot look up, with
// the term to use in their place. They name nothing in the code.
var privateWords = map[string]string{
	"house": "layers, or harness in tests", "hurry": "abort", "hurried": "aborted", "poke": "wake", "farewell": "writeLast", "strike": "inject, or unregister",
	"bury": "prune", "rung": "level", "ladder": "monitor", "crowd": "what there is too much of", "clearance": "binding", "office": "decider",
	"acquaintance": "chain state",
}

// privatePhrases stand for more than they say to a stranger, with the term to use in
// their place. They stand in no document, no help, no configuration and no comment.
var privatePhrases = map[string]string{
	"causal line": "causal chain", "of the house": "of the program", "in vain": "without effect", "another house": "another installation",
	"gone from end to end": "tested from end to end", "the rung": "the level", "made whole": "repaired", "taken to task": "asked",
}

// TestWords holds the words of the code and its documents against both lists.
func TestWords(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names, texts := 0, 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "words_test.go"):
			return nil
		}
		rel, _ := filepath.Rel(root, path)
		switch filepath.Ext(path) {
		case ".go":
			names += checkNames(t, rel, path)
			fallthrough
		case ".md", ".yaml", ".rego":
			texts++
			checkText(t, rel, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if names < 5000 || texts < 300 {
		t.Errorf("only %d names and %d texts were read", names, texts)
	}
}

// checkNames looks at each name that a file declares, and returns how many it has.
func checkNames(t *testing.T, rel, path string) (names int) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var declared []*ast.Ident
		switch n := n.(type) {
		case *ast.FuncDecl:
			declared = append(declared, n.Name)
		case *ast.TypeSpec:
			declared = append(declared, n.Name)
		case *ast.ValueSpec:
			declared = append(declared, n.Names...)
		case *ast.Field:
			declared = append(declared, n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declared = append(declared, id)
				}
			}
		}
		for _, id := range declared {
			names++
			for _, word := range wordsOf(id.Name) {
				if better, private := privateWords[word]; private {
					t.Errorf("%s: the name %s holds %q, say: %s", rel, id.Name, word, better)
				}
			}
		}
		return true
	})
	return names
}

// wordsOf splits a name at its humps, and lowers its letters.
func wordsOf(name string) (words []string) {
	from := 0
	for i, r := range name {
		if i > from && unicode.IsUpper(r) {
			words = append(words, strings.ToLower(name[from:i]))
			from = i
		}
	}
	return append(words, strings.ToLower(name[from:]))
}

var spaces = regexp.MustCompile(`\s+(?://|#)?\s*`)

func checkText(t *testing.T, rel, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flat := spaces.ReplaceAllString(strings.ToLower(string(text)), " ")
	for phrase, better := range privatePhrases {
		if strings.Contains(flat, phrase) {
			t.Errorf("%s says %q, say: %s", rel, phrase, better)
		}
	}
}
