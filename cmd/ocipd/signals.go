package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// catchSignals returns a context that ends with the first SIGINT or SIGTERM. A
// second one ends the program, where no command has another use for it
// ([onSecondSignal]); the one after that does in any case.
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
		os.Exit(exitFailed)
	}()
	return context.WithValue(ctx, secondKey{}, again)
}

type secondKey struct{}

// second is what a second signal does.
type second struct {
	mu  sync.Mutex
	act func()
}

// taken does what a command wants done, and reports whether one does.
func (s *second) taken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.act == nil {
		return false
	}
	s.act()
	return true
}

// onSecondSignal has a second signal call act, which must not block, in place of
// ending the program.
func onSecondSignal(ctx context.Context, act func()) {
	if s, ok := ctx.Value(secondKey{}).(*second); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.act = act
	}
}

// hangups delivers SIGHUP, of which one that waits stands for all.
func hangups() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}
