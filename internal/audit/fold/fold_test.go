package fold

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

var begin = time.UnixMilli(1_800_000_000_000).UTC()

// written seals a record, as the store does.
func written(tb testing.TB, head *audit.Head, r *audit.Record) []byte {
	tb.Helper()
	if r.ID == "" {
		r.ID = "id"
	}
	body, err := audit.Encode(r)
	if err != nil {
		tb.Fatal(err)
	}
	line, next := head.Seal(nil, begin, body)
	*head = next
	return line
}

// rowsOf makes some rows of a table, open or not.
func rowsOf(r *rand.Rand, t Table) Row {
	row := make(Row, len(t.Columns()))
	for i, name := range t.Columns() {
		row[i] = fmt.Sprintf("%s \"%d\u2028", name, r.IntN(2))
		if t.def().numbers[i] {
			row[i] = Int(r.IntN(4))
		}
	}
	switch t {
	case Exchanges:
		row[2] = []string{"in_progress", "denied"}[r.IntN(2)]
	case Approvals:
		row[3] = []string{"pending", "denied"}[r.IntN(2)]
	case CommitmentGrants:
		row[2], row[3] = []string{"in_force", "revoked"}[r.IntN(2)], Int(begin.UnixMilli()+int64(r.IntN(2))*1000)
	case Releases:
		row[0] = []string{"ready", "claimed", "abandoned"}[r.IntN(3)]
	case Escalations, Paused, Tasks, TaskGrants, Lanes, UsedSignatures, Owed, AppProcesses:
	}
	return row
}

// The changes that are entered into records can be read from their lines, and undoing them from the
// end leads back.
func TestWhatIsEnteredIsRead(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		records := make([]*audit.Record, 1+r.IntN(3))
		for i := range records {
			records[i] = &audit.Record{
				ActionType: []string{audit.ActionExchange, audit.ActionApproval}[r.IntN(2)], Side: []string{"", audit.SideSender}[r.IntN(2)], AgentID: fmt.Sprint("a", r.IntN(2)), ExchangeID: []string{"", "e0", "e1"}[r.IntN(3)],
				ConversationID: "c", Round: r.IntN(3), MaxRounds: 3, ExchangeType: "t", Outcome: "in_progress", PolicyResult: []string{audit.ResultAllow, audit.ResultDeny}[r.IntN(2)], ApprovalID: fmt.Sprint("p", r.IntN(2)),
			}
		}
		var changes []Change
		for table := range Tables() {
			for no := range 2 {
				key := []string{fmt.Sprint("p", no)}
				if Table(table) == Exchanges {
					key = []string{fmt.Sprint("a", no), fmt.Sprint("e", r.IntN(2))}
				}
				if Table(table) == Owed || Table(table) == AppProcesses {
					key = append(key, "seal")
				}
				c := Change{Table: Table(table), Key: key, Add: 1 + r.Int64N(2)}
				if c.def().counter < 0 || r.IntN(2) == 0 {
					was, now := rowsOf(r, c.Table), rowsOf(r, c.Table)
					if r.IntN(3) == 0 {
						was = nil
					}
					if c.Table == Exchanges && r.IntN(2) == 0 {
						// The shorter forms.
						m := records[r.IntN(len(records))]
						now = opened(m, Int(5))
						if was != nil {
							was = slices.Clone(now)
							was[columnRound] = Int(m.Round - 1)
						}
					}
					var changed bool
					if c, changed = c.Changed(key, was, now, begin); !changed {
						continue
					}
				}
				changes = append(changes, c)
			}
		}
		entered := Enter(records, changes)
		var head audit.Head
		n := 0
		for i, record := range records {
			line := written(t, &head, record)
			said, err := Read(line)
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if Silent(line) && len(said.Changes) > 0 {
				t.Fatalf("passed over: %s", line)
			}
			text := func(list []Change) (all []string) {
				for _, c := range list {
					all = append(all, fmt.Sprintf("%q", fmt.Sprint(c)))
				}
				slices.Sort(all)
				return all
			}
			if got, want := text(said.Changes), text(entered[i]); !slices.Equal(got, want) {
				t.Fatalf("read %s\nwant %s\nof %s", got, want, line)
			}
			n += len(said.Changes)
		}
		if n != len(changes) {
			t.Fatalf("%d changes are said, want %d", n, len(changes))
		}
	}
}

