package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/daemon/reload"
	"github.com/openclawos/ocipd/internal/evidence/export"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/ocip/policy"
)

// Check finds out why a daemon could not start with a configuration, beyond the checks at
// loading: it compiles and tries the policy, and reads the other named files. It changes
// nothing, takes no socket and opens no store. The error is [config.Errors] with all faults.
func Check(ctx context.Context, cfg *config.Config) error {
	found := kernelconfig.CheckDeclared(cfg)
	k, err := kernelconfig.New(cfg)
	if faults, ok := errors.AsType[config.Errors](err); ok {
		found = append(found, faults...)
	} else if err == nil {
		if _, err := directory.New(&k.Directory); err != nil {
			found = append(found, cfg.Fault("directory", err))
		}
	}
	if _, err := policy.Compile(ctx, reload.Source(&cfg.Policy)); err != nil {
		found = append(found, cfg.Fault("policy.path", fmt.Errorf("cannot use the policy: %s", strings.ReplaceAll(err.Error(), "\n", "; "))))
	}
	if cfg.Approvals.AllowedSigners != "" {
		if _, err := allowedSigners(&cfg.Approvals).Load(); err != nil {
			found = append(found, cfg.Fault("approvals.allowed_signers", err))
		}
	}
	found = append(found, checkSinks(cfg)...)
	if len(found) == 0 {
		return nil
	}
	return found
}

// checkSinks checks the files that sinks need.
func checkSinks(cfg *config.Config) (found config.Errors) {
	for i, spec := range sinkSpecs(cfg.Audit.Sinks) {
		if err := export.Check(&spec); err != nil {
			found = append(found, cfg.Fault(fmt.Sprintf("audit.sinks[%d]", i), fmt.Errorf("cannot start the sink %s: %w", spec.Name, err)))
		}
	}
	return found
}

// startable returns an error if the daemon could not restart with a configuration that has
// keys waiting for a restart, so that an accepted file cannot prevent a later start. It
// tests live keys by preparing them.
func (d *Daemon) startable(_ context.Context, cfg *config.Config) error {
	next, err := New(Options{Config: cfg, Getenv: d.options.Getenv, Version: d.options.Version, Log: d.log})
	if err != nil {
		return err
	}
	if err := next.places.check(); err != nil {
		return err
	}
	if found := checkSinks(cfg); len(found) > 0 {
		return found
	}
	return nil
}
