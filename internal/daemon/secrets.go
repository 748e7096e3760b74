package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/keyring"
	"github.com/openclawos/ocipd/internal/redact"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// secrets is what keeps texts out of the records.
type secrets struct {
	digests  *keyring.Digests
	redactor atomic.Pointer[redact.Redactor]
}

// openSecrets comes before the store, whose every record goes through it.
func (d *Daemon) openSecrets(context.Context) (err error) {
	s := &d.secrets
	if s.digests, err = keyring.OpenDigests(config.KeysPath(d.cfg, d.database), rand.Reader, time.Now); err != nil {
		return err
	}
	if err := s.digests.Prepare(tenants(d.cfg)...); err != nil {
		// What waits can be decided about all the same, and a text is refused
		// until its tenant has a key.
		d.log.Error("cannot make digest keys", zap.Error(err))
	}
	redactor, err := d.newRedactor(d.cfg)
	s.redactor.Store(redactor)
	return err
}

// redact keeps secrets out of a record.
func (s *secrets) redact(r *audit.Record) { s.redactor.Load().Record(r) }

// digest is the keyed digest of a tenant's text. Where its key does not fit on the
// disk, that is told as it is of a record.
func (s *secrets) digest(tenant, text string) (string, error) {
	digest, err := s.digests.Digest(tenant, text)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return digest, err
}

// oldDigestKey is where earlier daemons kept one digest key for everybody.
const oldDigestKey = "content-digest-key"

// dropOldKey takes the digest key of an earlier daemon out of the database:
// whoever has a copy of the database could guess texts with it. Digests made
// with it match nothing from here on.
func (d *Daemon) dropOldKey(ctx context.Context) error {
	key, err := d.store.Meta(ctx, oldDigestKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(key) == 0 {
		return nil
	}
	if err == nil {
		_, err = d.store.Commit(&store.Change{Meta: []store.Meta{{Key: oldDigestKey}}, Drains: true})
	}
	if err != nil {
		return fmt.Errorf("cannot take the digest key out of the database: %w", err)
	}
	d.log.Info("digests are made with a key for each tenant from here on; earlier ones match nothing any more")
	return nil
}

// Events of the daemon's keys.
const (
	eventForgotten = "digest_key_destroyed"
	eventKept      = "digest_key_kept"
	eventRotating  = "key_rotation"
)

// byPeer is who asked for something, as records write it.
func byPeer(who api.Peer) map[string]any {
	uid, _, pid := who.Credentials()
	return map[string]any{"uid": uid, "pid": pid}
}

// keyRecord puts on record what happens to a key, before it does.
func (d *Daemon) keyRecord(event, tenant string, details map[string]any) (uint64, error) {
	receipt, err := d.store.Commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: d.ids.next(), ActionType: audit.ActionSecurity, Event: event, TenantID: tenant, Details: details,
	}}})
	if err != nil {
		d.log.Error("cannot record what happens to a key: it stays", zap.String("event", event), zap.Error(err))
		return 0, kernel.NotRecorded("cannot record it, so nothing was done", err)
	}
	return receipt.Seq, nil
}

// forget destroys a tenant's digest key. That is on record first: where the
// daemon dies in between, or the key cannot be destroyed, the key is still there
// and it is to be asked for again.
func (d *Daemon) forget(tenant string, who api.Peer) (api.AuditForgetResult, error) {
	digests := d.secrets.digests
	if have := digests.Tenants(); !slices.Contains(have, tenant) {
		return api.AuditForgetResult{}, api.Errorf(api.NotFound, "there is no digest key of tenant %q; there are keys of: %s", tenant, orNone(have))
	}
	seq, err := d.keyRecord(eventForgotten, tenant, byPeer(who))
	if err != nil {
		return api.AuditForgetResult{}, err
	}
	if _, err := digests.Destroy(tenant); err != nil {
		details := byPeer(who)
		details["error"], details["record"] = err.Error(), seq
		if _, failed := d.keyRecord(eventKept, tenant, details); failed != nil {
			err = errors.Join(err, failed)
		}
		return api.AuditForgetResult{}, api.Errorf(api.InternalError, "the digest key of tenant %q is not destroyed, though record %d says so; do it again: %v", tenant, seq, err)
	}
	return api.AuditForgetResult{Tenant: tenant, AuditSeq: seq}, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
