package beat

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"golang.org/x/mod/sumdb/note"
)

// signed signs a checkpoint of a log.
func signed(t *testing.T, origin string, size uint64, root byte) string {
	t.Helper()
	secret, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	hash := [32]byte{root}
	text, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", origin, size, base64.StdEncoding.EncodeToString(hash[:]))}, signer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadAndWrite(t *testing.T) {
	b := &fleetapi.Beat{Version: "1.2\n", Roster: 7, Checkpoint: signed(t, "log", 9, 1), Waiting: 2, Held: 1, OldestHeld: time.Unix(9, 0).UTC()}
	for n := range maxFaults + 3 {
		b.Faults = append(b.Faults, fmt.Sprint("fault\x1b ", n, strings.Repeat("x", maxFault)))
	}
	body, err := Write(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(body)
	if err != nil || !reflect.DeepEqual(&got, b) {
		t.Fatalf("%+v became %+v: %v", b, got, err)
	}
	if len(got.Faults) != maxFaults || got.Faults[maxFaults-1] != "4 more" {
		t.Errorf("the faults are %q", got.Faults)
	}
	if _, err := Read([]byte(`{"version":"2","later":true}`)); err != nil {
		t.Errorf("a beat of a later version: %v", err)
	}
	for what, body := range map[string]string{
		"no JSON": "x", "version": `{"version":"a\u001b"}`, "long version": `{"version":"` + strings.Repeat("v", 65) + `"}`, "waiting": `{"waiting":-1}`,
		"faults": `{"faults":["` + strings.Repeat("f", 257) + `"]}`, "many faults": `{"faults":[` + strings.Repeat(`"",`, 16) + `""]}`, "checkpoint": `{"checkpoint":"log\n9\n"}`,
	} {
		if b, err := Read([]byte(body)); err == nil {
			t.Errorf("%s: it reads as %+v", what, b)
		}
	}
}

// A host is silent a minute after its last beat. An earlier beat, or one that a carrier has kept, is no
// sign of life.
func TestSilent(t *testing.T) {
	since := time.UnixMilli(1_000_000)
	now := since
	seq := func() uint64 { return uint64(now.UnixMilli()) }
	var never *Host
	h := new(Host)
	now = now.Add(SilentAfter - 1)
	if never.Silent(since, now) || h.Silent(since, now) {
		t.Error("a host is silent before a minute is over")
	}
	now = now.Add(1)
	if !never.Silent(since, now) || !h.Silent(since, now) {
		t.Error("a host that was never heard is not silent")
	}
	first := seq()
	if h.Take(first, new(fleetapi.Beat), now); h.Silent(since, now) {
		t.Error("it is silent at its beat")
	}
	now = now.Add(SilentAfter)
	if h.Take(first, new(fleetapi.Beat), now); !h.Silent(since, now) {
		t.Error("a repeated beat is a sign of life")
	}
	kept := seq()
	now = now.Add(TooFar + time.Millisecond)
	if h.Take(kept, new(fleetapi.Beat), now); !h.Silent(since, now) {
		t.Error("a kept beat is a sign of life")
	}
	ahead := seq() + uint64((TooFar + time.Millisecond).Milliseconds())
	for _, far := range []uint64{ahead, math.MaxInt64, math.MaxUint64} {
		if h.Take(far, new(fleetapi.Beat), now); !h.Silent(since, now) {
			t.Errorf("a beat of %d ms in the future is a sign of life", far)
		}
	}
	if h.Take(seq(), new(fleetapi.Beat), now); h.Silent(since, now) {
		t.Error("it is silent after a new beat")
	}
}

// A log grows. A smaller one, another root of the same size and another log are named with both notes,
// also if the largest is known from an earlier life.
func TestShrunk(t *testing.T) {
	before := signed(t, "log", 9, 1)
	for what, tc := range map[string]struct {
		after string
		wrong bool
	}{
		"no checkpoint": {"", false}, "the same": {before, false}, "signed anew": {signed(t, "log", 9, 1), false}, "larger": {signed(t, "log", 10, 2), false},
		"smaller": {signed(t, "log", 8, 1), true}, "another root": {signed(t, "log", 9, 2), true}, "another log": {signed(t, "other", 10, 1), true},
	} {
		h := &Host{Most: before}
		if h.Take(1, &fleetapi.Beat{Checkpoint: tc.after}, time.UnixMilli(1)) != tc.wrong || (h.Shrunk != nil) != tc.wrong {
			t.Errorf("%s: %+v", what, h.Shrunk)
		}
		if tc.wrong && (h.Shrunk.Before != before || h.Shrunk.After != tc.after || h.Most != before) {
			t.Errorf("%s: the notes are %+v", what, h.Shrunk)
		}
		if tc.wrong && h.Take(2, &fleetapi.Beat{Checkpoint: tc.after}, time.UnixMilli(2)) {
			t.Errorf("%s is news a second time", what)
		}
	}
}

// A daemon that has started again takes no beat from before the one with the largest checkpoint: a carrier
// may repeat it, and its smaller checkpoint says nothing about its host.
func TestKept(t *testing.T) {
	at := time.UnixMilli(1_000_000)
	before := new(Host)
	before.Take(uint64(at.UnixMilli()), &fleetapi.Beat{Checkpoint: signed(t, "log", 9, 1)}, at)
	h := Known(before.Kept(), at)
	if h.Most != before.Most {
		t.Errorf("the largest checkpoint is %q", h.Most)
	}
	if h.Take(uint64(at.UnixMilli())-1, &fleetapi.Beat{Checkpoint: signed(t, "log", 8, 1)}, at) || h.Shrunk != nil || !h.Heard.IsZero() {
		t.Errorf("an earlier beat is taken: %+v", h)
	}
	if !h.Take(uint64(at.UnixMilli())+1, &fleetapi.Beat{Checkpoint: signed(t, "log", 8, 1)}, at) {
		t.Error("a later beat with a smaller checkpoint says nothing")
	}
	// The clock was wrong when the beat came.
	if h := Known(before.Kept(), at.Add(-TooFar-time.Millisecond)); h.seq != 0 || h.Most != before.Most {
		t.Errorf("a beat from far ahead is %+v", h)
	}
	if h := Known(nil, at); h.seq != 0 || h.Most != "" {
		t.Errorf("nothing kept is %+v", h)
	}
}
