// Package digestkeys decides which keys are used for digests of texts: one for each tenant, in a
// file beside the database. The database remembers enough about each key to notice that it was
// lost, put back or destroyed on record.
package digestkeys

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Options configure [Open].
type Options struct {
	// Dir is the directory of the keys' file.
	Dir   string
	Now   func() time.Time
	NewID func() string
	Log   *zap.Logger
}

// Keys are the digest keys of one daemon.
type Keys struct {
	digests *keyring.Digests
	store   *store.Store
	newID   func() string
	log     *zap.Logger
	// opened is set after the keys were compared with the database.
	opened atomic.Bool
}

// Open reads the keys' file. No digest can be made before [Keys.Settle].
func Open(o Options) (*Keys, error) {
	digests, err := keyring.OpenDigests(o.Dir, rand.Reader, o.Now)
	if err != nil {
		return nil, err
	}
	return &Keys{digests: digests, newID: o.NewID, log: o.Log}, nil
}

// digestKeyPrefix begins the names of the database's values about the tenants' digest keys. The
// tenant follows.
const digestKeyPrefix = "digest-key:"

// rememberedKey describes a digest key in the database, which does not contain the key itself: it
// is enough to notice a loss.
type rememberedKey struct {
	// ID is the key's id from [keyring.Digests.IDs].
	ID string `json:"id"`
	// Destroyed is set together with the record about the key's destruction.
	Destroyed bool `json:"destroyed,omitzero"`
}

// Prefix returns [digestKeyPrefix], for callers that read the values and pass them to [Others].
func Prefix() string { return digestKeyPrefix }

// Others returns the tenants whose remembered digest key differs from the present one, or is
// missing. It takes the ids of the present keys, and the values of the database whose names begin
// with [Prefix].
func Others(have map[string]string, values map[string][]byte) (tenants []string, err error) {
	for name, value := range values {
		var was rememberedKey
		if err := json.Unmarshal(value, &was); err != nil {
			return nil, unreadableKey(name, err)
		}
		tenant := strings.TrimPrefix(name, digestKeyPrefix)
		if !was.Destroyed && have[tenant] != was.ID {
			tenants = append(tenants, tenant)
		}
	}
	slices.Sort(tenants)
	return tenants, nil
}

// destroyedKeyPrefix begins the names under which the database remembers, for ever, the keys that
// were destroyed on record. The key's id follows; the value is its tenant.
const destroyedKeyPrefix = "digest-key-destroyed:"

// destroyed returns the value for a destroyed key.
func destroyed(tenant, id string) store.Meta {
	return store.Meta{Key: destroyedKeyPrefix + id, Value: []byte(tenant)}
}

func remember(tenant string, k rememberedKey) (store.Meta, error) {
	value, err := json.Marshal(k)
	return store.Meta{Key: digestKeyPrefix + tenant, Value: value}, err
}

// Settle compares the digest keys with the database, and makes the missing ones. It does not
// replace a lost key by itself: digests on record were made with it, and a new key would give other
// digests of the same texts. An operator who installs a file without the key gives it up, which
// goes on record. A key that was destroyed on record is never used again.
func (k *Keys) Settle(ctx context.Context, log *store.Store, tenants ...string) error {
	k.store = log
	if err := k.dropOldKey(ctx); err != nil {
		return err
	}
	digests := k.digests
	values, err := k.store.MetaUnder(ctx, digestKeyPrefix)
	if err != nil {
		return err
	}
	gone, err := k.destroyedKeys(ctx, values)
	if err != nil {
		return err
	}
	have := digests.IDs()
	var lost, wrong, back []string
	for tenant, id := range have {
		if gone[id] {
			back = append(back, tenant)
		}
	}
	for tenant, was := range values {
		var key rememberedKey
		if err := json.Unmarshal(was, &key); err != nil {
			return unreadableKey(tenant, err)
		}
		tenant = strings.TrimPrefix(tenant, digestKeyPrefix)
		switch id := have[tenant]; {
		case key.Destroyed:
			// There is a new key, the destroyed one, or none yet.
		case id == "":
			lost = append(lost, tenant)
		case id != key.ID:
			wrong = append(wrong, tenant)
		default:
			delete(have, tenant)
		}
	}
	if len(lost)+len(wrong) > 0 {
		digested, err := k.digested(ctx)
		if err != nil {
			return err
		}
		// A key without any digest is no loss.
		unused := func(tenant string) bool { return !digested[tenant] }
		lost, wrong = slices.DeleteFunc(lost, unused), slices.DeleteFunc(wrong, unused)
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("cannot use the digest keys in %s of: %s; digests on record were made with other keys%s; put those back from a backup, "+
			"or take the tenants' entries out of the file to go on with new ones, with which they match nothing", digests.File(), orNone(wrong), alsoDestroyed(wrong, back))
	}
	slices.Sort(back)
	for _, tenant := range back {
		if err := k.destroyAgain(tenant); err != nil {
			return err
		}
		delete(have, tenant)
	}
	slices.Sort(lost)
	if err := k.giveUp(lost); err != nil {
		return err
	}
	// These keys are older than the database's notes, or a crash prevented the note.
	if err := k.rememberKeys(have); err != nil {
		return err
	}
	digests.OnMade(k.rememberKeys)
	k.opened.Store(true)
	if err := digests.Prepare(tenants...); err != nil {
		// The daemon can still decide about waiting messages. It refuses a text until its tenant
		// has a key.
		k.log.Error("cannot make digest keys", zap.Error(err))
	}
	return nil
}

