package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/witness"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/test/witnesstest"
)

// witnessed is a daemon with an independent witness, and copies of its state.
type witnessed struct {
	*harness
	witness *witnesstest.Witness
	place   witness.Place
	serving func() error
}

// witnessedLog starts a daemon whose log an independent witness cosigns.
func witnessedLog(t *testing.T) *witnessed {
	t.Helper()
	w := &witnessed{harness: build(t, acme)}
	key, err := os.ReadFile(w.path("state/keys/checkpoint.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if w.witness, err = witnesstest.New("foreign.example", strings.TrimSpace(string(key))); err != nil {
		t.Fatal(err)
	}
	w.answers()
	t.Cleanup(w.silent)
	if w.place, err = witness.ParsePlace(w.witness.Key(), "unix:"+w.path("run/witness.sock")); err == nil {
		err = witness.AddPlace(w.path("state/keys"), w.place)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	if w.witness.Size() == 0 {
		t.Fatal("the witness was shown nothing")
	}
	return w
}

// answers makes the witness available, and silent unavailable.
func (w *witnessed) answers() {
	w.t.Helper()
	var err error
	if w.serving, err = w.witness.Serve(w.t.Context(), w.path("run/witness.sock")); err != nil {
		w.t.Fatal(err)
	}
}

func (w *witnessed) silent() {
	if w.serving != nil {
		if err := w.serving(); err != nil {
			w.t.Error(err)
		}
	}
	w.serving = nil
}

// keep copies the state, and put replaces it by a copy.
func (w *witnessed) keep(name string) {
	w.t.Helper()
	if out, err := exec.Command("cp", "-r", w.path("state"), w.path(name)).CombinedOutput(); err != nil {
		w.t.Fatal(string(out))
	}
}

func (w *witnessed) put(name string) {
	w.t.Helper()
	if err := os.RemoveAll(w.path("state")); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path(name), w.path("state")); err != nil {
		w.t.Fatal(err)
	}
}

// lives starts and stops the daemon several times, each time with as many records.
func (w *witnessed) lives(times int) {
	w.t.Helper()
	for range times {
		w.start()
		w.stop()
	}
}

// A log that forked from the one that a witness has signed does not start, whichever of the
// two the witness saw first and whichever is longer, and both are named.
func TestForkDoesNotStart(t *testing.T) {
	for _, test := range []struct {
		name string
		// seen and hidden are the numbers of runs with and without the witness.
		seen, hidden int
		says         string
	}{
		{"shorter", 2, 1, "it was cut, or is an older copy"},
		{"as long", 1, 1, "other records of this log: it was rewritten, or another daemon has its key"},
		{"longer", 1, 2, "do not begin with: it was rewritten, or another daemon has its key"},
	} {
		for _, seenFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, seen first %v", test.name, seenFirst), func(t *testing.T) {
				w := witnessedLog(t)
				w.keep("copy")
				hide := func() {
					w.silent()
					w.lives(test.hidden)
					w.answers()
				}
				if seenFirst {
					w.lives(test.seen)
					w.keep("seen")
					w.put("copy")
					hide()
				} else {
					hide()
					w.keep("hidden")
					w.put("copy")
					w.lives(test.seen)
					w.keep("seen")
					w.put("hidden")
				}
				err := w.tryStart()
				if err == nil {
					w.stop()
					t.Fatal("it starts")
				}
				contains(t, err.Error(), "cannot go on with this audit log: the witness foreign.example was shown", test.says,
					"refused is the checkpoint of ", "signed was the checkpoint of ", "ocipd audit witness remove foreign.example")
				w.put("seen")
				w.lives(1)
			})
		}
	}
}

