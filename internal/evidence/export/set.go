package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// Options are what a [Set] is given from outside.
type Options struct {
	Sinks   []Spec
	Log     Log
	Mapping Mapping
	// Dir is where cursors are kept. It is made where it is missing.
	Dir string
	Now func() time.Time
	// Random returns numbers from 0 up to 1, for the jitter of retries.
	Random func() float64
	Zap    *zap.Logger
}

// Set are the followers of a configuration.
type Set struct{ followers []*Follower }

// drain is how long Close lets followers send what is left.
const drain = 2 * time.Second

// Open starts a follower for each sink. A sink whose other end does not answer
// is no error; one that can never be used is.
func Open(ctx context.Context, o Options) (s *Set, err error) {
	s = &Set{}
	if len(o.Sinks) == 0 {
		return s, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return s, fmt.Errorf("cannot keep the cursors of the sinks: %w", err)
	}
	if err := clearTemps(o.Dir); err != nil {
		return s, fmt.Errorf("cannot keep the cursors of the sinks: %w", err)
	}
	for i := range o.Sinks {
		spec := &o.Sinks[i]
		sink, err := newSink(spec, &o.Mapping, o.Now)
		if err != nil {
			return s, fmt.Errorf("cannot start the sink %s: %w", spec.Name, err)
		}
		f, err := Follow(ctx, FollowerOptions{
			Name: spec.Name, Type: spec.Type, Log: o.Log, Sink: sink, Dir: o.Dir, From: spec.From, Filter: spec.Filter,
			Timeout: spec.Timeout, Now: o.Now, Random: o.Random, Zap: o.Zap,
		})
		if err != nil {
			return s, errors.Join(err, sink.Close())
		}
		s.followers = append(s.followers, f)
	}
	return s, nil
}

// Status tells how far each sink is, in the order of the configuration.
func (s *Set) Status() []Status {
	list := make([]Status, len(s.followers))
	for i, f := range s.followers {
		list[i] = f.Status()
	}
	return list
}

// Behind returns the last record that every sink has taken over for good, so
// that a crash does not ask for it again: what comes after it is still needed.
// Without sinks it is all of them.
func (s *Set) Behind(head audit.Head) uint64 {
	seq := head.Seq
	for _, f := range s.followers {
		f.mu.Lock()
		seq = min(seq, f.kept)
		f.mu.Unlock()
	}
	return seq
}

// Close lets all sinks together send what is left for up to 2 seconds, keeps
// their cursors and closes them.
func (s *Set) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	errs := make(chan error)
	for _, f := range s.followers {
		go func() { errs <- f.Close(ctx) }()
	}
	var all []error
	for range s.followers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
