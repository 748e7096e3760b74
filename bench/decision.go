package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	"github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/policy"
)

// decisions are the figures of the decision alone: in this process, with no
// socket and no disk.
func decisions() []figure {
	return []figure{
		{"decision p50, cached policy", "—", "≤ 15 µs", decisionTime},
		{"decision p50, policy evaluated", "cached policy", "—", evaluatedDecision},
		{"decision p50, end of a long chain", "new chain", "≤ 1.2×", chainedDecision},
		{"decision, allocations", "—", "≤ 40", decisionAllocations},
		{"4 KiB through all detectors p50", "—", "≤ 60 µs", detection},
		{"worst text, 64 KiB, a byte", "4 KiB", "≤ 1.5×", func(b *bench) (result, error) { return worstText(b, 64) }},
		{"worst text, 256 KiB, a byte", "4 KiB", "≤ 1.5×", func(b *bench) (result, error) { return worstText(b, 256) }},
		{"dispatch p50, 100000 peers", "4 peers", "≤ 1.2×", manyPeers},
	}
}

const (
	decisionSamples = 20_000
	manyContacts    = 100_000
)

// letter is ordinary mail in which no rule finds anything, with numbers, links and other
// usual parts of mail.
const letter = `Hi Carol,

thanks for the numbers from last week. The second table looks different from what Dana sent on Tuesday, mostly because
her export still counts the trial accounts (1,204 of 9,318). Could you check which of the two is current? We compared
the totals with the finance sheet, and they differ by about 3 percent: close, but not equal.

- migration: 12 nodes are done, 4 remain, error rate unchanged at 0.02 %
- report: is the chart on page 4 made from the raw data, or from the cleaned set?
- open question of 14 March: https://wiki.acme.example/display/ENG/Rollout-2026?page=3#notes

Dana wrote on Monday:
> The totals of the two sheets are counted at different hours of the day, that is all there is to it.

The function is called like this: ` + "`sum(rows, key=lambda r: r.account)`" + `, with “account” as in the header. If it helps,
the phone in the lab is +49 30 1234567, extension 12, until half past five. Nothing here is urgent.

Regards
Alice
-- 
Alice Example, Platform Engineering, room 2.14
`

