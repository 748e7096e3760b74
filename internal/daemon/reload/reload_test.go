package reload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/reload"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// bed is an engine over a configuration file, with everything that it calls. events lists
// the records, adoptions and other actions, in order.
type bed struct {
	*testing.T
	*reload.Engine
	file   string
	events []string
	// commit, prepare and start are the errors of the next calls.
	commit, prepare, start error
}

func open(t *testing.T, yaml string) *bed {
	b := &bed{T: t, file: filepath.Join(t.TempDir(), "ocipd.yaml")}
	b.write(yaml)
	cfg, err := config.Load(config.Options{File: b.file})
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := policy.Compile(t.Context(), reload.Source(&cfg.Policy))
	if err != nil {
		t.Fatal(err)
	}
	ids := 0
	b.Engine = reload.New(t.Context(), cfg, reload.Options{
		Log: zap.NewNop(), Now: time.Now, Policy: policy.NewHolder(compiled), Tell: func() { b.events = append(b.events, "told") },
		NewID: func() string { ids++; return fmt.Sprint(ids) },
		Commit: func(c *store.Change) (store.Receipt, error) {
			if b.commit != nil {
				return store.Receipt{}, b.commit
			}
			for _, r := range c.Records {
				b.events = append(b.events, r.ActionType+" "+r.Event)
			}
			return store.Receipt{}, nil
		},
		Prepare: func(c *config.Config, _ *policy.Policy) (kernel.Adoption, error) {
			return kernel.Adoption{Begin: func() {}, Swap: func() { b.events = append(b.events, "adopted "+c.Log.Level) }, Finish: func() {}}, b.prepare
		},
		Replacing: func() func() { return func() {} },
		Note: func(first *audit.Record, _ *config.Config, _ bool) ([]*audit.Record, store.Part, func(), error) {
			return []*audit.Record{first}, store.Meta{Key: "configuration"}, func() { b.events = append(b.events, "noted") }, nil
		},
		Former: func() string { return "" }, Goes: func(uint64) bool { return false },
		Startable: func(context.Context, *config.Config) error { return b.start },
	})
	t.Cleanup(b.Close)
	return b
}

func (b *bed) write(yaml string) {
	b.Helper()
	if err := os.WriteFile(b.file, []byte(yaml), 0o600); err != nil {
		b.Fatal(err)
	}
}

// did checks the engine's actions since the last call.
func (b *bed) did(want ...string) {
	b.Helper()
	if !slices.Equal(b.events, want) {
		b.Errorf("the engine did %q, want %q", b.events, want)
	}
	b.events = nil
}

// A configuration is recorded before it is in force, and an unchanged one does neither.
func TestRecordBeforeEffect(t *testing.T) {
	b := open(t, "log: {level: info}\n")
	b.write("log: {level: debug}\n")
	if _, err := b.ReloadBySignal(); err != nil {
		t.Fatal(err)
	}
	b.did("config_change loaded", "adopted debug", "noted", "told")
	if _, err := b.ReloadBySignal(); err != nil {
		t.Fatal(err)
	}
	b.did()
}

// The watch makes nothing anew for files as they were at the start: a large directory takes a while.
func TestWatchOfUnchangedFiles(t *testing.T) {
	b := open(t, "log: {level: info}\n")
	b.prepare = errors.New("made anew")
	if err := b.Watch(b.file); err != nil {
		t.Fatal(err)
	}
	if status := b.ConfigStatus(); status.Refusal != "" {
		t.Errorf("operators are told %q", status.Refusal)
	}
	b.did()
}

// Any failure leaves the rules in force unchanged, and is reported.
func TestFailuresLeaveWhatIsInForce(t *testing.T) {
	b := open(t, "log: {level: info}\n")
	refused := func(code api.Code, want string) {
		t.Helper()
		_, err := b.ReloadBySignal()
		if err == nil || !strings.Contains(err.Error(), want) || api.AsError(err).Code != code {
			t.Errorf("the reload says %v, want %s about %q", err, code, want)
		}
		if status := b.ConfigStatus(); !strings.Contains(status.Refusal, want) {
			t.Errorf("operators are told %q", status.Refusal)
		}
	}
	b.write("log: {level: loud}\n")
	refused(api.Conflict, "loud")
	b.did("told", "config_change refused")

	b.write("log: {level: debug}\n")
	b.prepare = errors.New("no such file of signers")
	refused(api.Conflict, "no such file of signers")
	b.did("told", "config_change refused")

	b.prepare, b.commit = nil, errors.New("disk I/O error")
	refused(api.InternalError, "cannot record the configuration")
	b.did("told")

	b.commit = nil
	if _, err := b.ReloadBySignal(); err != nil {
		t.Fatal(err)
	}
	b.did("config_change loaded", "adopted debug", "noted", "told")
}

// A key that needs a restart keeps its value and is named, unless the daemon could not start with it.
func TestWhatTakesARestart(t *testing.T) {
	b := open(t, "log: {level: info}\n")
	b.write("log: {level: debug}\nstore: {url: /elsewhere/ocipd.db}\n")
	b.start = errors.New("the place cannot be written to")
	if _, err := b.ReloadBySignal(); err == nil || !strings.Contains(err.Error(), "could not start with it again: the place cannot be written to") {
		t.Errorf("the reload says %v", err)
	}
	b.did("told", "config_change refused")
	b.start = nil
	if _, err := b.ReloadBySignal(); err != nil {
		t.Fatal(err)
	}
	if waiting := b.Waiting(); !slices.Equal(waiting, []string{"store.url"}) {
		t.Errorf("waiting for a restart are %q", waiting)
	}
	b.did("config_change loaded", "adopted debug", "noted", "told")
}
