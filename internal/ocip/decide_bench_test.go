package ocip_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/policy"
)

// plainMail has 400 bytes and nothing that any detector finds.
const plainMail = `Hi Carol, the build of milestone 2 is at 75 percent and on track. The last three runs were green, the slow ` +
	`test is fixed, and the numbers of the week are in the usual place. Could you tell me how far the review of the second part ` +
	`is, and whether anything in it needs work from our side before the end of the week? Nothing here is urgent: any answer ` +
	`by tomorrow noon is fine. Thanks and regards, Alice`

// builtinPolicy is the daemon's built-in policy with its default data.
func builtinPolicy(b *testing.B, cacheSize int) *policy.Policy {
	b.Helper()
	p, err := policy.Compile(b.Context(), policy.Source{CacheSize: cacheSize, Data: map[string]any{
		"enabled": true, "cross_org": true, "max_classification_shared": "internal",
		"allowed_exchange_types": []any{"information_query", "commitment_request", "meeting_scheduling"},
	}})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func builtinRules(b *testing.B) *ocip.Rules {
	b.Helper()
	found, err := content.New(content.Options{})
	if err != nil {
		b.Fatal(err)
	}
	promises, err := commitment.New(commitment.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return &ocip.Rules{Content: found, Commitments: promises, Chain: ocip.ChainLimits{MaxHops: 24, MaxRevisits: 2, MaxAge: 24 * time.Hour}}
}

// mail is the first message of an exchange between two agents of one org unit.
func mail(text string, rules *ocip.Rules) ocip.Outgoing {
	now := time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)
	return ocip.Outgoing{
		Now: now,
		Sender: ocip.Agent{
			ID:        "alice",
			Identity:  ocip.Identity{InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", TenantID: "acme-corp"},
			MaxShared: ocip.Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true,
		},
		To: ocip.Counterparty{
			Kind: ocip.KindAgent, Accepts: ocip.Internal,
			Identity: ocip.Identity{InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "engineering", TenantID: "acme-corp"},
		},
		Exchange: ocip.Exchange{
			ID: "exch-001", ConversationID: "conv-789-xyz", Type: ocip.InformationQuery, Agent: "agent-alice-1", Counterparty: "agent-carol-1",
			SessionKey: "telegram:carol", Outcome: ocip.InProgress, MaxRounds: 3, OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
		},
		Cause:       ocip.BeginChain("0198f0aa-0000-7000-8000-000000000001", "agent-alice-1", now),
		MessageType: ocip.AgentGenerated, Declared: ocip.Internal, Content: text, Rules: rules, Summary: ocip.Summarize(text), MaxAnnotation: 4096,
	}
}

// BenchmarkDecision is the whole decision over one message, up to the commit: the real policy, with
// and without its cache, and the real detectors.
func BenchmarkDecision(b *testing.B) {
	rules := builtinRules(b)
	for _, asked := range []struct {
		name      string
		cacheSize int
	}{{"cached", 0}, {"uncached", -1}} {
		p := builtinPolicy(b, asked.cacheSize)
		for _, org := range []string{"engineering", "marketing"} {
			b.Run(asked.name+"/"+org, func(b *testing.B) {
				m := mail(plainMail, rules)
				m.To.OrgUnit = org
				b.ReportAllocs()
				for b.Loop() {
					if v := ocip.Decide(b.Context(), &m, p); !v.Allowed() || len(v.Detections) > 0 {
						b.Fatal(v.Reason, v.Detections)
					}
				}
			})
		}
	}
}

// BenchmarkDecisionOfHeldText is the decision over a message that only keywords hold, which is weighed.
func BenchmarkDecisionOfHeldText(b *testing.B) {
	rules, p := builtinRules(b), builtinPolicy(b, 0)
	m := mail(plainMail+" I hereby confirm the booking and the meeting.", rules)
	for _, mode := range []commitment.Mode{commitment.Enforce, commitment.Weigh} {
		b.Run(string(mode), func(b *testing.B) {
			m.Rules.Keywords = mode
			b.ReportAllocs()
			for b.Loop() {
				if v := ocip.Decide(b.Context(), &m, p); v.Allowed() {
					b.Fatal(v.Details)
				}
			}
		})
	}
}

// BenchmarkDecisionOfLongText shows that the time of a decision is proportional to the length of
// the text alone.
func BenchmarkDecisionOfLongText(b *testing.B) {
	rules, p := builtinRules(b), builtinPolicy(b, 0)
	for _, kib := range []int{1, 4, 64, 256} {
		text := strings.Repeat(plainMail+"\n", kib<<10/len(plainMail)+1)[:kib<<10]
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			m := mail(text, rules)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if v := ocip.Decide(b.Context(), &m, p); !v.Allowed() || len(v.Detections) > 0 {
					b.Fatal(v.Reason, v.Detections)
				}
			}
		})
	}
}
