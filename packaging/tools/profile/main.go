// Command profile copies a processor's profile from its input to its output without
// what is of the machine that it was recorded on: the paths of files and programs.
// The compiler reads functions and lines alone.
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

func run() error {
	p, err := profile.Parse(os.Stdin)
	if err != nil {
		return err
	}
	for _, f := range p.Function {
		f.Filename = ""
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID, m.HasFilenames = "", "", false
	}
	p.TimeNanos = 0
	return p.Compact().Write(os.Stdout)
}
