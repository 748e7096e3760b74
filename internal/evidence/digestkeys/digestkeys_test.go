package digestkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// operator is the caller on the operator socket.
type operator struct{ api.Peer }

func (operator) Credentials() (uid, gid uint32, pid int32) { return 1000, 1000, 42 }

// place is the location of a daemon's database and keys.
type place struct {
	t   *testing.T
	dir string
	ids int
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return &place{t: t, dir: t.TempDir()}
}

func (p *place) file() string { return filepath.Join(p.dir, "keys", "digest.json") }

func (p *place) newID() string {
	p.ids++
	return fmt.Sprint("id-", p.ids)
}

// start opens both, like a daemon's start.
func (p *place) start(tenants ...string) (*store.Store, *Keys, error) {
	p.t.Helper()
	s, err := store.Open(p.t.Context(), store.Options{Path: filepath.Join(p.dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		p.t.Fatal(err)
	}
	keys, err := Open(Options{Dir: filepath.Join(p.dir, "keys"), Now: time.Now, NewID: p.newID, Log: zap.NewNop()})
	if err != nil {
		p.t.Fatal(err)
	}
	return s, keys, keys.Settle(p.t.Context(), s, tenants...)
}

// started starts, runs a function and stops.
func (p *place) started(do func(*store.Store, *Keys), tenants ...string) {
	p.t.Helper()
	s, keys, err := p.start(tenants...)
	if err != nil {
		p.t.Fatal(errors.Join(err, s.Close()))
	}
	do(s, keys)
	if err := s.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// refused starts, expects a failure, and returns the reason.
func (p *place) refused(tenants ...string) string {
	p.t.Helper()
	before := p.read()
	s, keys, err := p.start(tenants...)
	if err == nil {
		p.t.Fatal("it starts")
	}
	if _, err := keys.Digest("acme", "text"); err == nil {
		p.t.Error("a digest is made with keys that were not taken up")
	}
	if head := s.Head().Seq; !bytes.Equal(p.read(), before) {
		p.t.Errorf("the file is another one after a start that was refused, at record %d", head)
	}
	if err := s.Close(); err != nil {
		p.t.Fatal(err)
	}
	return err.Error()
}

// read returns the file of keys, or nil.
func (p *place) read() []byte {
	p.t.Helper()
	text, err := os.ReadFile(p.file())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return text
}

func (p *place) write(text []byte) {
	p.t.Helper()
	if err := os.WriteFile(p.file(), text, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func digest(t *testing.T, keys *Keys, tenant, text string) string {
	t.Helper()
	d, err := keys.Digest(tenant, text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// use records a digest of a tenant.
func use(t *testing.T, s *store.Store, keys *Keys, tenant string) string {
	t.Helper()
	d := digest(t, keys, tenant, "text")
	_, err := s.Commit(&store.Change{Records: []*audit.Record{{ID: "used", ActionType: audit.ActionExchange, TenantID: tenant, ContentDigest: d}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// events returns the records about keys: event and tenant.
func events(t *testing.T, s *store.Store) (found []string) {
	t.Helper()
	err := s.EachLine(t.Context(), 0, func(_ uint64, line []byte) error {
		e, err := audit.Parse(line)
		if strings.HasPrefix(e.Event, "digest_key") {
			found = append(found, e.Event+" "+e.TenantID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func forget(t *testing.T, keys *Keys, tenant string) error {
	t.Helper()
	_, err := keys.Forget(t.Context(), operator{}, &api.AuditForgetParams{Tenant: &tenant})
	return err
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Each tenant has a key of its own, which stays. The database has only its id.
func TestKeysStay(t *testing.T) {
	p := newPlace(t)
	var first, other string
	p.started(func(s *store.Store, keys *Keys) {
		first, other = use(t, s, keys, "acme"), use(t, s, keys, "beta")
		// A later tenant gets one with its first digest.
		use(t, s, keys, "late")
		known, err := s.MetaUnder(t.Context(), digestKeyPrefix)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "remembered", slices.Sorted(maps.Keys(known)), "digest-key:acme", "digest-key:beta", "digest-key:late")
		want(t, "on record", events(t, s))
	}, "acme", "beta")
	if first == other {
		t.Error("two tenants share a key")
	}
	p.started(func(_ *store.Store, keys *Keys) {
		if again := digest(t, keys, "acme", "text"); again != first {
			t.Errorf("%s after a restart, %s before", again, first)
		}
	}, "acme", "beta")
}

func TestNoDigestBeforeTheKeysAreTakenUp(t *testing.T) {
	keys, err := Open(Options{Dir: filepath.Join(t.TempDir(), "keys"), Now: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := keys.Digest("acme", "text"); err == nil {
		t.Errorf("it is made: %s", d)
	}
}

// A lost file is not replaced by itself if its keys were used for digests. If an operator installs
// one without them, that is a decision, which goes on record.
func TestLostKeys(t *testing.T) {
	p := newPlace(t)
	var before string
	p.started(func(s *store.Store, keys *Keys) { before = use(t, s, keys, "acme") }, "acme", "unused")
	if err := os.Remove(p.file()); err != nil {
		t.Fatal(err)
	}
	why := p.refused("acme", "unused")
	if !strings.Contains(why, p.file()) || !strings.Contains(why, `of: "acme"; put the file back`) {
		t.Errorf("it says: %s", why)
	}
	p.write([]byte(`{"tenants":{}}`))
	p.started(func(s *store.Store, keys *Keys) {
		want(t, "on record", events(t, s), "digest_key_lost acme")
		if digest(t, keys, "acme", "text") == before {
			t.Error("the lost key is back")
		}
	}, "acme", "unused")
	p.started(func(s *store.Store, _ *Keys) { want(t, "after another start", events(t, s), "digest_key_lost acme") }, "acme", "unused")
}

// Unused keys are not missed.
func TestUnusedKeysAreMadeAgain(t *testing.T) {
	p := newPlace(t)
	p.started(func(*store.Store, *Keys) {}, "acme")
	if err := os.Remove(p.file()); err != nil {
		t.Fatal(err)
	}
	p.started(func(s *store.Store, keys *Keys) {
		digest(t, keys, "acme", "text")
		want(t, "on record", events(t, s))
	}, "acme")
}

// Keys of another daemon in the file are not used.
func TestOtherKeys(t *testing.T) {
	p, other := newPlace(t), newPlace(t)
	p.started(func(s *store.Store, keys *Keys) { use(t, s, keys, "acme") }, "acme")
	other.started(func(*store.Store, *Keys) {}, "acme")
	own := p.read()
	p.write(other.read())
	if why := p.refused("acme"); !strings.Contains(why, `of: "acme"; digests on record were made with other keys`) {
		t.Errorf("it says: %s", why)
	}
	p.write(own)
	p.started(func(*store.Store, *Keys) {}, "acme")
}

// A destroyed key is removed from the file and disabled, also if somebody puts it back.
func TestForget(t *testing.T) {
	p := newPlace(t)
	var copied []byte
	var before string
	p.started(func(s *store.Store, keys *Keys) {
		before = use(t, s, keys, "acme")
		copied = p.read()
		err := forget(t, keys, "nobody")
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Code != api.NotFound || !strings.Contains(err.Error(), `keys of: "acme", "beta"`) {
			t.Errorf("a tenant without a key: %v", err)
		}
		if err := forget(t, keys, "acme"); err != nil {
			t.Fatal(err)
		}
		want(t, "on record", events(t, s), "digest_key_destroyed acme")
		if bytes.Contains(p.read(), []byte("acme")) {
			t.Error("the file has it still")
		}
		if digest(t, keys, "acme", "text") == before {
			t.Error("the destroyed key is used")
		}
	}, "acme", "beta")
	p.write(copied)
	p.started(func(s *store.Store, keys *Keys) {
		want(t, "on record", events(t, s), "digest_key_destroyed acme", "digest_key_destroyed acme")
		if digest(t, keys, "acme", "text") == before {
			t.Error("the destroyed key is used after it was put back")
		}
	}, "acme", "beta")
}

// A key that cannot be destroyed stays in use, and both events are recorded.
func TestForgetWhereTheFileCannotBeWritten(t *testing.T) {
	p := newPlace(t)
	p.started(func(s *store.Store, keys *Keys) {
		before := use(t, s, keys, "acme")
		// A non-empty directory of its name prevents the file.
		if err := errors.Join(os.Remove(p.file()), os.MkdirAll(filepath.Join(p.file(), "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
		err := forget(t, keys, "acme")
		if err == nil || !strings.Contains(err.Error(), "is not destroyed, though record 2 says so; do it again") {
			t.Errorf("it says: %v", err)
		}
		want(t, "on record", events(t, s), "digest_key_destroyed acme", "digest_key_kept acme")
		if digest(t, keys, "acme", "text") != before {
			t.Error("another key is used")
		}
		if err := os.RemoveAll(p.file()); err != nil {
			t.Fatal(err)
		}
		if err := forget(t, keys, "acme"); err != nil {
			t.Errorf("asked again: %v", err)
		}
	}, "acme")
}

// An event that cannot be recorded does not happen.
func TestForgetNeedsARecord(t *testing.T) {
	p := newPlace(t)
	s, keys, err := p.start("acme")
	if err != nil {
		t.Fatal(err)
	}
	before := digest(t, keys, "acme", "text")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := p.read()
	if err := forget(t, keys, "acme"); err == nil {
		t.Error("a key is destroyed without a record")
	}
	if !bytes.Equal(p.read(), file) || digest(t, keys, "acme", "text") != before {
		t.Error("the key is another one")
	}
	// A new key that the database cannot note is not used either.
	if d, err := keys.Digest("new", "text"); err == nil {
		t.Errorf("digested: %s", d)
	}
}

// The single key of earlier daemons is removed from the database.
func TestOldKeyIsDropped(t *testing.T) {
	p := newPlace(t)
	s, err := store.Open(context.Background(), store.Options{Path: filepath.Join(p.dir, "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err == nil {
		_, err = s.Commit(&store.Change{Parts: []store.Part{store.Meta{Key: oldDigestKey, Value: []byte("secret")}}, Drains: true})
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.started(func(s *store.Store, _ *Keys) {
		if key, err := s.Meta(t.Context(), oldDigestKey); err != nil || len(key) > 0 {
			t.Errorf("%q, %v", key, err)
		}
	}, "acme")
}
