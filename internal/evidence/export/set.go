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

// Options configure a [Set].
type Options struct {
	Sinks   []Spec
	Log     Log
	Mapping Mapping
	// Dir is the directory of the cursors. It is made if it is missing.
	Dir string
	Now func() time.Time
	// Random returns numbers from 0 up to 1, for the jitter of retries.
	Random func() float64
	Zap    *zap.Logger
}

// Set are the followers of a configuration.
type Set struct{ followers []*Follower }

// drain bounds the time in which Close lets followers send the rest.
const drain = 2 * time.Second

// Open starts a follower for each sink. It is no error if a sink's other end does not answer. It is
// an error if a sink can never be used.
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

// Status returns the progress of each sink, in the order of the configuration.
func (s *Set) Status() []Status {
	list := make([]Status, len(s.followers))
	for i, f := range s.followers {
		list[i] = f.Status()
	}
	return list
}

// Behind returns the last record that every sink has taken for good, so that a crash does not need
// it again: the records after it are still needed. Without sinks it returns the last record.
func (s *Set) Behind(head audit.Head) uint64 {
	seq := head.Seq
	for _, f := range s.followers {
		f.mu.Lock()
		seq = min(seq, f.kept)
		f.mu.Unlock()
	}
	return seq
}

// Close lets all sinks together send the rest for up to 2 seconds, saves their cursors and closes
// them.
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
