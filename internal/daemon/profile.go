package daemon

import (
	"bytes"
	"context"
	"runtime/pprof"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ipc"
)

// profileChunk bounds what one chunk of a profile holds, in bytes.
const profileChunk = 64 << 10

// debugProfile takes a profile of the running daemon. Apps never get here: it is
// a method of the operator socket, from which [kernel.Kernel.MayOperate] keeps
// them.
func debugProfile(_ context.Context, p *api.ProfileParams) (ipc.Feed, error) {
	return func(ctx context.Context, s api.Stream) error {
		var text bytes.Buffer
		if err := takeProfile(ctx, &text, p); err != nil {
			return err
		}
		for text.Len() > 0 {
			if err := s.Send(ctx, api.ProfileChunk{Data: text.Next(profileChunk)}); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func takeProfile(ctx context.Context, into *bytes.Buffer, p *api.ProfileParams) error {
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
