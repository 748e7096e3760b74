package approval

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
)

// firstForm is a row as a daemon wrote it when rows were the wire's JSON.
func firstForm(tb testing.TB) store.Approval {
	tb.Helper()
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			tb.Fatal(err)
		}
		return text
	}
	return store.Approval{ID: "id-000004", Asked: "sha256:570a", Summary: read("first_summary.json"), Body: read("first_body.json")}
}

// A row of the first form is read with its meaning, and written in today's form without a loss.
func TestFirstForm(t *testing.T) {
	r, err := decode(firstForm(t))
	if err != nil {
		t.Fatal(err)
	}
	if r.Kind != api.ApprovalOfMessage || r.Given != 1 || len(r.Approvals) != 1 || r.Approvals[0].By != "uid:1" || r.Asked != "sha256:570a" ||
		r.Content != "Can you do it?" || !r.RequiresHuman || len(r.Sending) == 0 || len(r.ToSign) != len(api.DecisionsOf(r.Kind)) {
		t.Errorf("it is %+v", r)
	}
	var own struct {
		Metadata string `json:"metadata"`
	}
	if err := json.Unmarshal(r.Own, &own); err != nil || !strings.Contains(own.Metadata, `"chatId":"dave"`) {
		t.Errorf("its subject has %s, %v", r.Own, err)
	}
	summary, err := decodeSummary(firstForm(t).Summary)
	if err != nil || !reflect.DeepEqual(summary, r.ApprovalSummary) {
		t.Errorf("its summary is %+v, %v", summary, err)
	}
	again := written(t, r)
	if was, is := wire(t, r), wire(t, again); was != is {
		t.Errorf("written anew it is\n%s, was\n%s", is, was)
	}
	if string(again.Own) != string(r.Own) {
		t.Errorf("its subject has %s, had %s", again.Own, r.Own)
	}
}

// A row from before there were kinds is about a message to an agent.
func TestRowWithoutKind(t *testing.T) {
	first := firstForm(t)
	for _, text := range []*[]byte{&first.Body, &first.Summary} {
		for _, member := range []string{`"kind":"message",`, `"counterpartyKind":"agent",`, `"target":"dave",`} {
			*text = []byte(strings.Replace(string(*text), member, "", 1))
		}
	}
	r, err := decode(first)
	if err != nil || r.Kind != api.ApprovalOfMessage || r.CounterpartyKind != ocip.KindAgent || r.Target != "dave" {
		t.Errorf("it is %+v, %v", r, err)
	}
	if s, err := decodeSummary(first.Summary); err != nil || s.Kind != api.ApprovalOfMessage {
		t.Errorf("its summary is %+v, %v", s, err)
	}
}

// Every stored member of a request comes back from its row.
func TestRowKeepsEverything(t *testing.T) {
	r := &Request{Asked: "effect:sha256:00", Anew: 2, Own: jsontext.Value(`{"argv":["deploy"]}`)}
	r.Approval = api.Approval{
		ApprovalSummary: api.ApprovalSummary{ApprovalID: "a", ExpiresAt: 7, Kind: "effect", State: api.ApprovalPending},
		Digest:          "d", Detections: []audit.Detection{{Rule: "r"}}, Escalation: &ocip.Escalation{}, Chain: &ocip.Chain{ID: "c"},
	}
	fill(reflect.ValueOf(&r.Approval).Elem())
	// These are computed whenever it is shown.
	r.CounterpartyNow, r.SignatureRequired, r.Delivery, r.RequestDigest, r.Sending = "", false, "", "", jsontext.Value(`{"content":"x"}`)
	r.sign()
	r.Tenant = "acme"
	back := written(t, r)
	if was, is := wire(t, r), wire(t, back); was != is || back.Tenant != r.Tenant {
		t.Errorf("it comes back of %q as\n%s, was\n%s", back.Tenant, is, was)
	}
	if back.forget(); back.Tenant != r.Tenant {
		t.Error("a decided request has no tenant")
	}
}

// fill sets every empty member that is no time to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			for _, member := range v.Fields() {
				fill(member)
			}
		}
	case reflect.Slice:
		if v.Type() != reflect.TypeFor[jsontext.Value]() {
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			}
			fill(v.Index(0))
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem())
	case reflect.String:
		if v.Len() == 0 && v.CanSet() {
			v.SetString("text")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint32:
		v.SetUint(4)
	}
}

// FuzzDecode: a decoded row is encoded to the same row.
func FuzzDecode(f *testing.F) {
	first := firstForm(f)
	f.Add(first.Summary, first.Body)
	r, err := decode(first)
	if err != nil {
		f.Fatal(err)
	}
	row, err := r.encode(api.ApprovalDenied)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(row.Summary, row.Body)
	f.Add([]byte(`{"v":3}`), []byte(`{"v":3}`))
	f.Fuzz(func(t *testing.T, summary, body []byte) {
		r, err := decode(store.Approval{ID: "a", Summary: summary, Body: body})
		if err != nil {
			return
		}
		if was, is := wire(t, r), wire(t, written(t, r)); was != is {
			t.Errorf("it comes back as\n%s, was\n%s", is, was)
		}
	})
}

// written is a request as it comes back from its row.
func written(t *testing.T, r *Request) *Request {
	t.Helper()
	row, err := r.encode(r.State)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(row)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func wire(t *testing.T, r *Request) string {
	t.Helper()
	r.ToSign = nil // a map, in no order
	text, err := json.Marshal(&r.Approval, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
