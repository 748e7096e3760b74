package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/openclawos/ocipd/internal/cli"
)

// catchSignals returns a context that ends with the first SIGINT or SIGTERM. A second signal
// ends the program, unless a command handles it ([onSecondSignal]). A third one always does.
func catchSignals(stderr io.Writer) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	again := &second{}
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		if again.taken() {
			<-signals
		}
		fmt.Fprintln(stderr, "ocipd: stopped at once by a further signal")
		os.Exit(cli.ExitFailed)
	}()
	return context.WithValue(ctx, secondKey{}, again)
}

type secondKey struct{}

// second holds the action of a second signal.
type second struct {
	mu  sync.Mutex
	act func()
}

// taken runs a command's action, and reports whether there is one.
func (s *second) taken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.act == nil {
		return false
	}
	s.act()
	return true
}

// onSecondSignal makes a second signal call act, which must not block, instead of ending the program.
func onSecondSignal(ctx context.Context, act func()) {
	if s, ok := ctx.Value(secondKey{}).(*second); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.act = act
	}
}

// hangups delivers SIGHUP. One pending signal stands for several.
func hangups() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}
