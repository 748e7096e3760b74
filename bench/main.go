// Command bench measures the daemon beside its floors: a bare server that
// echoes the same JSON over the same kind of socket, and an append with fsync
// of the same bytes on the same disk. Both sides of a ratio are measured in
// turns in one run, so that a noisy machine disturbs them alike. The decision
// alone is measured too, in this process.
//
// It runs the built binary it is given, as its users do, and prints one row a
// figure: the name, the value, its floor, the ratio and the goal.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	binary := flag.String("ocipd", "bin/ocipd", "the daemon's binary")
	dir := flag.String("dir", "", "where to measure (default: a temporary directory, removed afterwards)")
	only := flag.String("only", "", "measure only figures whose name contains this")
	records := flag.Int("records", 5_000_000, "audit records in the large store")
	tasks := flag.Int("tasks", 1_000_000, "tasks in the store with many tasks")
	exchanges := flag.Int("exchanges", 1_000_000, "exchanges in the large store")
	hosts := flag.Int("hosts", 50, "hosts of the fleet whose lag is measured")
	beside := flag.String("beside", "", "the binary of another build of the daemon, to be measured beside this one")
	echo := flag.String("echo", "", "serve the echo floor on this socket (used by bench itself)")
	mcp := flag.Bool("mcp", false, "serve MCP over stdin and stdout (used by bench itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *echo != "" {
		return serveEcho(ctx, *echo)
	}
	if *mcp {
		return serveMCP(os.Stdin, os.Stdout)
	}
	binaryPath, err := filepath.Abs(*binary)
	if err != nil {
		return err
	}
	besidePath := *beside
	if besidePath != "" {
		if besidePath, err = filepath.Abs(besidePath); err != nil {
			return err
		}
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "ocipd-bench"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(*dir) }()
	}
	b := &bench{ctx: ctx, binary: binaryPath, beside: besidePath, dir: *dir, records: *records, exchanges: *exchanges, tasks: *tasks, hosts: *hosts, running: new([]*process)}
	fmt.Println("each figure beside its floor, measured in turns; lower ratios are better unless the goal says ≥")
	for _, f := range figures() {
		if !strings.Contains(f.name, *only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s …\n", f.name)
		r, err := f.measure(b)
		b.stopAll()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		b.rows = append(b.rows, row{f, r})
	}
	return b.print()
}

// figure is one line of the table.
type figure struct {
	name, floor, goal string
	measure           func(*bench) (result, error)
}

// result is a measured figure: texts for people, and the ratio to its floor.
type result struct {
	ours, floor, ratio string
	met                bool
}

type row struct {
	figure
	result
}

type bench struct {
	ctx         context.Context
	binary, dir string
	// beside is another build, "" for none.
	beside                    string
	records, exchanges, tasks int
	// hosts are those of the fleet whose lag is measured.
	hosts int
	// also is more of the configuration, such as a key of its own.
	also string
	rows []row
	// unbound is set for a build from before a process's connections had a bound.
	unbound bool
	// running are the servers that a figure has started.
	running *[]*process
}

func (b *bench) stopAll() {
	for _, p := range *b.running {
		p.stop()
	}
	*b.running = nil
}

func (b *bench) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tOURS\tFLOOR\tRATIO\tGOAL\t")
	for _, r := range b.rows {
		met := "met"
		switch {
		case r.goal == "—":
			met = ""
		case !r.met:
			met = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.ours, r.result.floor, r.ratio, r.goal, met)
	}
	return w.Flush()
}
