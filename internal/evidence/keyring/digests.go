package keyring

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// digestFile holds the tenants' digest keys.
const digestFile = "digest.json"

// digestKeyBytes is the length of a digest key, that of the hash.
const digestKeyBytes = sha256.Size

// digestScheme is the prefix of every digest.
const digestScheme = "hmac-sha256:"

// keepBuffer bounds the buffer that is reused for the next text.
const keepBuffer = 64 << 10

// Digests makes keyed digests of texts, with a key for each tenant. Equal texts of one tenant have
// equal digests. Across tenants, or without the key, a digest reveals nothing. After a key is
// destroyed, nobody can verify a digest any more, not even by guessing the text.
type Digests struct {
	dir    string
	random io.Reader
	now    func() time.Time

	// found is set if there was a file at the start.
	found bool
	// made receives the ids of new keys before their use.
	made func(ids map[string]string) error

	// change is held while the file is written.
	change sync.Mutex
	// tenants is replaced as a whole, so that making a digest takes no lock.
	tenants atomic.Pointer[map[string]*digestKey]
}

// digestKey is one tenant's key in use.
type digestKey struct {
	storedKey
	// macs are pools of keyed hashes by the label of their key, "" for the tenant's key itself.
	macs sync.Map
}

// storedKey is one tenant's key in the file.
type storedKey struct {
	Key    []byte    `json:"key"`
	MadeAt time.Time `json:"madeAt"`
}

// storedKeys is the file. The tenant "" has the key for texts without a tenant.
type storedKeys struct {
	Tenants map[string]storedKey `json:"tenants"`
}

