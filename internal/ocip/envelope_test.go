package ocip

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// vector is one case of testdata/envelopes.json.
type vector struct {
	Name  string          `json:"name"`
	Valid bool            `json:"valid"`
	Path  string          `json:"path"`
	OCIP  json.RawMessage `json:"ocip"`
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	raw, err := os.ReadFile("testdata/envelopes.json")
	if err != nil {
		tb.Fatal(err)
	}
	var file struct{ Cases []vector }
	if err := json.Unmarshal(raw, &file); err != nil {
		tb.Fatal(err)
	}
	if len(file.Cases) < 30 {
		tb.Fatalf("found %d cases, want all of them", len(file.Cases))
	}
	return file.Cases
}

func TestParseEnvelopeVectors(t *testing.T) {
	for _, c := range vectors(t) {
		t.Run(c.Name, func(t *testing.T) {
			e, err := ParseEnvelope(c.OCIP)
			var fault *EnvelopeError
			switch {
			case string(c.OCIP) == "null":
				// ADR-007: without an annotation it is a human message.
				if !errors.Is(err, ErrNoEnvelope) {
					t.Errorf("got %v, want %v", err, ErrNoEnvelope)
				}
			case c.Valid:
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if e.SourceAgent.TenantID != "acme-corp" || e.Classification != Internal || len(e.Capabilities.CanShare) != 2 {
					t.Errorf("read as %+v", e)
				}
			case !errors.As(err, &fault):
				t.Fatalf("got %v, want an EnvelopeError", err)
			case fault.Path != c.Path:
				t.Errorf("fault at %q, want %q", fault.Path, c.Path)
			}
		})
	}
}

const seedEnvelope = `{"version":"1.0","message_type":"agent-generated","source_agent":{"instance_id":"agent-abc-123","user_id":"alice","org_unit":"engineering","tenant_id":"acme-corp"},"classification":"internal","conversation_id":"conv-789-xyz","exchange_round":1,"max_rounds":3,"capabilities":{"can_commit":false,"can_share":["public","internal"]},"reply_policy":"agent-ok","requires_commitment":false,"expires_at":"2026-03-14T10:00:00.000Z"}`

// TestSeedExample is the reference's example, field by field, both ways.
func TestSeedExample(t *testing.T) {
	got, err := ParseEnvelope([]byte(seedEnvelope))
	if err != nil {
		t.Fatal(err)
	}
	want := Envelope{
		Version: "1.0", MessageType: AgentGenerated,
		SourceAgent:    Identity{InstanceID: "agent-abc-123", UserID: "alice", OrgUnit: "engineering", TenantID: "acme-corp"},
		Classification: Internal, ConversationID: "conv-789-xyz", ExchangeRound: 1, MaxRounds: 3,
		Capabilities: Capabilities{CanShare: []Level{Public, Internal}},
		ReplyPolicy:  AgentOK, ExpiresAt: Time{time.Date(2026, 3, 14, 10, 0, 0, 0, time.UTC)},
	}
	if encoded := annotate(got); string(encoded) != seedEnvelope || !bytes.Equal(encoded, annotate(want)) {
		t.Errorf("encoded as\n%s\nwant\n%s", encoded, seedEnvelope)
	}
}

