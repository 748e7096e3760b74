package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/configlog"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
)

// openConfigs loads the configuration that was on record last.
func (d *Daemon) openConfigs(ctx context.Context) error {
	value, err := d.store.Meta(ctx, configlog.MetaName())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rows, err := keyring.ReadRows(d.keysDir())
	if err != nil {
		return err
	}
	key := hmac.New(sha256.New, rows.Key())
	_, _ = io.WriteString(key, "digest of the configuration") // a hash takes everything
	d.configs = configlog.New(configlog.Options{
		NewID: d.ids.next, Key: key.Sum(nil), Redact: func(s string) string { return d.redactor.Load().Text(s) },
	}, value)
	return nil
}

// noteConfig makes the records of a configuration that is about to be in force.
func (d *Daemon) noteConfig(first *audit.Record, cfg *config.Config, whole bool) ([]*audit.Record, store.Part, func(), error) {
	return d.configs.Note(first, cfg, configlog.Place{Head: d.store.Head().Seq, Retired: d.store.Retired(), Whole: whole})
}
