package redact

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// token is a secret in the shape of a real one.
const token = "ghp_" + "4kJd83jSla9XmPq20vBnR7tYcWz1Lf5gHu6E"

// digestOf stands in for a keyed digest.
func digestOf(tenant, text string) (string, error) {
	if tenant == "broken" {
		return "", errors.New("no key")
	}
	return fmt.Sprintf("hmac-sha256:%064x", tenant+"/"+text)[:76], nil
}

func redactor(tb testing.TB, o Options) *Redactor {
	tb.Helper()
	o.Digest = digestOf
	r, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func line(tb testing.TB, r *audit.Record) string {
	tb.Helper()
	body, err := audit.Encode(r)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body)
}

func TestSecretsAreFoundWhereverTheyStand(t *testing.T) {
	type note struct {
		By        string `json:"by"`
		Note      string `json:"note"`
		Signature string `json:"signature"`
	}
	type word string
	rest := "my key is " + token + ", keep it"
	for name, rec := range map[string]*audit.Record{
		"reason":            {PolicyReason: rest},
		"note":              {Details: map[string]any{"note": rest}},
		"list":              {Details: map[string]any{"changedBy": []string{"one", rest}}},
		"tree":              {Details: map[string]any{"a": map[string]any{"b": []any{1, rest}}}},
		"struct in a tree":  {Details: map[string]any{"a": map[string]any{"b": note{By: "alice", Note: rest}}}},
		"struct":            {Details: map[string]any{"approvals": []note{{By: "alice", Note: rest}}}},
		"pointer":           {Details: map[string]any{"approval": &note{Note: rest}}},
		"own kind of text":  {Details: map[string]any{"word": word(rest)}},
		"shared source":     {DataShared: []audit.Shared{{Source: rest}}},
		"shared field":      {DataShared: []audit.Shared{{Source: "crm", Fields: []string{"a", rest}}}},
		"withheld":          {DataWithheld: []audit.Withheld{{Reason: "level", Description: rest}}},
		"withheld there":    {DataWithheld: []audit.Withheld{{Reason: rest, Description: "salaries"}}},
		"escalation":        {Details: map[string]any{"escalation": ocip.Escalation{ConversationSummary: "Round 1 (a): " + rest}}},
		"a member's prefix": {Details: map[string]any{"digests": rest}},
	} {
		t.Run(name, func(t *testing.T) {
			redactor(t, Options{}).Record(rec)
			got := line(t, rec)
			if strings.Contains(got, token) {
				t.Errorf("the token is in %s", got)
			}
			for _, want := range []string{"my key is [redacted credential.github-token]", ", keep it"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s does not say %q", got, want)
				}
			}
		})
	}
}

// A tree of details belongs to the record's caller, and members that prove a decision stay.
func TestTreesStayAsTheyAre(t *testing.T) {
	mine := map[string]any{"note": token, "signature": token, "n": 1}
	rec := &audit.Record{Details: map[string]any{"was": mine}}
	redactor(t, Options{}).Record(rec)
	if mine["note"] != token {
		t.Errorf("the caller's own tree says %q", mine["note"])
	}
	if got := rec.Details["was"].(map[string]any); got["note"] == token || got["signature"] != token || got["n"] != 1 {
		t.Errorf("the record says %v", got)
	}
}