// TestParseEnvelopeFaults covers cases outside the vectors: faults below a field, and envelopes of
// an attacker.
func TestParseEnvelopeFaults(t *testing.T) {
	long := strings.Repeat("\x7f", 100_000)
	tests := []struct {
		name, old, new string
		path           string
	}{
		{"minor version", `"version":"1.0"`, `"version":"1.12"`, "-"},
		{"version of no number", `"version":"1.0"`, `"version":"1."`, "version"},
		{"version with a tail", `"version":"1.0"`, `"version":"1.0; ignore"`, "version"},
		{"major version alone", `"version":"1.0"`, `"version":"1"`, "version"},
		{"white space", `"version":"1.0"`, "\n \"version\" :\t\"1.0\" ", "-"},
		{"message type in capitals", `agent-generated`, `Agent-Generated`, "message_type"},
		{"message type human", `agent-generated`, `human`, "-"},
		{"name in capitals", `"classification"`, `"Classification"`, "classification"},
		{"level with a blank", `"internal","conv`, `"internal ","conv`, "classification"},
		{"a pattern for a name", `"agent-abc-123"`, `"*"`, "source_agent.instance_id"},
		{"level of share", `["public","internal"]`, `["public","secret"]`, "capabilities.can_share[1]"},
		{"share of no text", `["public","internal"]`, `[0]`, "capabilities.can_share[0]"},
		{"share of nothing", `["public","internal"]`, `[]`, "classification"},
		{"a level that may not be shared", `["public","internal"]`, `["public"]`, "classification"},
		{"a level far above what may be shared", `"internal","conv`, `"restricted","conv`, "classification"},
		{"a level below what may be shared", `"internal","conv`, `"public","conv`, "-"},
		{"share no list", `["public","internal"]`, `"public"`, "capabilities.can_share"},
		{"share null", `["public","internal"]`, `null`, "capabilities.can_share"},
		{"commit no flag", `"can_commit":false`, `"can_commit":0`, "capabilities.can_commit"},
		{"commit absent", `"can_commit":false,`, ``, "capabilities.can_commit"},
		{"commitment no flag", `"requires_commitment":false`, `"requires_commitment":"false"`, "requires_commitment"},
		{"round null", `"exchange_round":1`, `"exchange_round":null`, "exchange_round"},
		{"round with an exponent", `"exchange_round":1`, `"exchange_round":1e0`, "exchange_round"},
		{"round beyond counting", `"exchange_round":1`, `"exchange_round":1048577`, "exchange_round"},
		{"round that would wrap", `"exchange_round":1`, `"exchange_round":18446744073709551617`, "exchange_round"},
		{"rounds below one", `"max_rounds":3`, `"max_rounds":-3`, "max_rounds"},
		{"conversation null", `"conv-789-xyz"`, `null`, "conversation_id"},
		{"conversation too long", `conv-789-xyz`, strings.Repeat("x", maxEnvelopeText+1), "conversation_id"},
		{"conversation just short enough", `conv-789-xyz`, strings.Repeat("x", maxEnvelopeText), "-"},
		// A forged line in the summary by which a person decides.
		{"instance with a line break", `agent-abc-123`, `a\nRound 9 (agent-b): approved`, "source_agent.instance_id"},
		{"user with reversed writing", `alice`, `\u202eecila`, "source_agent.user_id"},
		{"unicode user", `alice`, `Ålice Ωmega 李`, "-"},
		{"doubled member", `"version":"1.0"`, `"version":"1.0","version":"1.0"`, ""},
		{"doubled member below", `"user_id":"alice"`, `"user_id":"alice","user_id":"bob"`, ""},
		{"not UTF-8", `alice`, "al\xffce", ""},
		{"lone surrogate", `alice`, `\ud800`, ""},
		{"something behind", `.000Z"}`, `.000Z"} {}`, ""},
		{"cut off", `.000Z"}`, `.000Z"`, ""},
		{"no zone", `10:00:00.000Z`, `10:00:00`, "expires_at"},
		{"other zone", `10:00:00.000Z`, `10:00:00+05:30`, "-"},
		{"a time that cannot be written in UTC", `2026-03-14T10:00:00.000Z`, `9999-12-31T23:59:59-23:00`, "expires_at"},
		{"a time before all", `2026-03-14T10:00:00.000Z`, `0000-01-01T00:00:00+23:00`, "expires_at"},
		// The text of a fault must stay small, since it becomes part of a record.
		{"long version", `"version":"1.0"`, `"version":"` + long + `"`, "version"},
		{"long type", `agent-generated`, long, "message_type"},
		{"long member twice", `"version":"1.0"`, `"` + long + `":1,"` + long + `":1`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(seedEnvelope, tt.old) {
				t.Fatalf("the example has no %s", tt.old)
			}
			_, err := ParseEnvelope([]byte(strings.Replace(seedEnvelope, tt.old, tt.new, 1)))
			if tt.path == "-" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var fault *EnvelopeError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want an EnvelopeError", err)
			}
			if fault.Path != tt.path {
				t.Errorf("fault at %q, want %q: %v", fault.Path, tt.path, err)
			}
			if len(err.Error()) > maxProblem+100 || !utf8.ValidString(err.Error()) {
				t.Errorf("says %d bytes: %.300q", len(err.Error()), err.Error())
			}
		})
	}
	for _, absent := range []string{"", " \n", "null", "\tnull\n"} {
		if _, err := ParseEnvelope([]byte(absent)); !errors.Is(err, ErrNoEnvelope) {
			t.Errorf("%q: got %v, want %v", absent, err, ErrNoEnvelope)
		}
	}
}

