package directory

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// TestSeveralPlaces: a person who asked in a room and alone can be answered in either, and the
// decision is about the place of the answer.
func TestSeveralPlaces(t *testing.T) {
	d := directoryOf(t, world())
	const key = "irc:direct:dana"
	var kept map[string]string
	for _, metadata := range []string{`{"target":"dana"}`, `{"target":"#mixed","isGroup":true}`, `{"target":"dana"}`, `{"target":"#friends","isGroup":true}`} {
		brought, err := d.Brought(key, object(t, metadata))
		if err != nil {
			t.Fatal(err)
		}
		kept = Keep(kept, brought)
	}
	for _, tc := range []struct {
		given, target string
		kind          ocip.Kind
		walled        bool
		mismatch      string
	}{
		{`{}`, "#friends", ocip.KindAgent, false, ""},
		{`{"target":null}`, "#friends", ocip.KindAgent, false, ""},
		{`{"target":"DANA"}`, "dana", ocip.KindPerson, false, ""},
		{`{"target":"#Mixed"}`, "#mixed", ocip.KindAgent, true, ""},
		{`{"target":"rival"}`, "#friends", ocip.KindAgent, false, "target"},
		{`{"target":["dana"]}`, "#friends", ocip.KindAgent, false, "target"},
	} {
		given := object(t, tc.given)
		r, err := d.Recipient(key, "", d.Answering(key, kept, given), d.Agent("alice"))
		if err != nil {
			t.Fatal(err)
		}
		_, walled := ocip.Wall(d.Agent("alice").Identity, r.Counterparty)
		_, mismatch := r.Bind(given)
		if r.Target != tc.target || r.Counterparty.Kind != tc.kind || walled != tc.walled || mismatch != tc.mismatch {
			t.Errorf("%s: %s, %s, walled %v, mismatch %q", tc.given, r.Target, r.Counterparty.Kind, walled, mismatch)
		}
	}
}

// The kept data can also be used directly.
func TestKeptWithoutAnAnswer(t *testing.T) {
	d := directoryOf(t, world())
	kept := Keep(map[string]string{"roomId": "r1"}, map[string]string{"roomId": "r2"})
	r, err := d.Recipient("chat:friend", "", kept, d.Agent("alice"))
	if err != nil {
		t.Fatal(err)
	}
	if bound, mismatch := r.Bind(nil); mismatch != "" || show(bound) != `roomId="r2"` {
		t.Errorf("bound %s, %s", show(bound), mismatch)
	}
}

func TestKeepHasBounds(t *testing.T) {
	var kept map[string]string
	for i := range 10 {
		kept = Keep(kept, map[string]string{"target": fmt.Sprint("#", i)})
	}
	if kept["target"] != "#9" || kept[earlierMember] != `[{"target":"#8"},{"target":"#7"},{"target":"#6"}]` {
		t.Errorf("kept %v", kept)
	}
	if again := Keep(kept, map[string]string{"target": "#9"}); !maps.Equal(again, kept) {
		t.Errorf("kept %v", again)
	}
	for i := range 5 {
		if kept = Keep(kept, map[string]string{"target": strings.Repeat("x", 3000+i)}); size(kept) > maxBroughtBytes+len(earlierMember) {
			t.Errorf("%d bytes are kept", size(kept))
		}
	}
	if kept = Keep(map[string]string{"target": "a", earlierMember: "no list"}, nil); kept["target"] != "" || kept[earlierMember] != `[{"target":"a"}]` {
		t.Errorf("kept %v", kept)
	}
}