func TestNumbersAndPatterns(t *testing.T) {
	r := redactor(t, Options{Patterns: []string{`(?i)project (falcon|osprey)`, `\bEMP-\d+\b`, `CON EM`}})
	for text, want := range map[string]string{
		"pay with 4111 1111 1111 1111 please":      "pay with [redacted financial.card-number] please",
		"about Project Falcon and EMP-4711":        "about [redacted] and [redacted]",
		"postgres://bob:hunter2secret@db/app down": "",
		"strictly confidential":                    "strictly confidential",
		"nothing here":                             "nothing here",
		"":                                         "",
		"CON EMP-1":                                "[redacted]",
	} {
		got := r.Text(text)
		if want != "" && got != want || strings.Contains(got, "hunter2secret") {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if again := r.Text(got); again != got {
			t.Errorf("%q became %q, and then %q", text, got, again)
		}
	}
}

// The detectors report up to 32 findings of a rule; none of the others may be left.
// TestNamesHoldNoCredentials looks at the names that records are found by: credentials are
// replaced, and a number may be a network's.
func TestNamesHoldNoCredentials(t *testing.T) {
	const key, number = "AKIAIOSFODNN7REALKEY", "4111111111111111"
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Every member with a name for redaction comes from outside, and so do these ids.
	var rec audit.Record
	outside := 0
	for _, m := range audit.Members() {
		if m.Redacted != "" || slices.Contains([]string{"exchangeId", "conversationId", "chainId", "taskId", "attemptId", "actor"}, m.Name) {
			*m.Of(&rec) = "telegram:" + key
			outside++
		}
	}
	r.Record(&rec)
	if text := fmt.Sprint(rec); strings.Contains(text, key) || strings.Count(text, "[redacted credential.aws-access-key-id]") != outside {
		t.Errorf("got %s", text)
	}
	rec = audit.Record{SessionKey: "whatsapp:" + number, ExchangeID: "550e8400-e29b-41d4-a716-446655440000", Address: audit.Address{Target: number}}
	want := rec
	if r.Record(&rec); fmt.Sprint(rec) != fmt.Sprint(want) {
		t.Errorf("got %v", rec)
	}
	// A name without findings may have some as a text in a note.
	if got := r.Text(number); strings.Contains(got, number) {
		t.Errorf("got %s", got)
	}
}

func TestManySecretsInOneText(t *testing.T) {
	text := strings.Repeat(token+" ", 100)
	if got := redactor(t, Options{}).Text(text); strings.Contains(got, token) {
		t.Errorf("%d tokens are left", strings.Count(got, token))
	}
}

func TestWhatProvesSomethingStays(t *testing.T) {
	signature := "-----BEGIN SSH SIGNATURE-----\n" + token + "\n-----END SSH SIGNATURE-----\n"
	details := func() map[string]any {
		return map[string]any{
			"signature": signature, "fingerprint": "SHA256:" + token, "digest": "sha256:" + token, "signedText": token,
			"approvals": []map[string]any{{"signature": signature, "note": "fine"}},
		}
	}
	rec := &audit.Record{Details: details()}
	redactor(t, Options{}).Record(rec)
	if want := details(); !reflect.DeepEqual(rec.Details, want) {
		t.Errorf("got %v", rec.Details)
	}
	rec = &audit.Record{ActionType: audit.ActionCheckpoint, Details: map[string]any{"note": token}}
	redactor(t, Options{Members: []string{"details.note"}}).Record(rec)
	if rec.Details["note"] != token {
		t.Errorf("the checkpoint became %v", rec.Details["note"])
	}
}

func TestNamedMembers(t *testing.T) {
	r := redactor(t, Options{Members: append(Members(), "details.note", "details.escalation.conversationSummary", "details.count", "details.never.there")})
	rec := &audit.Record{
		TenantID: "acme", UserID: "u", AppID: "a", SessionKey: "telegram:1", PolicyReason: "why",
		Address:      audit.Address{Channel: "telegram", Account: "work", Target: "1"},
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "i", UserID: "u", OrgUnit: "o", TenantID: "t"},
		DataShared:   []audit.Shared{{Source: "s", Fields: []string{"f"}}}, DataWithheld: []audit.Withheld{{Reason: "level", Description: "d"}},
		Details: map[string]any{
			"note": "n", "sessionKey": "telegram:1", "count": 3, "empty": "",
			"escalation": ocip.Escalation{ExchangeID: "x", ConversationSummary: "c", Reason: "r"},
		},
	}
	stand := func(text string) string {
		digest, _ := digestOf("acme", text)
		return "redacted:" + digest[len("hmac-sha256:"):][:16]
	}
	r.Record(rec)
	want := &audit.Record{
		TenantID: "acme", UserID: stand("u"), AppID: stand("a"), SessionKey: stand("telegram:1"), PolicyReason: stand("why"),
		Address:      audit.Address{Channel: "telegram", Account: stand("work"), Target: stand("1")},
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: stand("i"), UserID: stand("u"), OrgUnit: stand("o"), TenantID: stand("t")},
		DataShared:   []audit.Shared{{Source: stand("s"), Fields: []string{stand("f")}}}, DataWithheld: []audit.Withheld{{Reason: stand("level"), Description: stand("d")}},
		Details: map[string]any{
			"note": stand("n"), "sessionKey": stand("telegram:1"), "count": stand("3"), "empty": "",
			"escalation": map[string]any{
				"exchangeId": "x", "conversationId": "", "currentRound": 0.0, "maxRounds": 0.0, "conversationSummary": stand("c"), "reason": "r",
			},
		},
	}
	if !reflect.DeepEqual(rec, want) {
		t.Errorf("got  %s\nwant %s", line(t, rec), line(t, want))
	}
	empty := &audit.Record{ID: "1"}
	r.Record(empty)
	if !reflect.DeepEqual(empty, &audit.Record{ID: "1"}) {
		t.Errorf("an empty record became %+v", empty)
	}
}

