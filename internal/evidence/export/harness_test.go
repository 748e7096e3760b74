package export

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.uber.org/zap"
)

// patience bounds a test's wait for events that should come at once.
const patience = 20 * time.Second

var began = time.Date(2026, 11, 20, 18, 15, 23, 951212000, time.UTC)

// memory is a log in memory.
type memory struct {
	mu    sync.Mutex
	head  audit.Head
	lines [][]byte
	grown chan struct{}
	// gone is the number of records that were removed from its beginning.
	gone int
}

func newMemory() *memory { return &memory{grown: make(chan struct{})} }

func (m *memory) add(tb testing.TB, records ...*audit.Record) {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		body, err := audit.Encode(r)
		if err != nil {
			tb.Fatal(err)
		}
		var line []byte
		line, m.head = m.head.Seal(nil, began.Add(time.Duration(m.head.Seq)*time.Second), body)
		m.lines = append(m.lines, line)
	}
	close(m.grown)
	m.grown = make(chan struct{})
}

// fill adds plain records.
func (m *memory) fill(tb testing.TB, n int) {
	tb.Helper()
	for range n {
		m.add(tb, exchange("allow"))
	}
}

func exchange(result string) *audit.Record {
	return &audit.Record{
		ID: "01a1fa2b-9a2f-715d-ad95-a2f1de56572f", ActionType: audit.ActionExchange, Side: audit.SideSender, TenantID: "acme-corp", UserID: "alice",
		AgentID: "agent-alice-1", AppID: "@acme/alice-runtime", SessionKey: "telegram:dave", ExchangeID: "ex-1", ConversationID: "conv-1",
		Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "agent-dave-1", UserID: "dave", OrgUnit: "engineering", TenantID: "acme-corp"},
		Round:        1, MaxRounds: 3, ExchangeType: "information_query", Classification: "internal",
		PolicyApplied: "ocip.agent_exchange", PolicyRevision: "sha256:36059fca3323", PolicyResult: result, PolicyReason: "within policy.data",
		Outcome: "in_progress", DispatchID: "d-1",
	}
}

func (m *memory) Head() audit.Head {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head
}

func (m *memory) WaitAfter(ctx context.Context, seq uint64) error {
	for {
		m.mu.Lock()
		have, grown := m.head.Seq, m.grown
		m.mu.Unlock()
		if have > seq {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memory) LinesAfter(_ context.Context, seq uint64) ([][]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := max(int(seq), m.gone)
	to := min(len(m.lines), from+512)
	if from >= to {
		return nil, seq, nil
	}
	return m.lines[from:to], uint64(to), nil
}

func (m *memory) line(seq uint64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.lines[seq-1])
}

// eventually polls a condition.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	late := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("%s: not after %s", what, patience)
		}
	}
}

func options(tb testing.TB, log Log, specs ...Spec) Options {
	tb.Helper()
	for i := range specs {
		if specs[i].Timeout == 0 {
			specs[i].Timeout = 2 * time.Second
		}
	}
	return Options{
		Sinks: specs, Log: log, Mapping: Mapping{Version: "1.2.3", Host: "host-1", Log: "log-1"}, Dir: tb.TempDir(),
		Now: time.Now, Random: func() float64 { return 1 }, Zap: zap.NewNop(),
	}
}

func start(tb testing.TB, o Options) *Set {
	tb.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// seen collects the lines that a receiver got, and compares them with the log.
type seen struct {
	mu    sync.Mutex
	count map[uint64]int
	text  map[uint64]string
}

func newSeen() *seen { return &seen{count: map[uint64]int{}, text: map[uint64]string{}} }

func (s *seen) add(line string) {
	r := Read([]byte(line))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[r.Entry.Seq]++
	if before, ok := s.text[r.Entry.Seq]; ok && before != line {
		line = "two lines with one number"
	}
	s.text[r.Entry.Seq] = line
}

func (s *seen) has(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.count) >= n
}

// most returns how often the most frequent record came.
func (s *seen) most() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.count {
		n = max(n, c)
	}
	return n
}

// check fails unless exactly the records of the log came, each unchanged.
func (s *seen) check(tb testing.TB, m *memory) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	head := m.Head().Seq
	if uint64(len(s.count)) != head {
		tb.Errorf("%d records came, want %d", len(s.count), head)
	}
	for seq := uint64(1); seq <= head; seq++ {
		if s.text[seq] != m.line(seq) {
			tb.Fatalf("record %d came as %q, want %q", seq, s.text[seq], m.line(seq))
		}
	}
}

// message is a message of RFC 5424.
type message struct {
	pri                                    int
	time, host, app, procID, msgID, sdName string
	params                                 map[string]string
	text                                   string
}