func unreadableKey(name string, err error) error {
	return fmt.Errorf("cannot read the database's note about the digest key of tenant %q: %w", strings.TrimPrefix(name, digestKeyPrefix), err)
}

// alsoDestroyed names the tenants for whom the file has a destroyed key.
func alsoDestroyed(wrong, back []string) string {
	both := slices.DeleteFunc(slices.Clone(wrong), func(tenant string) bool { return !slices.Contains(back, tenant) })
	if len(both) == 0 {
		return ""
	}
	return ", and keys that were destroyed on record are there of: " + orNone(both)
}

// destroyedKeys returns the ids of all keys that were ever destroyed on record. The values are the
// notes about the tenants' keys: earlier daemons noted a destruction only there, until the next key
// of the tenant.
func (k *Keys) destroyedKeys(ctx context.Context, values map[string][]byte) (map[string]bool, error) {
	noted, err := k.store.MetaUnder(ctx, destroyedKeyPrefix)
	if err != nil {
		return nil, err
	}
	gone := make(map[string]bool, len(noted))
	for name := range noted {
		gone[strings.TrimPrefix(name, destroyedKeyPrefix)] = true
	}
	c := &store.Change{Drains: true}
	for name, value := range values {
		var key rememberedKey
		if err := json.Unmarshal(value, &key); err != nil {
			return nil, unreadableKey(name, err)
		}
		if key.Destroyed && !gone[key.ID] {
			gone[key.ID] = true
			c.Add(destroyed(strings.TrimPrefix(name, digestKeyPrefix), key.ID))
		}
	}
	if len(c.Parts) == 0 {
		return gone, nil
	}
	if _, err := k.store.Commit(c); err != nil {
		return nil, fmt.Errorf("cannot remember destroyed digest keys: %w", err)
	}
	return gone, nil
}

// destroyAgain disables a key that was destroyed on record and is still there, and removes it from
// the file. It may come from a backup, or the daemon ended before it could destroy the key.
func (k *Keys) destroyAgain(tenant string) error {
	digests := k.digests
	id := digests.IDs()[tenant]
	seq, err := k.record(eventForgotten, tenant, map[string]any{"file": digests.File(), "again": true})
	if err != nil {
		return err
	}
	fields := []zap.Field{zap.String("tenant", tenant), zap.String("key", id), zap.String("file", digests.File()), zap.Uint64("record", seq)}
	if _, err := digests.Destroy(tenant); err != nil {
		// The key must not be used, even if the disk fails.
		digests.Withdraw(tenant)
		k.log.Error("a digest key that is destroyed on record is there again and cannot be destroyed: it is not used; remove it from the file, and from its source, such as a backup",
			append(fields, zap.Error(err))...)
		return nil
	}
	k.log.Error("a digest key that is destroyed on record was there again: it was not used and is destroyed again; destroy it also at its source, such as a backup", fields...)
	return nil
}