func TestNoDigestNoText(t *testing.T) {
	rec := &audit.Record{TenantID: "broken", SessionKey: "telegram:1"}
	redactor(t, Options{Members: []string{"sessionKey"}}).Record(rec)
	if rec.SessionKey != "redacted" {
		t.Errorf("got %q", rec.SessionKey)
	}
}

// Data that a record shares with its verdict must not change with it.
func TestSharedListsAreNotChanged(t *testing.T) {
	list, fields := []string{token}, []string{token}
	tree := map[string]any{"note": token}
	items, held := []audit.Shared{{Source: token, Fields: fields}}, []audit.Withheld{{Description: token}}
	rec := &audit.Record{Details: map[string]any{"list": list, "tree": tree}, DataShared: items, DataWithheld: held}
	redactor(t, Options{Members: []string{"details.tree.note", "dataShared"}}).Record(rec)
	if list[0] != token || fields[0] != token || tree["note"] != token || items[0].Source != token || held[0].Description != token {
		t.Errorf("changed: %v %v %v %v %v", list, fields, tree, items, held)
	}
	if got := line(t, rec); strings.Contains(got, token) {
		t.Errorf("the token is in %s", got)
	}
}

func TestWhatCannotBeUsed(t *testing.T) {
	for name, o := range map[string]Options{
		`"details."`:             {Members: []string{"details."}},
		`"details.a..b"`:         {Members: []string{"details.a..b"}},
		`"details.signature"`:    {Members: []string{"details.signature"}},
		`"details.list.digest"`:  {Members: []string{"details.list.digest"}},
		`"contentDigest"`:        {Members: []string{"contentDigest"}},
		`"sessionkey"`:           {Members: []string{"sessionkey"}},
		`missing closing )`:      {Patterns: []string{"("}},
		`empty text`:             {Patterns: []string{"a*"}},
		`1 to 1024 bytes`:        {Patterns: []string{""}},
		`at most 64 are allowed`: {Patterns: make([]string, 65)},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: got %v, want %s", o, err, name)
		}
	}
}

func TestSideBySide(t *testing.T) {
	r := redactor(t, Options{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 500 {
				own := fmt.Sprintf("reason %d", (n+i)%300)
				rec := &audit.Record{PolicyReason: own, Details: map[string]any{"note": own + " " + token}}
				r.Record(rec)
				if rec.PolicyReason != own || rec.Details["note"] != own+" [redacted credential.github-token]" {
					t.Errorf("got %q and %q", rec.PolicyReason, rec.Details["note"])
				}
			}
		})
	}
	wg.Wait()
}

func FuzzText(f *testing.F) {
	for _, text := range []string{
		"", "nothing", token, "password=" + token, "api_key: \"" + token + "\"", "Authorization: Bearer " + token,
		"postgres://bob:hunter2secret@db/app", "4111 1111 1111 1111", strings.Repeat(token+"\n", 40), "EMP-1EMP-2",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "password: password: hunter2secret!", "aws_secret_access_key = " + strings.Repeat("aB3/", 10),
	} {
		f.Add(text)
	}
	r := redactor(f, Options{Patterns: []string{`EMP-\d`}})
	f.Fuzz(func(t *testing.T, text string) {
		got := r.Text(text)
		if left := r.find(got); len(left) > 0 {
			t.Errorf("%q became %q, with %v left", text, got, left)
		}
		if len(r.find(text)) == 0 && got != text {
			t.Errorf("%q became %q, with nothing to find", text, got)
		}
		if again := r.Text(got); again != got {
			t.Errorf("%q became %q and then %q", text, got, again)
		}
	})
}

// BenchmarkRecord redacts a usual record, as every message does.
func BenchmarkRecord(b *testing.B) {
	r := redactor(b, Options{})
	for name, details := range map[string]map[string]any{
		"no details": {},
		"usual":      {"changedBy": []string{"kernel: metadata.ocip replaced"}, "carried": true},
	} {
		b.Run(name, func(b *testing.B) {
			rec := &audit.Record{PolicyReason: "information_query at internal is within policy.data", Details: details}
			b.ReportAllocs()
			for b.Loop() {
				r.Record(rec)
			}
		})
	}
	b.Run("note of 100 bytes", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			rec := &audit.Record{Details: map[string]any{"note": fmt.Sprintf("%0100d", i)}}
			r.Record(rec)
		}
	})
}
