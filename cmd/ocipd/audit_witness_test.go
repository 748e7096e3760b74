package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"golang.org/x/mod/sumdb/note"
)

// verify --witness requires a witness's cosignature that fits the log.
func TestVerifyDemandsTheWitness(t *testing.T) {
	t.Parallel()
	d := newStaged(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
`)
	d.begin(t, "@acme/alice", "@acme/link")
	key := strings.TrimSpace(d.ocipd(t, "audit", "key", "show").stdout)
	w, err := witness.Open(t.TempDir(), "other.example", time.Now, key)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := witness.Open(t.TempDir(), "other.example", time.Now, key)
	if err != nil {
		t.Fatal(err)
	}
	at := "unix:" + filepath.Join(d.dir, "witness.sock")
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- w.Serve(ctx, at, func(address string) { ready <- address }) }()
	<-ready
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if r := d.ocipd(t, "audit", "witness", "add", "nothing", at); r.code != cli.ExitUsage {
		t.Errorf("a key that is none: %+v", r)
	}
	if r := d.ocipd(t, "audit", "witness", "add", w.Key().String(), at); r.code != cli.ExitDone || !strings.HasPrefix(r.stdout, "ok: other.example is shown each checkpoint") {
		t.Fatalf("%+v", r)
	}
	if r := d.ocipd(t, "audit", "witness", "list"); r.code != cli.ExitDone || !strings.Contains(r.stdout, "has cosigned nothing yet") {
		t.Errorf("%+v", r)
	}
	if r := d.ocipd(t, "audit", "witness", "remove", "nobody"); r.code != cli.ExitFailed || !strings.Contains(r.said, `no witness "nobody" is listed`) {
		t.Errorf("%+v", r)
	}
	if r := d.ocipd(t, "audit", "witness", "remove", "other.example"); r.code != cli.ExitDone || r.stdout != "ok: other.example is shown no more checkpoints\n" {
		t.Errorf("%+v", r)
	}
	if r := d.ocipd(t, "audit", "witness", "add", w.Key().String(), at); r.code != cli.ExitDone {
		t.Fatalf("%+v", r)
	}
	// A stopping daemon waits for its witnesses, but not as long as a busy machine may take.
	for deadline := time.Now().Add(patience); ; {
		r := d.ocipd(t, "audit", "witness", "list")
		if r.code == cli.ExitDone && strings.Contains(r.stdout, at+"\n  has cosigned ") && !strings.Contains(r.stdout, "nothing yet") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", r)
		}
	}
	d.end(t)
	if r := d.ocipd(t, "audit", "verify", "--witness", w.Key().String()); r.code != cli.ExitDone || !strings.Contains(r.stdout, "cosigned by the witness other.example up to record ") {
		t.Errorf("%+v", r)
	}
	// The records after the cosigned ones may be others': few, and recent.
	stop()
	d.begin(t, "@acme/alice", "@acme/link")
	d.end(t)
	for _, test := range []struct {
		within []string
		code   int
		says   string
	}{
		{nil, cli.ExitDone, "cosigned by the witness other.example up to record "},
		{[]string{"2"}, cli.ExitFault, " records after it are not cosigned, more than 2 (--within)"},
		{[]string{"1000", "1ns"}, cli.ExitFault, " is not cosigned, and is more than 1ns older than the newest one (--within)"},
		{[]string{"1000", "1h"}, cli.ExitDone, "cosigned by the witness other.example up to record "},
		{[]string{"some"}, cli.ExitUsage, "neither a number of records nor a time"},
	} {
		args := []string{"audit", "verify", "--witness", w.Key().String()}
		for _, bound := range test.within {
			args = append(args, "--within", bound)
		}
		if r := d.ocipd(t, args...); r.code != test.code || !strings.Contains(r.stdout+r.said, test.says) {
			t.Errorf("within %q: %+v", test.within, r)
		}
	}
	// A fork from here fits only the old cosignature: past the default bounds of --within,
	// it does not pass.
	d.begin(t, "@acme/alice", "@acme/link")
	for range 520 {
		d.must(t, d.operator, "sending.pause", map[string]any{"channel": "telegram"}, nil)
		d.must(t, d.operator, "sending.resume", map[string]any{"channel": "telegram"}, nil)
	}
	d.end(t)
	if r := d.ocipd(t, "audit", "verify", "--witness", w.Key().String()); r.code != cli.ExitFault || !strings.Contains(r.stdout+r.said, " records after it are not cosigned, more than 1024") {
		t.Errorf("a fork past the bounds: %+v", r)
	}
	if r := d.ocipd(t, "audit", "verify"); r.code != cli.ExitDone {
		t.Errorf("the log of the fork: %+v", r)
	}
	if r := d.ocipd(t, "audit", "verify", "--within", "2"); r.code != cli.ExitUsage {
		t.Errorf("%+v", r)
	}
	if r := d.ocipd(t, "audit", "verify", "--witness", stranger.Key().String()); r.code != cli.ExitFault || !strings.Contains(r.said, "nothing that is held outside is cosigned by the witness other.example") {
		t.Errorf("%+v", r)
	}
}

// newLog is a log of which a witness has seen nothing.
type newLog struct{}

func (newLog) ProveExtension(_ context.Context, old, _ uint64) ([]audit.Hash, error) {
	if old != 0 {
		return nil, errors.New("the witness has seen the log before")
	}
	return nil, nil
}

// Without --within, a witness must have cosigned each record that is more than 10 minutes
// older than the newest one, however few they are.
func TestVerifyDemandsTheWitnessOfOldRecords(t *testing.T) {
	t.Parallel()
	secret, public, err := note.GenerateKey(rand.Reader, "ocipd/018f0000-0000-7000-8000-00000000abcd")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 13, 12, 0, 0, 0, time.UTC)
	w, err := witness.Open(t.TempDir(), "other.example", func() time.Time { return start }, public)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w)
	defer server.Close()
	// Two records are cosigned; the checkpoint of them is the first one that is not.
	log := (&scene{T: t}).rewrite()
	add := func(at time.Time) {
		log.seal(at, fmt.Appendf(nil, `{"id":"018f0000-0000-7000-8000-%012d","actionType":"delivery","event":"read"}`, len(log.lines)+1))
	}
	add(start)
	add(start)
	log.sign(signer)
	place, err := witness.ParsePlace(w.Key().String(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	cosigned, err := place.Ask(t.Context(), newLog{}, noteOf(t, log.lines[2]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	held := filepath.Join(dir, "held.note")
	log.write(held, cosigned)
	for _, test := range []struct {
		age    time.Duration
		within string
		code   int
	}{
		{10 * time.Minute, "", cli.ExitDone},
		{10*time.Minute + time.Microsecond, "", cli.ExitFault},
		{10*time.Minute + 2*time.Microsecond, "11m", cli.ExitDone},
		{10*time.Minute + 3*time.Microsecond, "1", cli.ExitFault},
	} {
		add(start.Add(test.age))
		copied := filepath.Join(dir, "copy")
		log.put(copied)
		args := []string{"audit", "verify", copied, "--key", public, "--witness", w.Key().String(), "--with-receipts", held}
		if test.within != "" {
			args = append(args, "--within", test.within)
		}
		code, out, said := log.ocipd(args...)
		old := strings.Contains(said, "is not cosigned, and is more than 10m0s older than the newest one (--within)")
		if code != test.code || test.within == "" && old != (code == cli.ExitFault) {
			t.Errorf("the newest record is %s younger, --within %q: exit code %d, %s%s", test.age, test.within, code, out, said)
		}
	}
}
