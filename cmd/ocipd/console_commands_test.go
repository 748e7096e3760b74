package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestConsoleNames checks every command that the console or its page can show, with its flags and the
// number of its arguments.
func TestConsoleNames(t *testing.T) {
	const console = "../../internal/bridge/console"
	var files []string
	for _, pattern := range []string{"*.go", "page/src/*.js", "page/src/*.jsx"} {
		found, err := filepath.Glob(filepath.Join(console, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	// A command begins a text, or ends a sentence, after a colon.
	named := regexp.MustCompile("(?:[\"`]|: |\\brun )(ocipd [a-z][^\"`\n\\\\]*)([\"`])( \\+)?")
	seen := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			line, _, put := strings.Cut(found[1], "${")
			line = strings.TrimSuffix(line, " again") // the end of a sentence
			if put || found[3] != "" && strings.HasSuffix(line, " ") {
				line += "1" // what the page puts there
			}
			if strings.Contains(line, "%") || seen[line] {
				continue
			}
			seen[line] = true
			c, err := readCommand(commandLine(line)[1:])
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%s: %s: %v", strings.TrimPrefix(file, console+"/"), line, err)
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d commands were found", len(seen))
	}
}
