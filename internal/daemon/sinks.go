package daemon

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/export"
)

// openSinks starts to export the log to other systems. It comes before all steps that
// record something at a stop, and so ends after them.
func (d *Daemon) openSinks(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people to read
	}
	d.followers.sinks, err = export.Open(ctx, export.Options{
		Sinks: sinkSpecs(d.cfg.Audit.Sinks), Log: d.store,
		Mapping: export.Mapping{Version: d.options.Version, Host: host, Log: d.store.Origin()},
		Dir:     filepath.Join(filepath.Dir(d.places.database), "sinks"),
		Now:     time.Now, Random: rand.Float64, Zap: d.log.Named("export"),
	})
	if err != nil {
		return err
	}
	d.ends.add("sinks", d.followers.sinks.Close)
	return nil
}

func sinkSpecs(sinks []config.Sink) []export.Spec {
	specs := make([]export.Spec, len(sinks))
	for i := range sinks {
		s := &sinks[i]
		specs[i] = export.Spec{
			Name: s.Name, Type: s.Type, Path: s.Path, Endpoint: s.Endpoint, Headers: s.Headers, Gzip: s.Gzip,
			Network: s.Network, Address: s.Address, MaxBytes: int(s.MaxBytes), Enterprise: s.Enterprise, TLS: export.TLS(s.TLS), Timeout: s.Timeout, From: s.From,
		}
		for _, m := range audit.Filters() {
			*m.Of(&specs[i].Filter.Like) = s.Filter[m.Key()]
		}
	}
	return specs
}

// sinkStatus tells how far the sinks are.
func sinkStatus(sinks *export.Set) []api.SinkStatus {
	list := []api.SinkStatus{}
	for _, s := range sinks.Status() {
		list = append(list, api.SinkStatus{
			Name: s.Name, Type: s.Type, Seq: s.Seq, Lag: s.Lag, OldestUnsent: s.Oldest, Error: s.Error, FailingSince: s.Since,
			Sent: s.Sent, Refused: s.Refused, Note: s.Note,
		})
	}
	return list
}