// OpenDigests opens the digest keys of a directory.
func OpenDigests(dir string, random io.Reader, now func() time.Time) (*Digests, error) {
	d := &Digests{dir: dir, random: random, now: now}
	if err := prepare(dir, digestFile); err != nil {
		return nil, err
	}
	tenants := make(map[string]*digestKey)
	text, err := read(dir, digestFile, secretMode)
	switch {
	case err == nil:
		stored, err := parseDigestKeys(text)
		if err != nil {
			return nil, fmt.Errorf("cannot use the key file %s: %w; put it back from a backup, or continue with new keys; earlier digests then match nothing: %s",
				d.File(), err, d.GiveUp())
		}
		d.found = true
		for tenant, key := range stored.Tenants {
			tenants[tenant] = newDigestKey(key)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d.tenants.Store(&tenants)
	return d, nil
}

// File returns the path of the keys.
func (d *Digests) File() string { return filepath.Join(d.dir, digestFile) }

// GiveUp returns the command that replaces a lost or damaged file by one without keys. With it, the
// operator gives them up on purpose.
func (d *Digests) GiveUp() string {
	return "(umask 077; echo '{\"tenants\":{}}' > " + shellQuote(d.File()) + ")"
}

// shellQuote quotes a text as one word.
func shellQuote(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@:+,") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Found reports whether there was a file of keys at the open.
func (d *Digests) Found() bool { return d.found }

// IDs returns the ids of the tenants' keys: 16 hexadecimal digits that identify a key, and reveal
// nothing about it.
func (d *Digests) IDs() map[string]string {
	ids := make(map[string]string)
	for tenant, key := range *d.tenants.Load() {
		ids[tenant] = key.id()
	}
	return ids
}

func (k *digestKey) id() string {
	sum := sha256.Sum256(append([]byte("ocipd digest key\x00"), k.Key...))
	return hex.EncodeToString(sum[:8])
}

// OnMade sets a function that receives the ids of new keys, by tenant, after they are durable and
// before anything is digested with them. If the function fails, the keys are not used. It is set
// before the first use, and must not ask for digests.
func (d *Digests) OnMade(made func(ids map[string]string) error) { d.made = made }

// parseDigestKeys reads the file strictly. Its errors contain nothing of it.
func parseDigestKeys(text []byte) (storedKeys, error) {
	var stored storedKeys
	if err := json.Unmarshal(text, &stored, json.RejectUnknownMembers(true)); err != nil {
		return storedKeys{}, errors.New("it holds no digest keys, as JSON")
	}
	for _, key := range stored.Tenants {
		if len(key.Key) != digestKeyBytes {
			return storedKeys{}, fmt.Errorf("it holds a key of %d bytes, and they have %d", len(key.Key), digestKeyBytes)
		}
	}
	return stored, nil
}

func newDigestKey(stored storedKey) *digestKey { return &digestKey{storedKey: stored} }

// under returns the keyed hashes of a label. The key of a label is derived with SHA-512. A digest
// on record is a SHA-256, so it can never be such a key, for any text.
func (k *digestKey) under(label string) (*sync.Pool, error) {
	if macs, ok := k.macs.Load(label); ok {
		return macs.(*sync.Pool), nil
	}
	key := k.Key
	if label != "" {
		var err error
		if key, err = hkdf.Expand(sha512.New, k.Key, label, digestKeyBytes); err != nil {
			return nil, fmt.Errorf("cannot derive a digest key: %w", err)
		}
	}
	macs, _ := k.macs.LoadOrStore(label, &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }})
	return macs.(*sync.Pool), nil
}

// mac is a keyed hash with a buffer for a text.
type mac struct {
	hash.Hash
	buffer []byte
}

// Digest returns "hmac-sha256:" and 64 hexadecimal digits. The first digest of a tenant makes its
// key, and fails if the key cannot be made durable: if a crash loses the key, its digests match
// nothing afterwards.
func (d *Digests) Digest(tenant, text string) (string, error) {
	return d.DigestForm(tenant, "", func(b []byte) ([]byte, error) { return append(b, text...), nil })
}

// DigestForm is [Digests.Digest] for bytes that a function appends to a buffer, under the tenant's
// key for a label: no text has the same digest under two labels. The tenant's key itself has the
// label "".
func (d *Digests) DigestForm(tenant, label string, form func([]byte) ([]byte, error)) (string, error) {
	key := (*d.tenants.Load())[tenant]
	for key == nil {
		if err := d.Prepare(tenant); err != nil {
			return "", err
		}
		// The key may already be destroyed again.
		key = (*d.tenants.Load())[tenant]
	}
	return key.digest(label, form)
}

func (k *digestKey) digest(label string, form func([]byte) ([]byte, error)) (string, error) {
	macs, err := k.under(label)
	if err != nil {
		return "", err
	}
	m := macs.Get().(*mac)
	defer macs.Put(m)
	m.Reset()
	if m.buffer, err = form(m.buffer[:0]); err != nil {
		return "", err
	}
	m.Write(m.buffer)
	m.buffer = m.Sum(m.buffer[:0])
	var digest [len(digestScheme) + 2*sha256.Size]byte
	copy(digest[:], digestScheme)
	hex.Encode(digest[len(digestScheme):], m.buffer)
	if cap(m.buffer) > keepBuffer {
		m.buffer = nil
	}
	return string(digest[:]), nil
}

// Prepare makes the missing keys of the tenants, so that their first digests need no disk.
func (d *Digests) Prepare(tenants ...string) error {
	d.change.Lock()
	defer d.change.Unlock()
	have := *d.tenants.Load()
	more := maps.Clone(have)
	made := make(map[string]string)
	for _, tenant := range tenants {
		if more[tenant] != nil {
			continue
		}
		stored := storedKey{Key: make([]byte, digestKeyBytes), MadeAt: d.now().UTC()}
		if _, err := io.ReadFull(d.random, stored.Key); err != nil {
			return fmt.Errorf("cannot make a digest key: %w", err)
		}
		more[tenant] = newDigestKey(stored)
		made[tenant] = more[tenant].id()
	}
	if len(made) == 0 {
		return nil
	}
	if err := d.write(more); err != nil {
		return err
	}
	if d.made != nil {
		if err := d.made(made); err != nil {
			return err
		}
	}
	d.tenants.Store(&more)
	return nil
}

func (d *Digests) write(tenants map[string]*digestKey) error {
	stored := storedKeys{Tenants: make(map[string]storedKey, len(tenants))}
	for tenant, key := range tenants {
		stored.Tenants[tenant] = key.storedKey
	}
	text, err := json.Marshal(&stored, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("cannot encode the digest keys: %w", err)
	}
	return write(d.dir, digestFile, secretMode, append(text, '\n'))
}

// Tenants returns the tenants that have a key, sorted.
func (d *Digests) Tenants() []string { return slices.Sorted(maps.Keys(*d.tenants.Load())) }

// Destroy destroys a tenant's key, and reports whether there was one. Afterwards nobody can verify
// the digests that were made with it. The tenant's next digest makes a new key. Destroy may be
// repeated.
//
// It replaces the file by one without the key, and overwrites the old one with zeros. A program can
// do no more, and this is no proof: file systems that copy on write and drives with wear levelling
// may keep the old blocks for a while, and so do backups. Memory is released, and not wiped.
func (d *Digests) Destroy(tenant string) (existed bool, err error) {
	d.change.Lock()
	defer d.change.Unlock()
	tenants := *d.tenants.Load()
	if tenants[tenant] == nil {
		return false, nil
	}
	fewer := maps.Clone(tenants)
	delete(fewer, tenant)
	// The old file loses its name and not its blocks.
	old, err := os.OpenFile(filepath.Join(d.dir, digestFile), os.O_WRONLY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("cannot destroy a digest key: %w", err)
	}
	if old != nil {
		defer old.Close()
	}
	if err := d.write(fewer); err != nil {
		return true, err
	}
	d.tenants.Store(&fewer)
	if old == nil {
		return true, nil
	}
	if err := zero(old); err != nil {
		return true, fmt.Errorf("cannot overwrite a digest key, which is out of use: %w", err)
	}
	return true, nil
}

// Withdraw disables a tenant's key and leaves the file unchanged. The next write of the file omits
// the key.
func (d *Digests) Withdraw(tenant string) {
	d.change.Lock()
	defer d.change.Unlock()
	fewer := maps.Clone(*d.tenants.Load())
	delete(fewer, tenant)
	d.tenants.Store(&fewer)
}

// zero overwrites a file.
func zero(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, info.Size()), 0); err != nil {
		return err
	}
	return f.Sync()
}
