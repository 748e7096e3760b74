// Command fault runs the built daemon and lets one system call fail: EIO, no
// space, half a write, or the end of the process, at each write and each fsync
// of its files in turn. Afterwards the receiver's own log and the callers'
// answers are held against the record, which the verifier must find whole. One
// thing must never be: a message that is out without its record.
//
// It needs no tool: the daemon runs under a tracer of this program's own
// (ptrace(2), stopped by a seccomp filter at the calls in question), which
// counts calls over all threads, so that "the 17th write of the log" is the
// same call in every run. Where processes cannot be traced, it says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run() (int, error) {
	binary := flag.String("ocipd", "bin/ocipd", "the daemon's binary")
	all := flag.Bool("all", false, "inject the fault at every call, however long it takes")
	limit := flag.Duration("for", 4*time.Minute+30*time.Second, "start no run after this")
	only := flag.String("only", "", "one run, as a failed one is named: \"serve wal write EIO 17\"")
	during := flag.String("phase", "", "inject the fault in this phase alone, such as effect")
	keep := flag.Bool("keep", false, "keep the directories of all runs")
	tracing := flag.String("trace", "", "run a command under the tracer, for the files of this directory (used by fault itself)")
	first := flag.String("aim", "", "with -trace: what is armed from the beginning")
	filter := flag.Bool("filtered", false, "become a command that stops at writes (used by fault itself)")
	flag.Parse()
	switch {
	case *tracing != "":
		return trace(*tracing, *first, flag.Args())
	case *filter:
		return 1, filtered(flag.Args())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := filepath.Abs(*binary)
	if err != nil {
		return 1, err
	}
	base, err := os.MkdirTemp("", "ocf")
	if err != nil {
		return 1, err
	}
	r := &rig{binary: path, base: base, keep: *keep || *only != ""}
	s := &series{rig: r, all: *all, during: phase(*during), until: time.Now().Add(*limit), out: os.Stdout}
	if *all {
		s.until = time.Time{}
	}
	failed, err := s.run(ctx, *only)
	if !failed && !r.keep {
		err = errors.Join(err, os.RemoveAll(base))
	}
	if failed {
		return 1, err
	}
	return 0, err
}
