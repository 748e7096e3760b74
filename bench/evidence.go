package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/evidence/mirror"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/logstore"
	"github.com/openclawos/ocipd/internal/store/rowseal"
	"go.uber.org/zap"
	"golang.org/x/mod/sumdb/note"
)

// evidence are the figures of the audit log.
func evidence() []figure {
	return []figure{
		{"audit record, chain and tree", "—", "≤ 10 µs", chainAndTree},
		{"audit follower behind the answer, p50", "—", "≤ 5 ms", followerDelay},
		{"audit verify, one core, live file", "one SHA-256", "≥ 400 MB/s", func(b *bench) (result, error) { return verifySpeed(b, false) }},
		{"audit verify, one core, segments", "one SHA-256", "≥ 400 MB/s", func(b *bench) (result, error) { return verifySpeed(b, true) }},
		{"audit replay of rows, one core", "—", "≥ 200,000 records/s", replaySpeed},
		{"compare 1,000 open rows with the log", "—", "≤ 20 ms", takeUpSpeed},
		{"open the large store for append, 100 open rows", "—", "≤ 100 ms", openLarge},
		{"open 400,000 records, against 50,000", "50,000 records", "≤ 1.1×", openFlat},
		{"open 50,000 records, each 1,000 open rows more", "100 open rows", "≤ 20 ms", openRows},
		{"audit query over the large store, worst", "—", "≤ 50 ms", indexedQuery},
	}
}

// benchRecord is a record such as a dispatch leaves.
func benchRecord(id string) *audit.Record {
	return &audit.Record{
		ID: id, ActionType: audit.ActionExchange, Side: audit.SideSender, TenantID: "acme", UserID: "u0", AgentID: "agent-a0", AppID: "@bench/a0",
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "agent-p0", UserID: "p0", OrgUnit: "engineering", TenantID: "acme"},
		SessionKey:   "chat:p0", ExchangeID: id, ConversationID: id, Round: 1, MaxRounds: 3, ExchangeType: "information_query", Classification: "internal",
		PolicyApplied: "ocip.agent_exchange", PolicyRevision: "sha256:0123456789ab", PolicyResult: "allow", PolicyReason: "agent exchange allowed",
		Outcome: "in_progress", ContentDigest: "hmac-sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ContentBytes: 400, DispatchID: id,
	}
}

// chainAndTree measures the cost of chaining a record and putting it into the tree, over
// that of writing the same bytes: hashing, and the tiles' bytes.
func chainAndTree(*bench) (result, error) {
	body, err := audit.Encode(benchRecord("01890000-0000-7000-8000-000000000000"))
	if err != nil {
		return result{}, err
	}
	var (
		head  audit.Head
		tree  audit.Tree
		line  []byte
		tiled int
	)
	leaf, now := audit.Leaves(), time.Now()
	t, err := single(200_000, func() error {
		line, head = head.Seal(line[:0], now, body)
		if head.Seq%audit.CheckpointEvery == 0 {
			_ = tree.Root()
		}
		return tree.Append(leaf(line), func(t audit.Tile) error {
			tiled += len(t.Hashes)
			return nil
		})
	})
	return below(t, 10*time.Microsecond), err
}

// followerDelay is how long after its sender has the answer a record is with
// somebody who follows the log.
func followerDelay(b *bench) (result, error) {
	d, err := b.start("follow", 1)
	if err != nil {
		return result{}, err
	}
	sender, err := d.sender(0)
	if err != nil {
		return result{}, err
	}
	follower, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return result{}, err
	}
	defer follower.socket.Close()
	follower.ask("audit.tail", `{"follow":true}`)
	if _, err := follower.socket.Write(follower.buf); err != nil {
		return result{}, err
	}
	arrived := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		for {
			line, err := follower.lines.ReadSlice('\n')
			if err != nil {
				failed <- err
				return
			}
			if bytes.Contains(line, []byte(`"actionType":"agent_exchange"`)) {
				arrived <- time.Now()
			}
		}
	}()
	samples := make([]time.Duration, 0, turns*turnSamples)
	for range turns * turnSamples {
		if err := sender.dispatch(); err != nil {
			return result{}, err
		}
		answered := time.Now()
		select {
		case at := <-arrived:
			samples = append(samples, max(0, at.Sub(answered)))
		case err := <-failed:
			return result{}, err
		}
	}
	t := p50(samples)
	worst := samples[len(samples)*99/100]
	return result{fmt.Sprintf("%s (p99 %s)", t.Round(time.Microsecond), worst.Round(time.Microsecond)), "—", "—", worst <= 5*time.Millisecond}, nil
}

// verifyBytes is how much of a log is read for a figure.
const verifyBytes = 512 << 20

var errEnough = errors.New("enough")

