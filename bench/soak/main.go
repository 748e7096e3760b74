// Command soak runs the built daemon under mixed load for an hour and judges
// whether it stays as it is: memory, descriptors and goroutines must not grow.
//
// The load is several agents and two channels, messages that pass, that are
// denied, that a person approves or denies, tasks of four actors, apps that come and go, a reload of
// the configuration every minute, a mirror that is rotated often, and followers
// of the log. The daemon's memory, descriptors and goroutines are sampled all the while;
// the medians of the second and of the last quarter are compared, the first quarter is
// for warming up. At the end the daemon is stopped and its log verified.
//
// Beside it live hostile neighbours, each a process of its own: observers that read
// nothing, and floods of connections, registrations and waiting messages. Nobody else
// may notice: the same is wanted as without them (-alone), and a person who asks for
// the status gets it.
//
// It ends with 1 where something grew, the log is not sound, or an answer came
// that should not have.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	flat, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !flat {
		os.Exit(1)
	}
}

// leastSoak is the shortest time that has enough samples in each quarter.
const leastSoak = 20 * time.Second

func run() (flat bool, err error) {
	binary := flag.String("ocipd", "bin/ocipd", "the daemon's binary")
	length := flag.Duration("time", time.Hour, "how long (at least 20s)")
	rate := flag.Int("rate", 40, "messages a second, of all agents together (1 to 1000)")
	keep := flag.Bool("keep", false, "keep the daemon's directory")
	alone := flag.Bool("alone", false, "without hostile neighbours")
	as := flag.String("neighbour", "", "be this neighbour of the daemon in -dir; soak starts them itself")
	of := flag.String("dir", "", "the daemon's directory, for -neighbour")
	flag.Parse()
	if *as != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return true, misbehaveAs(ctx, *as, place{dir: *of})
	}
	switch {
	case *length < leastSoak:
		return false, fmt.Errorf("cannot judge %s: it takes at least %s", *length, leastSoak)
	case *rate < 1 || *rate > 1000:
		return false, fmt.Errorf("cannot send %d messages a second: want 1 to 1000", *rate)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	path, err := filepath.Abs(*binary)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "ocs")
	if err != nil {
		return false, err
	}
	defer func() {
		if *keep || !flat || err != nil {
			fmt.Println("kept:", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	s := &soak{place: place{dir, path}, length: *length, rate: *rate, alone: *alone, out: os.Stdout, tokens: make(map[string]string)}
	return s.run(ctx)
}

// run is the daemon's whole life.
func (s *soak) run(ctx context.Context) (flat bool, err error) {
	if err := s.place.configure(0); err != nil {
		return false, err
	}
	d, err := s.place.start(ctx)
	if err != nil {
		return false, err
	}
	err = s.serve(ctx, d)
	stopped := d.stop()
	if err := errors.Join(err, stopped); err != nil {
		return false, err
	}
	flat = s.judge()
	said, err := s.place.verify(ctx)
	if err != nil {
		return false, fmt.Errorf("the log is not sound: %w", err)
	}
	fmt.Fprintln(s.out, said)
	return flat, nil
}