// The digests of tables match the documentation's: they are computed from nothing, whatever was
// changed and rolled back before.
func TestStateIsOfTheRowsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	set := NewSet()
	for seq := range uint64(3000) {
		table := Tables()[r.IntN(len(Tables()))]
		key := []string{fmt.Sprint("k", r.IntN(200)), "x"}[:len(table.def().key)]
		was, _ := set.Get(table, key)
		c, changed := table.Changed(key, was, rowsOf(r, table), begin)
		set.Begin()
		if changed {
			if misfit, _ := set.Apply(seq+1, begin, []Change{c}); misfit != nil {
				t.Fatal(misfit)
			}
		}
		if r.IntN(8) == 0 {
			set.State(begin)
		}
		if r.IntN(4) == 0 {
			set.Rollback()
		}
	}
	again := NewSet()
	for _, table := range Tables() {
		set.Each(table, func(key []string, row Row, _, _ uint64) bool { again.Put(table, key, row); return true })
	}
	if got, want := set.State(begin), again.State(begin); len(got) < 4 || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := Paused.Leaf([]string{"all"}, Row{"7"}), audit.Hash(sha256.Sum256([]byte("6:paused,3:all,1:7,"))); got != want {
		t.Errorf("a leaf is %s, want %s", got, want)
	}
}

func BenchmarkReplay(b *testing.B) {
	var head audit.Head
	var lines [][]byte
	for i := range 1000 {
		r := &audit.Record{
			ActionType: audit.ActionExchange, Side: audit.SideSender, TenantID: "acme-corp", UserID: "alice", AgentID: "agent-alice-1", AppID: "@acme/alice-runtime",
			Counterparty: audit.Counterparty{Kind: "agent", InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "marketing", TenantID: "acme-corp"}, SessionKey: "telegram:bob",
			ExchangeID: fmt.Sprintf("018f0000-0000-7000-8000-%012d", i/3), ConversationID: fmt.Sprintf("018f0000-0000-7000-8000-%012d", i/3), Round: i%3 + 1, MaxRounds: 3, ExchangeType: "information_query",
			PolicyApplied: "ocip.agent_exchange", PolicyRevision: "sha256:0123456789ab", PolicyResult: audit.ResultAllow, PolicyReason: "internal data may be shared with agents of the same tenant",
			Outcome: "in_progress", ContentDigest: "hmac-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", DeliveredDigest: "hmac-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			Details: map[string]any{"classification": "internal", "canCommit": false, "envelope": "0123456789012345678901234567890123456789012345678901234567890123456789"},
		}
		if i%3 == 0 {
			r.Opens = int(begin.UnixMilli())
		}
		lines = append(lines, written(b, &head, r))
	}
	b.SetBytes(int64(len(lines[0])))
	b.ReportAllocs()
	replay, n := NewReplay(), 0
	for b.Loop() {
		if n%len(lines) == 0 {
			replay = NewReplay()
		}
		if err := replay.Add(uint64(n%len(lines))+1, lines[n%len(lines)]); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if p := replay.Problems(); len(p) > 0 {
		b.Fatal(p[0].String())
	}
}

// If a transaction that began a list is rolled back, the next one begins it again, with the
// exchanges of both.
func TestListIsBegunAnew(t *testing.T) {
	row := Row{"c", "query", "in_progress", "1", "3", "0", "0"}
	change := func(id string) []Change {
		return []Change{{Table: Exchanges, Key: []string{"a", id}, New: row}}
	}
	set, at := NewSet(), time.UnixMilli(1000)
	listed := func() (ids []string) {
		for _, one := range set.Unlisted() {
			if one.Open {
				ids = append(ids, one.Key[1])
			}
		}
		slices.Sort(ids)
		return ids
	}
	set.Begin()
	set.Apply(1, at, change("e1"))
	if got := listed(); got != nil {
		t.Errorf("before a list was begun there is %v", got)
	}
	set.Begin()
	set.List(2)
	if got := listed(); got != nil {
		t.Errorf("with one change, a list after two changes is %v", got)
	}
	set.List(1)
	if got := listed(); !slices.Equal(got, []string{"e1"}) {
		t.Errorf("the list is %v", got)
	}
	set.Rollback()
	set.Begin()
	set.Apply(2, at, change("e2"))
	set.List(0)
	if got := listed(); !slices.Equal(got, []string{"e1", "e2"}) {
		t.Errorf("behind what was taken back the list is %v", got)
	}
	set.Begin()
	set.List(0)
	if got := listed(); got != nil {
		t.Errorf("what was listed is listed again: %v", got)
	}
}

// A log of an earlier form counts neither debts nor processes: they are compared from the checkpoint on that
// does.
func TestTablesOfALaterForm(t *testing.T) {
	for table, since := range map[Table]int{Owed: 4, AppProcesses: 5} {
		for form := 1; form <= Form; form++ {
			want := 0
			if form >= since {
				want = 1
			}
			found := NewFound()
			found.Put(table, []string{"a", "b"}, Row{"0"})
			since := &Since{Base: 1, At: begin, Form: form}
			if got := since.Compare(found); len(got) != want {
				t.Errorf("form %d: %v", form, got)
			}
			replay := NewReplay()
			replay.whole, replay.marked, replay.form = true, true, form
			if got := replay.Compare(found, begin); len(got) != want {
				t.Errorf("form %d, from the whole log: %v", form, got)
			}
		}
	}
}
