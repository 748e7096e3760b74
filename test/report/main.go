// Command report reads what `go test -json` writes and prints what a person needs of it: a
// line a package, all that a failed test has said, and at the end the slowest tests. It
// fails if a test failed, or a package could not be built.
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// slowest is how many of the slowest tests are printed.
const slowest = 10

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// test names one test of a package.
type test struct{ pkg, name string }

// taken is how many seconds a test took.
type taken struct {
	test
	seconds float64
}

// unended prints what the tests said that were running when their package ended.
func unended(said map[test][]string, pkg string, out io.Writer) {
	for of, lines := range said {
		if of.pkg == pkg {
			fmt.Fprint(out, strings.Join(lines, ""))
			delete(said, of)
		}
	}
}

func report(in io.Reader, out io.Writer) error {
	said := make(map[test][]string)
	var all []taken
	failed := 0
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line == "" && err == io.EOF {
			break
		}
		if err != nil && err != io.EOF {
			return err
		}
		var e event
		if json.Unmarshal([]byte(line), &e, json.MatchCaseInsensitiveNames(true)) != nil {
			fmt.Fprint(out, line) // the go command's own word
			continue
		}
		of := test{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			if e.Test != "" {
				said[of] = append(said[of], e.Output)
			} else if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
		case "pass", "skip", "fail":
			if e.Action == "fail" {
				failed++
				fmt.Fprint(out, strings.Join(said[of], ""))
				if e.Test == "" {
					unended(said, e.Package, out)
				}
			}
			delete(said, of)
			if e.Test != "" && !strings.Contains(e.Test, "/") {
				all = append(all, taken{of, e.Elapsed})
			}
		case "build-fail":
			failed++
		}
	}
	slices.SortFunc(all, func(a, b taken) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintf(out, "\nThe slowest of %d tests:\n", len(all))
	for _, t := range all[:min(slowest, len(all))] {
		fmt.Fprintf(out, "%8.1fs  %s  %s\n", t.seconds, t.name, t.pkg)
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d tests and packages failed", failed)
	case len(all) == 0:
		return fmt.Errorf("no test was run")
	}
	return nil
}
