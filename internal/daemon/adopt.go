package daemon

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/redact"
	"github.com/openclawos/ocipd/internal/audit/sealedtext"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/appconfig"
	"github.com/openclawos/ocipd/internal/daemon/kernelconfig"
	"github.com/openclawos/ocipd/internal/evidence/digestkeys"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"go.uber.org/zap"
)

// inForce is what a reload replaces.
type inForce struct {
	config   atomic.Pointer[config.Config]
	policy   *policy.Holder
	redactor atomic.Pointer[redact.Redactor]
	settings *appconfig.Settings
}

// The configuration of the start, d.cfg, applies until the stop to keys with the tag
// reload:"restart" in [config.Config]. For live keys, use config. This file hands the live
// values to the other packages.

// config is the configuration in force.
func (d *Daemon) config() *config.Config { return d.inForce.config.Load() }

// terms are the terms of decisions under a configuration and a policy.
func (d *Daemon) terms(cfg *config.Config, p *policy.Policy) (t kernel.Terms, err error) {
	if lacks := kernelconfig.CheckDeclared(cfg); len(lacks) > 0 {
		return t, lacks
	}
	if t.Config, err = kernelconfig.New(cfg); err != nil {
		return t, err
	}
	t.Policy = p
	for i := range cfg.Agents {
		if a := &cfg.Agents[i]; a.Tools == config.ToolsEnforce && !p.JudgesTools() {
			return t, fmt.Errorf("cannot enforce anything about the tools of agent %s: the policy has no package ocip.tool; ocipd policy new DIR writes one to begin with", a.ID)
		}
	}
	if file := cfg.Approvals.AllowedSigners; file != "" {
		// An unreadable file of signers is refused: without it nobody could decide.
		s := allowedSigners(&cfg.Approvals)
		s.Seen = d.signers.of(file)
		if _, err := s.Load(); err != nil {
			return t, err
		}
		t.Signers = s
	}
	if t.Fleet, err = (rosters{d}).fleet(cfg); err != nil {
		return t, err
	}
	t.Seal, t.SealHeld, err = sealing(cfg)
	return t, err
}

// sealing returns the function that seals texts for records, or nil if records hold none.
// If held is set, it applies only to held messages.
func sealing(cfg *config.Config) (seal func(text string) (string, error), held bool, err error) {
	if cfg.Audit.Content == "digest" {
		return nil, false, nil
	}
	recipients, err := sealedtext.ParseRecipients(cfg.Audit.Recipients...)
	if err != nil {
		return nil, false, fmt.Errorf("cannot use audit.recipients: %w", err)
	}
	return recipients.Seal, cfg.Audit.Content == "held", nil
}

// tenants are the tenants whose texts this daemon digests.
func tenants(cfg *config.Config) (names []string) {
	for i := range cfg.Agents {
		if name := cfg.Agents[i].TenantID; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range cfg.Tasks.Actors {
		if name := cfg.Tasks.Actors[i].TenantID; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func newRedactor(keys *digestkeys.Keys, cfg *config.Config) (*redact.Redactor, error) {
	r, err := redact.New(redact.Options{Members: cfg.Audit.Redact.Members, Patterns: cfg.Audit.Redact.Patterns, Digest: keys.Digest})
	if err != nil {
		return nil, fmt.Errorf("cannot use audit.redact: %w", err)
	}
	return r, nil
}

// fleetLineBytes has room for a line of fleet.bring with the longest frame in base64.
const fleetLineBytes = 1 << 20

func limits(cfg *config.Config) ipc.Limits {
	operators := 0
	if cfg.Fleet.Roster != "" {
		operators = fleetLineBytes
	}
	return ipc.Limits{
		OperatorLineBytes: operators,
		LineBytes:         int(cfg.IPC.MaxLineBytes), QueueBytes: int(cfg.IPC.MaxQueueBytes), TotalQueueBytes: int(max(cfg.IPC.MaxTotalQueueBytes, 2*cfg.IPC.MaxQueueBytes)),
		InFlight: cfg.IPC.MaxInFlight, Connections: cfg.IPC.MaxConnections, ProcessConnections: cfg.IPC.MaxConnectionsPerProcess,
		// Users that may connect share the connections.
		UserConnections: max(1, cfg.IPC.MaxConnections/(1+len(cfg.IPC.AllowUIDs))),
	}
}

// prepare does everything for another configuration and policy that can fail. The steps that it
// returns cannot fail, and put them in force; one swap in the kernel changes the decisions
// about messages.
func (d *Daemon) prepare(cfg *config.Config, p *policy.Policy) (adopt kernel.Adoption, err error) {
	terms, err := d.terms(cfg, p)
	if err != nil {
		return adopt, err
	}
	decide, err := d.kernel.Prepare(terms)
	if err != nil {
		return adopt, err
	}
	redactor, err := newRedactor(d.keys, cfg)
	if err != nil {
		return adopt, err
	}
	if err := d.keys.Prepare(tenants(cfg)...); err != nil {
		return adopt, err
	}
	notify, err := d.notices.Prepare(cfg.Approvals.Notify)
	if err != nil {
		return adopt, err
	}
	return kernel.Adoption{
		Begin: decide.Begin,
		Swap: func() {
			d.inForce.redactor.Store(redactor)
			decide.Swap()
			d.inForce.policy.Swap(p)
			d.inForce.config.Store(cfg)
			d.tasks.Load().Configure(tasksConfig(cfg, terms.Seal, terms.SealHeld))
		},
		Finish: func() {
			decide.Finish()
			rosters{d}.noteRoster(cfg)
			d.serving.SetLimits(limits(cfg))
			d.inForce.settings.Take(cfg)
			setLogLevel(d.options.Level, cfg.Log.Level)
			notify()
			d.followers.retention.Look()
			// Last: an exemption given before this may still rest on the old rules.
			d.kernel.Exempt.End()
		},
	}, nil
}

// setLogLevel sets the log's level, if the log has an adjustable one.
func setLogLevel(log *zap.AtomicLevel, level string) {
	if log != nil {
		// A checked configuration has a valid level.
		_ = log.UnmarshalText([]byte(level))
	}
}

// allowedSigners is the file of the signers who may decide.
func allowedSigners(a *config.Approvals) sshsig.File {
	return sshsig.File{Path: a.AllowedSigners, Key: "approvals.allowed_signers", Namespace: api.ApprovalNamespace, Origins: a.Origins}
}