// digested returns the tenants with digests on record whose key is not on record as destroyed or
// lost. It reads the whole log.
func (k *Keys) digested(ctx context.Context) (map[string]bool, error) {
	tenants := make(map[string]bool)
	err := k.store.EachLine(ctx, k.store.Retired(), func(_ uint64, line []byte) error {
		made := bytes.Contains(line, []byte(`"hmac-sha256:`)) || bytes.Contains(line, []byte(`"redacted:`))
		ended := bytes.Contains(line, []byte(`"event":"`+eventForgotten+`"`)) || bytes.Contains(line, []byte(`"event":"`+eventLost+`"`))
		if !made && !ended {
			return nil
		}
		r, err := audit.Parse(line)
		if err == nil {
			tenants[r.TenantID] = !ended
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for digests on record: %w", err)
	}
	return tenants, nil
}

// rememberKeys notes keys in the database.
func (k *Keys) rememberKeys(ids map[string]string) error {
	if len(ids) == 0 {
		return nil
	}
	c := &store.Change{Drains: true}
	for tenant, id := range ids {
		m, err := remember(tenant, rememberedKey{ID: id})
		if err != nil {
			return err
		}
		c.Add(m)
	}
	if _, err := k.store.Commit(c); err != nil {
		return fmt.Errorf("cannot remember digest keys: %w", err)
	}
	return nil
}

// giveUp records the loss of digest keys if the operator has installed a file without them. If
// there is no file, it refuses to continue.
func (k *Keys) giveUp(lost []string) error {
	if len(lost) == 0 {
		return nil
	}
	digests := k.digests
	if !digests.Found() {
		return fmt.Errorf("cannot find %s, and digests on record were made with its keys, of: %s; put the file back from a backup, "+
			"or continue with new keys; those digests then match nothing: %s", digests.File(), orNone(lost), digests.GiveUp())
	}
	c := &store.Change{Drains: true}
	for _, tenant := range lost {
		c.Add(store.Dropped(digestKeyPrefix + tenant))
		c.Records = append(c.Records, &audit.Record{
			ID: k.newID(), ActionType: audit.ActionSecurity, Event: eventLost, TenantID: tenant, Details: map[string]any{"file": digests.File()},
		})
	}
	receipt, err := k.store.Commit(c)
	if err != nil {
		return fmt.Errorf("cannot record that digest keys are lost: %w", err)
	}
	k.log.Error("digest keys are lost: earlier digests no longer match anything, and new keys are made",
		zap.Strings("tenants", lost), zap.String("file", digests.File()), zap.Uint64("record", receipt.Seq))
	return nil
}

// Prepare makes the missing keys of tenants.
func (k *Keys) Prepare(tenants ...string) error {
	if err := k.digests.Prepare(tenants...); err != nil {
		return fmt.Errorf("cannot make digest keys: %w", err)
	}
	return nil
}

// Digest returns the keyed digest of a tenant's text. If the disk has no room for its key, the
// error is the same as for a record.
func (k *Keys) Digest(tenant, text string) (string, error) {
	return k.DigestForm(tenant, "", func(b []byte) ([]byte, error) { return append(b, text...), nil })
}

// DigestForm is [Keys.Digest] for bytes that a function appends to a buffer.
func (k *Keys) DigestForm(tenant, label string, form func([]byte) ([]byte, error)) (string, error) {
	if !k.opened.Load() {
		// A lost key must not be replaced before the loss was noticed.
		return "", errors.New("cannot make a digest: the keys are not ready yet")
	}
	digest, err := k.digests.DigestForm(tenant, label, form)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return digest, err
}

// oldDigestKey is the name under which earlier daemons kept a single digest key.
const oldDigestKey = "content-digest-key"

// dropOldKey removes the digest key of an earlier daemon from the database: with a copy of the
// database, anybody could guess texts. Digests made with that key no longer match.
func (k *Keys) dropOldKey(ctx context.Context) error {
	key, err := k.store.Meta(ctx, oldDigestKey)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(key) == 0 {
		return nil
	}
	if err == nil {
		_, err = k.store.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: oldDigestKey}}, Drains: true})
	}
	if err != nil {
		return fmt.Errorf("cannot remove the digest key from the database: %w", err)
	}
	k.log.Info("digests are made with a key for each tenant from now on; earlier ones no longer match anything")
	return nil
}

// Events of the keys, on record.
const (
	eventForgotten = audit.KeyDestroyed
	eventKept      = "digest_key_kept"
	eventLost      = audit.KeyLost
)

// record records an event of a key before it happens.
func (k *Keys) record(event, tenant string, details map[string]any, remembered ...store.Part) (uint64, error) {
	receipt, err := k.store.Commit(&store.Change{Drains: true, Parts: remembered, Records: []*audit.Record{{
		ID: k.newID(), ActionType: audit.ActionSecurity, Event: event, TenantID: tenant, Details: details,
	}}})
	if err != nil {
		k.log.Error("cannot record the event of a key: the key stays", zap.String("event", event), zap.Error(err))
		return 0, storeerror.NotRecorded("cannot record it, so nothing was done", err)
	}
	return receipt.Seq, nil
}

// Forget destroys a tenant's digest key. It first records the destruction. If the daemon dies in
// between, or the key cannot be destroyed, the key still exists and the operator has to ask again.
// The work does not end with its caller.
func (k *Keys) Forget(_ context.Context, who api.Peer, p *api.AuditForgetParams) (api.AuditForgetResult, error) {
	tenant := *p.Tenant
	digests := k.digests
	if have := digests.Tenants(); !slices.Contains(have, tenant) {
		return api.AuditForgetResult{}, api.Errorf(api.NotFound, "there is no digest key of tenant %q; there are keys of: %s", tenant, orNone(have))
	}
	id := digests.IDs()[tenant]
	gone, err := remember(tenant, rememberedKey{ID: id, Destroyed: true})
	if err != nil {
		return api.AuditForgetResult{}, err
	}
	seq, err := k.record(eventForgotten, tenant, caller.Details(who), gone, destroyed(tenant, id))
	if err != nil {
		return api.AuditForgetResult{}, err
	}
	if _, err := digests.Destroy(tenant); err != nil {
		details := caller.Details(who)
		details["error"], details["record"] = err.Error(), seq
		if _, failed := k.record(eventKept, tenant, details); failed != nil {
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