// verifySpeed reads a log from the disk and verifies every byte of it, beside a
// single hash over the same bytes.
func verifySpeed(b *bench, packed bool) (result, error) {
	if err := b.large(); err != nil {
		return result{}, err
	}
	dir := filepath.Join(b.dir, "large", "openclawos")
	var plain []byte
	read := 0
	err := mirror.Walk(dir, 0, func(line []byte) error {
		plain = append(append(plain, line...), '\n')
		if len(plain) >= verifyBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return result{}, err
	}
	file := filepath.Join(b.dir, "verify.jsonl")
	if err := os.WriteFile(file, plain, 0o600); err != nil {
		return result{}, err
	}
	began := time.Now()
	_ = sha256.Sum256(plain)
	floor := float64(len(plain)) / time.Since(began).Seconds() / 1e6

	proof, err := knownKey(dir)
	if err != nil {
		return result{}, err
	}
	v, err := audit.NewVerifier(proof)
	if err != nil {
		return result{}, err
	}
	visit := func(line []byte) error {
		if read += len(line) + 1; read > len(plain) {
			return errEnough
		}
		return v.Add(line)
	}
	began = time.Now()
	if packed {
		err = mirror.Walk(dir, 0, visit)
	} else {
		err = mirror.WalkFile(file, visit)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return result{}, err
	}
	ours := float64(len(plain)) / time.Since(began).Seconds() / 1e6
	return result{fmt.Sprintf("%.0f MB/s", ours), fmt.Sprintf("%.0f MB/s", floor), fmt.Sprintf("%.2f×", ours/floor), ours >= 400}, os.Remove(file)
}

// signing is that of a daemon whose state is in a directory.
func signing(dir string) *logstore.Signing {
	return &logstore.Signing{
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
		Open: func(name, _ string) (note.Signer, string, error) {
			signer, err := keyring.OpenSigner(filepath.Join(dir, "keys"), name, rand.Reader)
			if err != nil {
				return nil, "", err
			}
			return signer.Note(), signer.Verifier(), nil
		},
	}
}

// rowKey is the key of the rows of a daemon whose state is in a directory.
func rowKey(dir string) func() (*rowseal.Key, error) {
	return keyring.RowKey(filepath.Join(dir, "keys"), rand.Reader, time.Now)
}

// knownKey is the public key of the log in a directory.
func knownKey(dir string) (audit.Proof, error) {
	keys, err := keyring.PublicKeys(filepath.Join(dir, "keys"))
	if err != nil {
		return audit.Proof{}, err
	}
	key, err := note.NewVerifier(keys[len(keys)-1].Verifier)
	return audit.Proof{Keys: []note.Verifier{key}}, err
}

// large makes the large store once.
func (b *bench) large() error {
	if _, err := os.Stat(filepath.Join(b.dir, "large")); err == nil {
		return nil
	}
	return b.fill("large")
}

func openLarge(b *bench) (result, error) {
	if err := b.large(); err != nil {
		return result{}, err
	}
	var samples []time.Duration
	for range 5 {
		began := time.Now()
		s, err := store.Open(b.ctx, store.Options{Path: filepath.Join(b.dir, "large", "openclawos", "ocipd.db"), RowKey: rowKey(filepath.Join(b.dir, "large", "openclawos")), Clock: time.Now, Log: zap.NewNop()})
		if err != nil {
			return result{}, err
		}
		samples = append(samples, time.Since(began))
		if err := s.Close(); err != nil {
			return result{}, err
		}
	}
	t := p50(samples)
	return result{t.Round(100 * time.Microsecond).String(), "—", "—", t <= 100*time.Millisecond}, nil
}

// indexedQuery asks a daemon over the large store, as `ocipd audit query` does,
// and gives the slowest of several questions.
func indexedQuery(b *bench) (result, error) {
	if err := b.large(); err != nil {
		return result{}, err
	}
	d, err := b.start("large", 1)
	if err != nil {
		return result{}, err
	}
	c, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return result{}, err
	}
	defer c.socket.Close()
	c.lines = bufio.NewReaderSize(c.socket, 1<<20) // an answer is a page of records
	if err := d.indexed(b.ctx, c); err != nil {
		return result{}, err
	}
	questions := []string{
		`{}`, `{"agent":"agent-a0"}`, `{"agent":"agent-a0","result":"allow"}`, `{"agent":"nobody"}`, `{"code":"EXCHANGE_ROUND_LIMIT"}`,
		`{"counterparty":"agent-p0","result":"deny"}`, `{"text":"exchange allowed"}`, `{"text":"no such reason"}`, `{"conversation":"01890000-0000-7000-8000-000000000000"}`,
		`{"tenant":"acme","result":"require_approval"}`,
	}
	var worst time.Duration
	for _, q := range questions {
		var samples []time.Duration
		for range 15 {
			began := time.Now()
			if _, err := c.call("audit.query", `{"limit":50,"filter":`+q+`}`); err != nil {
				return result{}, fmt.Errorf("%s: %w", q, err)
			}
			samples = append(samples, time.Since(began))
		}
		worst = max(worst, p50(samples))
	}
	return result{worst.Round(10 * time.Microsecond).String(), "—", "—", worst <= 50*time.Millisecond}, nil
}

// indexed returns when a daemon has indexed its log.
func (d *daemon) indexed(ctx context.Context, c *conn) error {
	number := func(text []byte, member string) uint64 {
		_, rest, _ := bytes.Cut(text, []byte(`"`+member+`":`))
		end := slices.IndexFunc(rest, func(b byte) bool { return b < '0' || b > '9' })
		n, err := strconv.ParseUint(string(rest[:max(end, 0)]), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := c.call("kernel.status", `{}`)
		if err != nil {
			return err
		}
		_, log, _ := bytes.Cut(status, []byte(`"audit":`))
		if number(log, "indexed") >= number(log, "seq") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
