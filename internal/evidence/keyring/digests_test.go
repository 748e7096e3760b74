package keyring

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
)

func digest(tb testing.TB, d *Digests, tenant, text string) string {
	tb.Helper()
	return must[string](tb)(d.Digest(tenant, text))
}

// storedIn returns the key of a tenant in the file.
func storedIn(tb testing.TB, dir, tenant string) []byte {
	tb.Helper()
	stored := must[storedKeys](tb)(parseDigestKeys(must[[]byte](tb)(os.ReadFile(filepath.Join(dir, digestFile)))))
	return stored.Tenants[tenant].Key
}

func TestDigestIsTheHMACUnderTheTenantsKey(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	for _, text := range []string{"", "text", strings.Repeat("long ", 40_000), "text"} {
		got := digest(t, d, "acme", text)
		mac := hmac.New(sha256.New, storedIn(t, dir, "acme"))
		mac.Write([]byte(text))
		if want := "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)); got != want {
			t.Fatalf("%d bytes: got %s, want %s", len(text), got, want)
		}
	}
}

// The keys of labels differ, and no digest on record is one of them: not even that of a label
// itself, which an agent may write.
func TestLabelsHaveTheirOwnKeys(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	known := make(map[string]bool)
	for _, label := range []string{"", "one", "two"} {
		for _, text := range []string{"text", "one", "two", "one\x01"} {
			got := must[string](t)(d.DigestForm("acme", label, func(b []byte) ([]byte, error) { return append(b, text...), nil }))
			if known[got] {
				t.Errorf("the text %q under the label %q has the digest of something else", text, label)
			}
			known[got] = true
		}
	}
	// As docs/for-auditors/digests.md describes it.
	derived := hmac.New(sha512.New, storedIn(t, dir, "acme"))
	derived.Write([]byte("one\x01"))
	mac := hmac.New(sha256.New, derived.Sum(nil)[:32])
	mac.Write([]byte("text"))
	if !known["hmac-sha256:"+hex.EncodeToString(mac.Sum(nil))] {
		t.Error("the key of a label is not the one that is documented")
	}
}

func TestEqualTextsMatchInsideATenantOnly(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	acme := digest(t, d, "acme", "text")
	if digest(t, d, "acme", "text") != acme || digest(t, d, "acme", "Text") == acme {
		t.Error("a digest does not stand for its text")
	}
	for _, other := range []string{"globex", ""} {
		if digest(t, d, other, "text") == acme {
			t.Errorf("tenant %q has the digest of another", other)
		}
	}
	again := digests(t, dir)
	if digest(t, again, "acme", "text") != acme {
		t.Error("after a restart the digest is another")
	}
	if got := again.Tenants(); !slices.Equal(got, []string{"", "acme", "globex"}) {
		t.Errorf("tenants with a key: %q", got)
	}
	if digest(t, digests(t, place(t)), "acme", "text") == acme {
		t.Error("another daemon has the same digest")
	}
}

