// Package pprof takes profiles of the running daemon, for operators.
package pprof

import (
	"bytes"
	"context"
	"runtime/pprof"
	"time"

	"github.com/openclawos/ocipd/internal/api"
)

// chunk bounds one chunk of a profile, in bytes.
const chunk = 64 << 10

// Feed takes a profile and sends it in chunks. Apps must never be able to call it.
func Feed(_ context.Context, p *api.ProfileParams) (func(context.Context, api.Stream) error, error) {
	return func(ctx context.Context, s api.Stream) error {
		var text bytes.Buffer
		if err := take(ctx, &text, p); err != nil {
			return err
		}
		for text.Len() > 0 {
			if err := s.Send(ctx, api.ProfileChunk{Data: text.Next(chunk)}); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func take(ctx context.Context, into *bytes.Buffer, p *api.ProfileParams) error {
	if p.Name != api.ProfileCPU {
		if err := pprof.Lookup(p.Name).WriteTo(into, 0); err != nil {
			return api.Errorf(api.InternalError, "cannot take the profile: %v", err)
		}
		return nil
	}
	if err := pprof.StartCPUProfile(into); err != nil {
		return api.Errorf(api.Conflict, "a profile of the processor is being taken already; wait for it")
	}
	over := time.NewTimer(time.Duration(p.Length()) * time.Second)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	pprof.StopCPUProfile()
	return ctx.Err()
}
