package registry

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// An awaited event stays until the wait ends, however many events the app is sent meanwhile, and
// other events give way to later ones.
func TestAwaitedEventsStay(t *testing.T) {
	r := newEvents()
	flood := func(name string) {
		for n := range 3 * rememberedEvents {
			r.add(&event{id: fmt.Sprint(name, n)})
		}
	}
	asked := func(id string) *event {
		return r.add(&event{id: id, awaited: true, answers: make(chan jsontext.Value, 1)})
	}
	answered, silent := asked("answered"), asked("silent")
	flood("a")
	if e, why := r.answer("answered", jsontext.Value("null")); e != answered || why != "" || string(<-e.answers) != "null" {
		t.Fatalf("the answer to what was asked is %q", why)
	}
	if r.expire(answered) || !r.expire(silent) {
		t.Error("the waiting ended otherwise")
	}
	if _, why := r.answer("silent", nil); why != answeredLate {
		t.Errorf("the late answer is %q", why)
	}
	for _, id := range []string{"answered", "silent"} {
		if _, why := r.answer(id, nil); why != answeredBefore {
			t.Errorf("the second answer is %q", why)
		}
	}
	flood("b")
	for _, id := range []string{"answered", "silent", "a0"} {
		if _, why := r.answer(id, nil); why != answerUnknown {
			t.Errorf("%s, long ago, is %q", id, why)
		}
	}
	if len(r.byID) != rememberedEvents || len(r.ring) != rememberedEvents {
		t.Errorf("%d and %d events are remembered", len(r.byID), len(r.ring))
	}
}