// worst are texts of the worst sorts there are for the detectors: dense with
// what they look twice at. Which is the worst is measured.
func worst() []string {
	return []string{
		"5k \u200b", "5k '", "deal\u6a5f5k ", "we pay 5 we pay 5k ", "c0mm!|!|!|!c|!@$", "c.o.m.m.i.t.c.o.m.m.", "c\u200bo\u200bm\u200bm\u200bi\u200bx ",
		"9,", "book ", "I'll send. ", "book\n-- \n", "On \nbook\n", "> > > > > book\n", "book ` `` ``` ```` ````` `````` ```````", "&#98;&#111;&#111;&#107;&#;&", "o\u0301",
		"token=%%20", "next_token=9", "password=", "4111.", "123456789 ", "#123-45-6789", "12345678Z ", "4111 1111 1111 1112 ", "9",
		"sk-", "sk-ant-", "AKIA", "eyJhIjoxfQ.eyJhIjoxfQ.eyJhIjoxfQeyJhIjoxfQ ", "T3BlbkFJ", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n",
		"TWFuIGlzIGRpc3Rpbmd1aXNoZWQs", "DE89 GB82 FR14 ", "a://b:c@d", "CONFIDENTIAL ", "\uff23\uff2f\uff2e\uff26", "A\u200b", "\u6a5f\u5bc6", `\u0063\u006fm\x6d\n`, `\`, "coMmIt", "co\x1b[m", "A\x02", "AKIA\x1b[1m",
	}
}

func filled(with string, size int) string { return strings.Repeat(with, size/len(with)+1)[:size] }

// rules are the detectors as they come.
func rules(cfg *config.Config) (*ocip.Rules, error) {
	found, err := content.New(content.Options{})
	if err != nil {
		return nil, err
	}
	promises, err := commitment.New(commitment.Options{})
	if err != nil {
		return nil, err
	}
	c := cfg.OCIP.Chain
	return &ocip.Rules{
		Content: found, Commitments: promises,
		Chain: ocip.ChainLimits{MaxHops: c.MaxHops, MaxRevisits: c.MaxRevisits, MaxAge: c.MaxAge},
	}, nil
}

// decider returns a step that weighs the first message of an exchange, of 400
// bytes of plain text, by the built-in policy and rules. The cache is that of
// [policy.Source]; hops is how long the line of messages is that led to it.
func decider(ctx context.Context, cache, hops int) (func() error, error) {
	cfg := config.Default()
	p, err := policy.Compile(ctx, policy.Source{Data: cfg.Policy.Data.Map(), CacheSize: cache})
	if err != nil {
		return nil, err
	}
	r, err := rules(cfg)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	sender := ocip.Identity{InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "engineering", TenantID: "acme"}
	to := ocip.Identity{InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "engineering", TenantID: "acme"}
	line := ocip.BeginChain("0198f0aa-0000-7000-8000-000000000001", sender.InstanceID, now)
	for i := range hops {
		line = line.Extend(fmt.Sprintf("agent-number-%d", i), false)
	}
	m := ocip.Outgoing{
		Now:    now,
		Sender: ocip.Agent{ID: "alice", Identity: sender, MaxShared: ocip.Internal, MaxRounds: 3, CanReceiveQueries: true, CanAutoRespond: true},
		To:     ocip.Counterparty{Kind: ocip.KindAgent, Accepts: ocip.Internal, Identity: to},
		Exchange: ocip.Exchange{
			ID: "0198f0aa-0000-7000-8000-000000000002", ConversationID: "0198f0aa-0000-7000-8000-000000000003", Type: ocip.InformationQuery,
			Agent: sender.InstanceID, Counterparty: to.InstanceID, SessionKey: "chat:carol", Outcome: ocip.InProgress, MaxRounds: 3,
			OpenedAt: now, UpdatedAt: now, ExpiresAt: now.Add(24 * time.Hour),
		},
		Cause: line, MessageType: ocip.AgentGenerated, Declared: ocip.Internal, Content: report, Rules: r,
		Summary: ocip.Summarize(report), MaxAnnotation: int(cfg.OCIP.MaxAnnotationBytes),
	}
	return func() error {
		if v := ocip.Decide(ctx, &m, p); !v.Allowed() || len(v.Detections) > 0 {
			return fmt.Errorf("the message is judged %s (%s)", v.Result, v.Reason)
		}
		return nil
	}, nil
}

// single is the p50 of a step's calls, after some that warm up.
func single(n int, step func() error) (time.Duration, error) {
	samples := make([]time.Duration, 0, n)
	for i := range n + n/10 {
		began := time.Now()
		if err := step(); err != nil {
			return 0, err
		}
		if i >= n/10 {
			samples = append(samples, time.Since(began))
		}
	}
	return p50(samples), nil
}

func below(t, goal time.Duration) result {
	return result{t.Round(100 * time.Nanosecond).String(), "—", "—", t <= goal}
}

func decisionTime(b *bench) (result, error) {
	step, err := decider(b.ctx, 0, 0)
	if err != nil {
		return result{}, err
	}
	t, err := single(decisionSamples, step)
	return below(t, 15*time.Microsecond), err
}

func evaluatedDecision(b *bench) (result, error) {
	evaluated, err := decider(b.ctx, -1, 0)
	if err != nil {
		return result{}, err
	}
	cached, err := decider(b.ctx, 0, 0)
	if err != nil {
		return result{}, err
	}
	return compare(decisionSamples, evaluated, cached, math.Inf(1))
}

func chainedDecision(b *bench) (result, error) {
	long, err := decider(b.ctx, 0, config.Default().OCIP.Chain.MaxHops-1)
	if err != nil {
		return result{}, err
	}
	fresh, err := decider(b.ctx, 0, 0)
	if err != nil {
		return result{}, err
	}
	return compare(decisionSamples, long, fresh, 1.2)
}

func decisionAllocations(b *bench) (result, error) {
	step, err := decider(b.ctx, 0, 0)
	if err != nil {
		return result{}, err
	}
	const calls = 1000
	fewest := math.Inf(1)
	for range 5 { // whatever else allocates meanwhile counts too
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			if err := step(); err != nil {
				return result{}, err
			}
		}
		runtime.ReadMemStats(&after)
		fewest = min(fewest, float64(after.Mallocs-before.Mallocs)/calls)
	}
	return result{fmt.Sprintf("%.0f", fewest), "—", "—", fewest <= 40}, nil
}

// detector returns a step that shows a text to all detectors.
func detector(text string) (func() error, error) {
	r, err := rules(config.Default())
	if err != nil {
		return nil, err
	}
	return func() error {
		r.Content.Detect(text)
		r.Commitments.Detect(text)
		return nil
	}, nil
}

func detection(*bench) (result, error) {
	step, err := detector(filled(letter, 4<<10))
	if err != nil {
		return result{}, err
	}
	t, err := single(decisionSamples/4, step)
	return below(t, 60*time.Microsecond), err
}

// worstText compares what a byte of the worst text takes in a long text and in
// one of 4 KiB.
func worstText(_ *bench, kib int) (result, error) {
	const short = 4
	var unit string
	var slowest time.Duration
	for _, u := range worst() {
		step, err := detector(filled(u, 16<<10))
		if err != nil {
			return result{}, err
		}
		t, err := single(20, step)
		if err != nil {
			return result{}, err
		}
		if t > slowest {
			unit, slowest = u, t
		}
	}
	fmt.Fprintf(os.Stderr, "  the worst text repeats %q\n", unit)
	var samples [2][]time.Duration
	steps := [2]func() error{}
	for side, size := range [2]int{kib, short} {
		var err error
		if steps[side], err = detector(filled(unit, size<<10)); err != nil {
			return result{}, err
		}
	}
	for range 40 {
		for side, step := range steps {
			t, err := single(1, step)
			if err != nil {
				return result{}, err
			}
			samples[side] = append(samples[side], t)
		}
	}
	long, brief := float64(p50(samples[0]))/float64(kib<<10), float64(p50(samples[1]))/float64(short<<10)
	return result{
		fmt.Sprintf("%.0f ns", long), fmt.Sprintf("%.0f ns", brief), fmt.Sprintf("%.2f×", long/brief), long <= 1.5*brief,
	}, nil
}

// manyPeers compares dispatches of a daemon that knows a hundred thousand
// others with those of one that knows a few.
func manyPeers(b *bench) (result, error) {
	var steps [2]func() error
	for side, contacts := range [2]int{manyContacts, 0} {
		d, err := b.startKnowing(fmt.Sprintf("peers-%d", contacts), 1, contacts)
		if err != nil {
			return result{}, err
		}
		kb, err := d.resting()
		if err != nil {
			return result{}, err
		}
		fmt.Fprintf(os.Stderr, "  %d further peers: ready after %s, %.1f MB resident\n", contacts, d.ready.Round(time.Millisecond), float64(kb)/1000)
		s, err := d.sender(0)
		if err != nil {
			return result{}, err
		}
		steps[side] = s.dispatch
	}
	return compare(turns*turnSamples, steps[0], steps[1], 1.2)
}