// parseSyslog reads a message of RFC 5424, section 6, strictly.
func parseSyslog(b []byte) (m message, err error) {
	s := string(b)
	take := func(end string) string {
		part, rest, ok := strings.Cut(s, end)
		if !ok {
			err = fmt.Errorf("no %q in %.60q", end, s)
		}
		s = rest
		return part
	}
	if !strings.HasPrefix(s, "<") {
		return m, errors.New("no priority")
	}
	s = s[1:]
	pri := take(">")
	if m.pri, err = strconv.Atoi(pri); err != nil || m.pri > 191 || strconv.Itoa(m.pri) != pri {
		return m, fmt.Errorf("priority %q: %w", pri, err)
	}
	if version := take(" "); version != "1" {
		return m, fmt.Errorf("version %q", version)
	}
	m.time, m.host, m.app, m.procID, m.msgID = take(" "), take(" "), take(" "), take(" "), take(" ")
	for i, f := range []struct {
		text string
		most int
	}{{m.time, 27}, {m.host, 255}, {m.app, 48}, {m.procID, 128}, {m.msgID, 32}} {
		if f.text == "" || len(f.text) > f.most || strings.ContainsFunc(f.text, func(r rune) bool { return r < 33 || r > 126 }) {
			return m, fmt.Errorf("header field %d is %q", i, f.text)
		}
	}
	if m.time != "-" {
		if _, err := time.Parse(time.RFC3339Nano, m.time); err != nil {
			return m, err
		}
	}
	if !strings.HasPrefix(s, "[") {
		return m, errors.New("no structured data")
	}
	s = s[1:]
	i := strings.IndexAny(s, " ]")
	if i < 1 {
		return m, errors.New("no name of structured data")
	}
	m.sdName, s = s[:i], s[i:]
	m.params = map[string]string{}
	for strings.HasPrefix(s, " ") {
		s = s[1:]
		name := take(`="`)
		if name == "" || len(name) > 32 || strings.ContainsAny(name, "= ]\"") {
			return m, fmt.Errorf("parameter name %q", name)
		}
		var value strings.Builder
		for closed := false; !closed; {
			switch {
			case s == "":
				return m, errors.New("a parameter has no end")
			case s[0] == '\\' && len(s) > 1 && strings.ContainsRune(`"\]`, rune(s[1])):
				value.WriteByte(s[1])
				s = s[2:]
			case s[0] == ']':
				return m, errors.New("a bracket that is not escaped")
			case s[0] == '"':
				closed, s = true, s[1:]
			default:
				value.WriteByte(s[0])
				s = s[1:]
			}
		}
		m.params[name] = value.String()
	}
	if !strings.HasPrefix(s, "]") {
		return m, errors.New("structured data has no end")
	}
	if s = s[1:]; s != "" {
		if s[0] != ' ' {
			return m, errors.New("no blank before the text")
		}
		m.text = s[1:]
	}
	return m, err
}

// collector reassembles the parts.
type collector struct {
	*seen
	parts map[string][]string
}

func newCollector() *collector { return &collector{seen: newSeen(), parts: map[string][]string{}} }

func (c *collector) message(b []byte) error {
	m, err := parseSyslog(b)
	if err != nil {
		return err
	}
	if m.params["parts"] == "" {
		c.add(m.text)
		return nil
	}
	of := m.params["hash"]
	if m.params["part"] == "1" {
		c.parts[of] = nil
	}
	c.parts[of] = append(c.parts[of], m.text)
	if strconv.Itoa(len(c.parts[of])) == m.params["parts"] {
		c.add(strings.Join(c.parts[of], ""))
	}
	return nil
}

// parseJournal reads an entry of the native protocol.
func parseJournal(b []byte) (map[string]string, error) {
	fields := map[string]string{}
	for len(b) > 0 {
		i := strings.IndexAny(string(b), "=\n")
		if i < 1 {
			return nil, fmt.Errorf("no name in %.40q", b)
		}
		name := string(b[:i])
		if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || name[0] == '_' {
			return nil, fmt.Errorf("name %q", name)
		}
		if b[i] == '=' {
			end := strings.IndexByte(string(b), '\n')
			if end < 0 {
				return nil, errors.New("no end of a value")
			}
			fields[name], b = string(b[i+1:end]), b[end+1:]
			continue
		}
		if len(b) < i+9 {
			return nil, errors.New("no length")
		}
		n := binary.LittleEndian.Uint64(b[i+1:])
		rest := b[i+9:]
		if n >= uint64(len(rest)) || rest[n] != '\n' {
			return nil, errors.New("a length that does not fit")
		}
		fields[name], b = string(rest[:n]), rest[n+1:]
	}
	return fields, nil
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
