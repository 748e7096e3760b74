package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// openConfigs loads the configuration that was on record last.
func (d *Daemon) openConfigs(ctx context.Context) error {
	value, err := d.store.Meta(ctx, configlog.MetaName())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rows, err := keyring.ReadRows(d.places.keys())
	if err != nil {
		return err
	}
	key := hmac.New(sha256.New, rows.Key())
	_, _ = io.WriteString(key, "digest of the configuration") // a hash takes everything
	d.configs = configlog.New(configlog.Options{
		NewID: d.ids.next, Key: key.Sum(nil), Redact: func(s string) string { return d.inForce.redactor.Load().Text(s) },
	}, value)
	said := store.Newest(d.store, newestConfiguration)
	if len(value) > 0 && (said == "" || said == d.configs.Digest()) {
		return nil
	}
	// The daemon may have ended before the next checkpoint. Or somebody who can write the database has
	// deleted the value, or put back an older one, so that no difference would be on record.
	found, err := configOnRecord(ctx, d)
	_, isFault := errors.AsType[*audit.Fault](err)
	switch {
	case errors.Is(err, configlog.ErrUnknown):
	case isFault:
		d.log.Error("the log does not say which configuration was in force: the difference on record can be another one", zap.Error(err))
	case err != nil:
		return fmt.Errorf("cannot read which configuration was in force: %w", err)
	case found.Digest != d.configs.Digest():
		d.configs.Found(&found)
	}
	return nil
}

// newestConfiguration is the name of the digest of the configuration in the log, see [store.Newest].
const newestConfiguration = "configuration"

// configOnRecord reads from the log which configuration was in force last.
func configOnRecord(ctx context.Context, d *Daemon) (configlog.InForce, error) {
	var noted []*audit.Entry
	err := store.EachWritten(ctx, d.store, &audit.Record{ActionType: audit.ActionConfigChange, Event: "loaded"}, func(e *audit.Entry) { noted = append(noted, e) })
	replay := configlog.NewReplay(d.store.Head().Seq)
	for _, e := range slices.Backward(noted) {
		if err == nil {
			_, err = replay.AddEntry(e)
		}
	}
	if err != nil {
		return configlog.InForce{}, err
	}
	return replay.InForce()
}

// noteConfig makes the records of a configuration that is about to be in force.
func (d *Daemon) noteConfig(first *audit.Record, cfg *config.Config, whole bool) ([]*audit.Record, store.Part, func(), error) {
	records, part, done, err := d.configs.Note(first, cfg, configlog.Place{Head: d.store.Head().Seq, Retired: d.store.Retired(), Whole: whole})
	return records, part, func() {
		done()
		store.SetNewest(d.store, newestConfiguration, d.configs.Digest())
	}, err
}
