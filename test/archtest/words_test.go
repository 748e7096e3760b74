package archtest

import (
	"go/ast"
	"go/token"
	"slices"
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
	names, texts := 0, 0
	for _, f := range tree(t) {
		if strings.HasSuffix(f.rel, "words_test.go") {
			continue
		}
		texts++
		checkText(t, f)
		if f.parsed != nil {
			names += checkNames(t, f)
		}
	}
	if names < 5000 || texts < 300 {
		t.Errorf("only %d names and %d texts were read", names, texts)
	}
}

// checkNames looks at each name that a file declares, and returns how many it has.
func checkNames(t *testing.T, f file) (names int) {
	ast.Inspect(f.parsed, func(n ast.Node) bool {
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
					t.Errorf("%s: the name %s holds %q, say: %s", f.rel, id.Name, word, better)
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

// oneLine is a text without its breaks and the marks of comments after them.
func oneLine(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = strings.TrimPrefix(strings.TrimPrefix(word, "//"), "#")
	}
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ")
}

func checkText(t *testing.T, f file) {
	low := strings.ToLower(f.text)
	var flat string // of the few texts that have all the words of a phrase
	for phrase, better := range privatePhrases {
		if slices.ContainsFunc(strings.Fields(phrase), func(word string) bool { return !strings.Contains(low, word) }) {
			continue
		}
		if flat == "" {
			flat = oneLine(low)
		}
		if strings.Contains(flat, phrase) {
			t.Errorf("%s says %q, say: %s", f.rel, phrase, better)
		}
	}
}