func TestKeyIsDurableBeforeItsFirstDigest(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	// If nothing can be written, there is no digest.
	if err := os.Mkdir(filepath.Join(dir, digestFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, digestFile, "in the way"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := d.Digest("acme", "text")
	refused(t, err, digestFile)
	if err := os.RemoveAll(filepath.Join(dir, digestFile)); err != nil {
		t.Fatal(err)
	}
	first := digest(t, d, "acme", "text")
	if digest(t, digests(t, dir), "acme", "text") != first {
		t.Error("the key was not on disk")
	}
	_, err = must[*Digests](t)(OpenDigests(place(t), iotest.ErrReader(errors.New("no entropy")), noon)).Digest("acme", "text")
	refused(t, err, "no entropy")
}

func TestPreparedTenantsNeedNoDisk(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	was := digest(t, d, "acme", "text")
	if err := d.Prepare("globex", "acme", "", "globex"); err != nil {
		t.Fatal(err)
	}
	if got := d.Tenants(); !slices.Equal(got, []string{"", "acme", "globex"}) || digest(t, d, "acme", "text") != was {
		t.Errorf("tenants with a key: %q", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range d.Tenants() {
		digest(t, d, tenant, "text")
	}
	if err := d.Prepare("acme"); err != nil {
		t.Errorf("nothing was to be made: %v", err)
	}
	if _, err := d.Digest("initech", "text"); err == nil {
		t.Error("a key was made without a disk")
	}
}

// A disabled key is in the file until the next write.
func TestWithdrawnKeyIsNotUsed(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	was, other := digest(t, d, "acme", "text"), digest(t, d, "globex", "text")
	key := storedIn(t, dir, "acme")
	d.Withdraw("acme")
	if got := d.Tenants(); !slices.Equal(got, []string{"globex"}) {
		t.Errorf("tenants with a key: %q", got)
	}
	if got := storedIn(t, dir, "acme"); !bytes.Equal(got, key) {
		t.Error("the file was written")
	}
	if digest(t, d, "acme", "text") == was || digest(t, d, "globex", "text") != other {
		t.Error("the digests are wrong")
	}
	if got := storedIn(t, dir, "acme"); bytes.Equal(got, key) {
		t.Error("the file still holds the key")
	}
}

func TestDestroyedKeyIsGone(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	was, other := digest(t, d, "acme", "text"), digest(t, d, "globex", "text")
	key := storedIn(t, dir, "acme")
	// A descriptor shows the old file's content, as would a forensic copy of its blocks.
	old := must[*os.File](t)(os.Open(filepath.Join(dir, digestFile)))
	defer old.Close()

	for i, want := range []bool{true, false} {
		if existed, err := d.Destroy("acme"); err != nil || existed != want {
			t.Fatalf("time %d: existed %t, %v", i, existed, err)
		}
	}
	info := must[os.FileInfo](t)(old.Stat())
	left := make([]byte, info.Size())
	if _, err := old.ReadAt(left, 0); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(left, func(b byte) bool { return b != 0 }) {
		t.Errorf("the old file still holds %q", left)
	}
	encoded := must[[]byte](t)(json.Marshal(key))
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		text := must[[]byte](t)(os.ReadFile(filepath.Join(dir, e.Name())))
		if strings.Contains(string(text), strings.Trim(string(encoded), `"`)) {
			t.Errorf("%s still holds the key", e.Name())
		}
	}
	if got := d.Tenants(); !slices.Equal(got, []string{"globex"}) {
		t.Errorf("tenants with a key: %q", got)
	}
	// The next text makes another key, and no other tenant is affected.
	if digest(t, d, "acme", "text") == was {
		t.Error("the digest is what it was")
	}
	again := digests(t, dir)
	if digest(t, again, "globex", "text") != other || digest(t, again, "acme", "text") == was {
		t.Error("after a restart the digests are wrong")
	}
}

func TestDigestsSideBySide(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	var wg sync.WaitGroup
	results := make([]map[string]string, 8)
	for i := range results {
		results[i] = make(map[string]string)
		wg.Go(func() {
			for n := range 200 {
				tenant := fmt.Sprint(n % 5)
				got, err := d.Digest(tenant, "text")
				if err != nil {
					t.Error(err)
					return
				}
				if was := results[i][tenant]; was != "" && was != got {
					t.Errorf("tenant %s: %s and %s", tenant, was, got)
				}
				results[i][tenant] = got
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if _, err := d.Destroy("nobody's"); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	again := digests(t, dir)
	for _, result := range results {
		for tenant, got := range result {
			if want := digest(t, again, tenant, "text"); got != want {
				t.Errorf("tenant %s: %s, and %s after a restart", tenant, got, want)
			}
		}
	}
}

func TestForeignDigestFile(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":        `tenants`,
		"a short key":     `{"tenants":{"acme":{"key":"c2hvcnQ=","madeAt":"2026-03-13T12:00:00Z"}}}`,
		"no key":          `{"tenants":{"acme":{"madeAt":"2026-03-13T12:00:00Z"}}}`,
		"a member beside": `{"tenants":{},"more":1}`,
		"two of one name": `{"tenants":{},"tenants":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			digests(t, dir)
			if err := os.WriteFile(filepath.Join(dir, digestFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenDigests(dir, rand.Reader, noon)
			refused(t, err, digestFile, "backup")
			if strings.Contains(err.Error(), "c2hvcnQ") {
				t.Errorf("the error holds of the key: %v", err)
			}
		})
	}
}

func FuzzParseDigestKeys(f *testing.F) {
	for _, text := range []string{
		"", "{}", `{"tenants":null}`, `{"tenants":{"acme":{"key":"c2hvcnQ=","madeAt":"2026-03-13T12:00:00Z"}}}`,
		`{"tenants":{"":{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","madeAt":"2026-03-13T12:00:00Z"}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		stored, err := parseDigestKeys(text)
		if err != nil {
			return
		}
		for tenant, key := range stored.Tenants {
			if len(key.Key) != digestKeyBytes {
				t.Errorf("tenant %q has a key of %d bytes", tenant, len(key.Key))
			}
			got, err := newDigestKey(key).digest("", func(b []byte) ([]byte, error) { return append(b, "text"...), nil })
			if err != nil || len(got) != len(digestScheme)+64 {
				t.Errorf("tenant %q has the digest %q, %v", tenant, got, err)
			}
		}
	})
}

// BenchmarkDigest is a part of the cost of every message.
func BenchmarkDigest(b *testing.B) {
	d := digests(b, place(b))
	text := strings.Repeat("a text of a usual length ", 16)
	digest(b, d, "acme", text)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Digest("acme", text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("side by side", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := d.Digest("acme", text); err != nil {
					b.Error(err)
				}
			}
		})
	})
	// The earlier form: one key for all tenants.
	b.Run("one key", func(b *testing.B) {
		key := make([]byte, digestKeyBytes)
		pool := sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }}
		b.ReportAllocs()
		for b.Loop() {
			m := pool.Get().(*mac)
			m.Reset()
			m.Write([]byte(text))
			_ = "hmac-sha256:" + hex.EncodeToString(m.Sum(nil))
			pool.Put(m)
		}
	})
}

// The function from OnMade learns the id of each key before its use. The id stays, and reveals
// nothing about the key.
func TestKeysAreNamed(t *testing.T) {
	dir := place(t)
	d := digests(t, dir)
	if d.Found() || len(d.IDs()) != 0 {
		t.Fatalf("of nothing, found %t with %v", d.Found(), d.IDs())
	}
	booked := make(map[string]string)
	var failure error
	d.OnMade(func(ids map[string]string) error {
		for tenant, id := range ids {
			if storedIn(t, dir, tenant) == nil {
				t.Errorf("the key of %q is not durable yet", tenant)
			}
			if slices.Contains(d.Tenants(), tenant) {
				t.Errorf("the key of %q is in use already", tenant)
			}
			booked[tenant] = id
		}
		return failure
	})
	failure = errors.New("no book")
	if got, err := d.Digest("acme", "text"); !errors.Is(err, failure) {
		t.Errorf("digested with a key that nobody has heard of: %s, %v", got, err)
	}
	failure = nil
	digest(t, d, "acme", "text")
	if err := d.Prepare("acme", "globex"); err != nil {
		t.Fatal(err)
	}
	ids := d.IDs()
	if len(ids) != 2 || !maps.Equal(ids, booked) || len(ids["acme"]) != 16 || ids["acme"] == ids["globex"] {
		t.Errorf("the keys are %v, and booked %v", ids, booked)
	}
	if strings.Contains(hex.EncodeToString(storedIn(t, dir, "acme")), ids["acme"]) {
		t.Error("the id is a part of the key")
	}
	again := digests(t, dir)
	if !again.Found() || !maps.Equal(again.IDs(), ids) {
		t.Errorf("after a restart, found %t with %v", again.Found(), again.IDs())
	}
	if _, err := again.Destroy("acme"); err != nil {
		t.Fatal(err)
	}
	if digest(t, again, "acme", "text"); again.IDs()["acme"] == ids["acme"] || again.IDs()["globex"] != ids["globex"] {
		t.Errorf("after one was destroyed they are %v, and were %v", again.IDs(), ids)
	}
}

// The printed command gives keys up, whatever the path is called.
func TestKeysAreGivenUp(t *testing.T) {
	for _, name := range []string{"keys", "it's a $(place)"} {
		dir := filepath.Join(place(t), name)
		d := digests(t, dir)
		digest(t, d, "acme", "text")
		if err := os.WriteFile(d.File(), []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenDigests(dir, rand.Reader, time.Now)
		if err == nil || !strings.HasSuffix(err.Error(), d.GiveUp()) {
			t.Fatalf("damaged keys: %v", err)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", d.GiveUp()).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s, %v", d.GiveUp(), out, err)
		}
		if again := digests(t, dir); !again.Found() || len(again.IDs()) != 0 {
			t.Errorf("given up, found %t with %v", again.Found(), again.IDs())
		}
	}
}