// If a returning witness refuses the log of a running daemon, all sending is paused until a
// person resumes it; all of it is recorded, and the status shows it until then.
func TestForkPausesSending(t *testing.T) {
	w := witnessedLog(t)
	w.keep("copy")
	w.lives(1)
	w.put("copy")
	w.silent()
	w.lives(2)
	next := notices(t, w.harness, acme)
	w.start()
	t.Cleanup(w.stop)
	witnesses := func() (api.Status, bool) {
		t.Helper()
		var status api.Status
		w.operator("kernel.status", nil, &status)
		if len(status.Witnesses) != 1 {
			t.Fatalf("status shows %+v", status.Witnesses)
		}
		return status, status.Witnesses[0].Refused
	}
	w.answers()
	alice := w.agent("@acme/alice")
	w.channel("@acme/link", "telegram")
	sign := func() {
		t.Helper()
		if err := w.daemon.Sign(); err != nil {
			t.Fatal(err)
		}
	}
	sign()
	var found []audit.Entry
	waitFor(t, "a witness that refuses", func() bool {
		found = w.records(audit.Filter{Like: audit.Record{Event: "witness_refused"}})
		return len(found) > 0
	})
	if d := found[0].Details; d["witness"] != "foreign.example" || d["key"] != w.witness.Key() || d["have"].(float64) <= d["seen"].(float64) || d["seen"] != float64(w.witness.Size()) ||
		!strings.HasPrefix(d["note"].(string), "ocipd/") || !strings.HasPrefix(d["signed"].(string), "ocipd/") {
		t.Errorf("on record is %v", d)
	}
	if status, refused := witnesses(); !refused || len(status.Paused) != 1 || status.Paused[0].Scope != api.PausedAll || status.Paused[0].By != "witness:foreign.example" {
		t.Errorf("status shows %+v, %+v", status.Witnesses, status.Paused)
	}
	if title, body := next(); title != "A witness refuses the audit log" || !strings.Contains(body, "foreign.example") {
		t.Errorf("people are told %q, %q", title, body)
	}
	paused := w.records(audit.Filter{Like: audit.Record{Event: "sending_paused"}})
	if len(paused) != 1 || paused[0].Details["because"] != found[0].ID {
		t.Errorf("on record is %v", paused)
	}
	if e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "anybody?"}); ocipCode(t, e) != string(ocip.Paused) {
		t.Errorf("it is refused with %v", e)
	}
	// It is away at the next start: the pause for it is shown all the same.
	w.silent()
	w.stop()
	w.start()
	if status, refused := witnesses(); !refused || len(status.Paused) != 1 {
		t.Errorf("after a start status shows %+v, %+v", status.Witnesses, status.Paused)
	}
	alice = w.agent("@acme/alice")
	w.channel("@acme/link", "telegram")
	w.answers()
	w.operates().must("sending.resume", map[string]any{}, nil)
	if _, refused := witnesses(); refused {
		t.Error("it is shown after a person has resumed")
	}
	alice.dispatch("telegram:dave", "again", nil)
	// The same witness continues to refuse, which is known.
	sign()
	signed := w.records(audit.Filter{Like: audit.Record{Event: audit.EventSigned}})
	size := signed[len(signed)-1].Seq - 1
	waitFor(t, "the next refusal", func() bool {
		status, _ := witnesses()
		return strings.Contains(status.Witnesses[0].Error, fmt.Sprintf("the %d here do not begin with", size))
	})
	if found := w.records(audit.Filter{Like: audit.Record{Event: "witness_refused"}}); len(found) != 1 {
		t.Errorf("it is on record %d times", len(found))
	}
	w.stop()
	title, body, err := w.refusedStart(next)
	contains(t, err.Error(), "cannot go on with this audit log: the witness foreign.example was shown")
	if title != "ocipd did not start: the records are not as they were left" || !strings.Contains(body, "the witness foreign.example was shown") {
		t.Errorf("people are told %q, %q", title, body)
	}
}

// Additions to the list of witnesses and removals are recorded: at once, and at the start
// if the list changed while the daemon was stopped.
func TestListOfWitnessesIsOnRecord(t *testing.T) {
	t.Parallel()
	h := build(t, acme)
	key, err := os.ReadFile(h.path("state/keys/checkpoint.pub"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := witnesstest.New("foreign.example", strings.TrimSpace(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	add := func(at string) {
		t.Helper()
		p, err := witness.ParsePlace(foreign.Key(), at)
		if err == nil {
			err = witness.AddPlace(h.path("state/keys"), p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	on := func(event string, urls ...string) {
		t.Helper()
		var found []string
		waitFor(t, fmt.Sprint(event, urls), func() bool {
			found = nil
			for _, e := range h.records(audit.Filter{Like: audit.Record{Event: event}}) {
				if e.Details["key"] != foreign.Key() || e.Details["witness"] != "foreign.example" {
					t.Fatalf("on record is %v", e.Details)
				}
				found = append(found, e.Details["url"].(string))
			}
			return len(found) >= len(urls)
		})
		if !slices.Equal(found, urls) {
			t.Errorf("%s is on record of %q, want %q", event, found, urls)
		}
	}
	first, second := "unix:"+h.path("run/first.sock"), "unix:"+h.path("run/second.sock")
	add(first)
	on("witness_added", first)
	add(second)
	on("witness_removed", first)
	on("witness_added", first, second)
	h.stop()
	if removed, err := witness.RemovePlace(h.path("state/keys"), "foreign.example"); err != nil || removed.URL != second {
		t.Fatalf("%+v, %v", removed, err)
	}
	h.start()
	on("witness_removed", first, second)
	h.stop()
	h.start()
	on("witness_added", first, second)
	on("witness_removed", first, second)

	// The log has the list too: it holds if somebody without a key deletes the row with it.
	add(first)
	on("witness_added", first, second, first)
	h.stop()
	h.fillLog()
	h.editRows("DELETE FROM meta WHERE key = 'witnesses'")
	if _, err := witness.RemovePlace(h.path("state/keys"), "foreign.example"); err != nil {
		t.Fatal(err)
	}
	h.start()
	on("witness_removed", first, second, first)
}
