package inbox

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/kernel/outbox"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

const (
	oneID   = "01890000-0000-7000-8000-000000000001"
	otherID = "01890000-0000-7000-8000-000000000002"
)

func sealOf(t testing.TB, tenant, instance string) seal {
	t.Helper()
	r := &Reader{Inboxes: &Inboxes{digest: func(tenant, text string) (string, error) { return tenant + "|" + text, nil }},
		agent: &directory.Agent{Agent: ocip.Agent{Identity: ocip.Identity{InstanceID: instance, TenantID: tenant}}}}
	s, err := r.seal()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A cursor opens unchanged where it was issued, and nowhere else; its content does not show.
func TestCursor(t *testing.T) {
	s := sealOf(t, "acme", "agent-ann-1")
	for _, c := range []outbox.Cursor{{Seq: 1, Newest: oneID}, {Seq: 1 << 50, Newest: otherID, KeptBack: []string{oneID, otherID}}} {
		text, err := s.close(&c)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := s.close(&c); again != text {
			t.Errorf("once more it is %s, before %s", again, text)
		}
		if got, ok := s.open(text); !ok || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v opens as %+v, %t", c, got, ok)
		}
		for who, other := range map[string]seal{"another agent": sealOf(t, "acme", "agent-ben-1"), "another tenant": sealOf(t, "globex", "agent-ann-1")} {
			if _, ok := other.open(text); ok {
				t.Errorf("%s opens it", who)
			}
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			raw[i] ^= 1
			if _, ok := s.open(base64.RawURLEncoding.EncodeToString(raw)); ok {
				t.Errorf("it opens with byte %d changed", i)
			}
			raw[i] ^= 1
		}
	}
	// Two consecutive cursors do not reveal their distance.
	one, _ := s.close(&outbox.Cursor{Seq: 1, Newest: oneID})
	next, _ := s.close(&outbox.Cursor{Seq: 2, Newest: oneID})
	if same := strings.Compare(one[:20], next[:20]); same == 0 {
		t.Errorf("%s and %s begin alike", one, next)
	}
	if _, err := s.close(&outbox.Cursor{Seq: 1, Newest: "no id"}); err == nil {
		t.Error("a message without an id is written")
	}
}

func FuzzCursor(f *testing.F) {
	s := sealOf(f, "acme", "agent-ann-1")
	text, err := s.close(&outbox.Cursor{Seq: 7, Newest: oneID, KeptBack: []string{otherID}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("17." + oneID)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := s.open(text)
		if !ok {
			return
		}
		if again, err := s.close(&c); err != nil || again != text {
			t.Errorf("%q opens as %+v, which is %q, %v", text, c, again, err)
		}
	})
}