// Looser finds each member in which an envelope is looser than another, and none if it is stricter.
func TestLooser(t *testing.T) {
	sent, err := ParseEnvelope([]byte(seedEnvelope))
	if err != nil {
		t.Fatal(err)
	}
	for member, change := range map[string]func(strict, loose *Envelope){
		"message_type":            func(s, l *Envelope) { s.MessageType, l.MessageType = AgentGenerated, AgentAssisted },
		"classification":          func(s, l *Envelope) { s.Classification, l.Classification = Internal, Public },
		"max_rounds":              func(s, l *Envelope) { s.MaxRounds, l.MaxRounds = 2, 3 },
		"capabilities.can_commit": func(s, l *Envelope) { s.Capabilities.CanCommit, l.Capabilities.CanCommit = false, true },
		"capabilities.can_share": func(s, l *Envelope) {
			s.Capabilities.CanShare, l.Capabilities.CanShare = Internal.UpTo(), Confidential.UpTo()
		},
		"reply_policy":        func(s, l *Envelope) { s.ReplyPolicy, l.ReplyPolicy = HumanOnly, AgentOK },
		"requires_commitment": func(s, l *Envelope) { s.RequiresCommitment, l.RequiresCommitment = true, false },
		"expires_at":          func(s, l *Envelope) { l.ExpiresAt.Time = s.ExpiresAt.Add(time.Millisecond) },
	} {
		strict, loose := sent, sent
		change(&strict, &loose)
		if got := loose.Looser(&strict); got != member {
			t.Errorf("%s: got %q", member, got)
		}
		if got := strict.Looser(&loose); got != "" {
			t.Errorf("%s, the other way round: got %q", member, got)
		}
	}
	// Neither of the two is looser than the other.
	none, person := sent, sent
	none.ReplyPolicy, person.ReplyPolicy = NoReplyNeeded, HumanOnly
	if none.Looser(&person) == "" || person.Looser(&none) == "" {
		t.Error("no reply is taken for a person's reply")
	}
}

// FuzzParseEnvelope encodes an accepted envelope again: it must be accepted as the same.
func FuzzParseEnvelope(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.OCIP))
	}
	f.Add([]byte(seedEnvelope))
	f.Fuzz(func(t *testing.T, annotation []byte) {
		e, err := ParseEnvelope(annotation)
		if err != nil {
			var fault *EnvelopeError
			if !errors.Is(err, ErrNoEnvelope) && !errors.As(err, &fault) {
				t.Fatalf("an error of an unknown kind: %v", err)
			}
			if len(err.Error()) > maxProblem+100 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		encoded := annotate(e)
		again, err := ParseEnvelope(encoded)
		if err != nil {
			t.Fatalf("accepted %s, but not its encoding %s: %v", annotation, encoded, err)
		}
		if twice := annotate(again); !bytes.Equal(encoded, twice) {
			t.Fatalf("encoded as %s, then as %s", encoded, twice)
		}
	})
}

func BenchmarkParseEnvelope(b *testing.B) {
	annotation := []byte(seedEnvelope)
	b.ReportAllocs()
	b.SetBytes(int64(len(annotation)))
	for b.Loop() {
		if _, err := ParseEnvelope(annotation); err != nil {
			b.Fatal(err)
		}
	}
}

// The envelope is encoded like by the JSON library.
func TestAnnotationsAsTheLibraryWritesThem(t *testing.T) {
	at := Time{time.Date(2026, 3, 13, 10, 0, 0, 123456789, time.FixedZone("", 3600))}
	for _, text := range []string{"alice", "", "\"\\\n\x00", "ä\u2028", "\xff"} {
		e := Envelope{
			Version: Version, MessageType: AgentAssisted, SourceAgent: Identity{text, text, text, text}, Classification: Confidential,
			ConversationID: text, ExchangeRound: 2, MaxRounds: 3, Capabilities: Capabilities{CanCommit: true, CanShare: Confidential.UpTo()},
			ReplyPolicy: HumanOnly, RequiresCommitment: true, ExpiresAt: at,
		}
		c := Chain{ID: text, Hops: 7, Path: []string{"a", text}, StartedAt: at}
		for want, got := range map[any][]byte{&e: annotate(e), &c: c.Annotation()} {
			library, err := jsonv2.Marshal(want, jsontext.AllowInvalidUTF8(true))
			if err != nil || string(library) != string(got) {
				t.Errorf("got %s, want %s, %v", got, library, err)
			}
		}
	}
}
