package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Results a decision can have (protocol, Records).
const (
	ResultAllow    = "allow"
	ResultDeny     = "deny"
	ResultApproval = "require_approval"
)

// Verdicts count messages by the result of their decision ([Record.Verdict]). None counts the other
// records.
type Verdicts struct {
	Allow           int `json:"allow"`
	Deny            int `json:"deny"`
	RequireApproval int `json:"requireApproval"`
	None            int `json:"none"`
}

// Add counts n records with a result.
func (v *Verdicts) Add(result string, n int) {
	switch result {
	case ResultAllow:
		v.Allow += n
	case ResultDeny:
		v.Deny += n
	case ResultApproval:
		v.RequireApproval += n
	default:
		v.None += n
	}
}

// Total returns the number of counted records.
func (v Verdicts) Total() int { return v.Allow + v.Deny + v.RequireApproval + v.None }

// Stats are the numbers of records within a time.
type Stats struct {
	// Since and Until bound the time, Until exclusive, in whole minutes.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Bucket is how long a bucket is, in seconds.
	Bucket   int      `json:"bucket"`
	Verdicts Verdicts `json:"verdicts"`
	// Buckets have no gap, oldest first. They begin at multiples of their length since 1970, so
	// that the first and the last may be covered in part.
	Buckets []StatsBucket `json:"buckets"`
	// Agents lists the local agents and Rules the deciding rules (policyApplied, or the kind of a
	// record that no rule decided about), most records first, at most [StatsRows] each; Codes lists
	// the verdicts' codes. The counts are the full numbers.
	Agents     []StatsRow `json:"agents"`
	AgentCount int        `json:"agentCount"`
	Rules      []StatsRow `json:"rules"`
	RuleCount  int        `json:"ruleCount"`
	Codes      []StatsRow `json:"codes"`
	CodeCount  int        `json:"codeCount"`
	// Pairs are the messages that the local agents sent or tried to send, by receiver, most first,
	// at most [StatsPairs]; PairCount is the full number. Both are absent if they are not asked for.
	Pairs     []StatsPair `json:"pairs,omitempty"`
	PairCount int         `json:"pairCount,omitzero"`
	// KindTimes and RuleTimes say how long people took to decide about requests, by the kind of the
	// request and by the rule that held it, most decisions first, at most [StatsRows] each. Decisions
	// from before the daemon recorded the time do not count.
	KindTimes []StatsTime `json:"kindTimes,omitempty"`
	RuleTimes []StatsTime `json:"ruleTimes,omitempty"`
}

// StatsBucket are the numbers of a stretch of time.
type StatsBucket struct {
	Start time.Time `json:"start"`
	Verdicts
}

// StatsRow are the numbers of one agent, rule or code.
type StatsRow struct {
	Name string `json:"name"`
	Verdicts
}

// Limits of [Stats].
const (
	// StatsRows bounds each list of agents, rules and codes.
	StatsRows = 100
	// StatsPairs bounds the pairs.
	StatsPairs = 1000
	// StatsBuckets bounds the buckets; if there would be more, they are made longer.
	StatsBuckets = 1000
	// statsColumns is the largest number of buckets if the caller does not choose.
	statsColumns = 60
)

// Subject is the key of the counts. About is a receiver or a time, in a form of this package.
type Subject struct{ Agent, Rule, Code, Result, About string }

// The sessions of agents, and the apps that stand for other hosts, begin so (internal/ocip/directory).
const (
	agentSession = "agent:"
	hostApp      = "@ocipd/host:"
)

// Outside is the member of the details of a record that marks a message in a session of an agent whose
// sender is no agent of the daemon, so that it has no other record.
const Outside = "outside"

// Verdict returns the decision about a message that a record is, "" if it is none. A message between two
// agents of the daemon has a record for each of them, and counts once, by its sender's. One that came
// from outside counts by its receiver's. An earlier version marked none of those but by another host's app.
func (r *Record) Verdict() string {
	inside := r.Side == SideReceiver && strings.HasPrefix(r.SessionKey, agentSession) && !strings.HasPrefix(r.AppID, hostApp) && r.Details[Outside] != true
	if r.ActionType != ActionExchange || inside {
		return ""
	}
	return r.PolicyResult
}

// SubjectOf returns the subject of a record. If no rule decided about it, it counts for its kind.
func SubjectOf(r *Record) Subject {
	s := Subject{Agent: r.AgentID, Rule: r.PolicyApplied, Code: r.Code, Result: r.Verdict()}
	if s.Rule == "" && s.Result == "" {
		s.Rule = r.ActionType
	}
	s.About = aboutOf(r)
	return s
}

// Tally adds up [Stats]. Make one with [NewTally].
type Tally struct {
	since, until time.Time
	// bucket is the length of one, and first the beginning of the first, in seconds.
	bucket, first        int64
	total                Verdicts
	buckets              []Verdicts
	agents, rules, codes map[string]*Verdicts
	pairs                map[StatsPair]*StatsPair
	kinds, held          times
}

// NewTally begins counts for a time, widened to whole minutes, in buckets of a length, rounded up
// to whole minutes. With zero, it chooses a length.
func NewTally(since, until time.Time, bucket time.Duration) *Tally {
	t := &Tally{
		since: since.UTC().Truncate(time.Minute), until: until.UTC().Truncate(time.Minute),
		agents: make(map[string]*Verdicts), rules: make(map[string]*Verdicts), codes: make(map[string]*Verdicts),
		pairs: make(map[StatsPair]*StatsPair), kinds: make(times), held: make(times),
	}
	if t.until.Before(until) {
		t.until = t.until.Add(time.Minute)
	}
	if t.until.Before(t.since) {
		t.until = t.since
	}
	// In seconds: durations end after 292 years, and a caller's time may be longer.
	begin, end := t.since.Unix(), t.until.Unix()
	span := end - begin
	if bucket <= 0 {
		bucket = niceBucket(span)
	}
	const minute = 60
	t.bucket = (int64((bucket-1)/time.Minute) + 1) * minute
	for span/t.bucket >= StatsBuckets-1 {
		t.bucket *= 2
	}
	t.first = begin - mod(begin, t.bucket)
	if begin < end {
		t.buckets = make([]Verdicts, (end-t.first-1)/t.bucket+1)
	}
	return t
}

// mod returns the remainder that is never negative.
func mod(a, b int64) int64 { return (a%b + b) % b }

// niceBucket chooses a usual length for so many seconds.
func niceBucket(span int64) time.Duration {
	const day = 24 * time.Hour
	for _, b := range []time.Duration{
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 28 * day,
	} {
		if span <= int64(statsColumns*b/time.Second) {
			return b
		}
	}
	return 84 * day
}

// Since and Until return the counted time, in whole minutes.
func (t *Tally) Since() time.Time { return t.since }

// Until is exclusive.
func (t *Tally) Until() time.Time { return t.until }

// Holds reports whether a moment is within the time.
func (t *Tally) Holds(at time.Time) bool { return !at.Before(t.since) && at.Before(t.until) }

// Add counts a record, if it is within the time.
func (t *Tally) Add(e *Entry) {
	if t.Holds(e.Time) {
		t.AddAt(e.Time, e.Verdict(), 1)
		t.AddFor(SubjectOf(&e.Record), 1)
	}
}

// AddAt counts n records of one moment and result, which must be within the time, only for the
// buckets and the sum.
func (t *Tally) AddAt(at time.Time, result string, n int) {
	t.total.Add(result, n)
	t.buckets[(at.Unix()-t.first)/t.bucket].Add(result, n)
}

// AddFor counts n records only for their subject.
func (t *Tally) AddFor(s Subject, n int) {
	add := func(rows map[string]*Verdicts, name string) {
		if name == "" {
			return
		}
		v := rows[name]
		if v == nil {
			v = new(Verdicts)
			rows[name] = v
		}
		v.Add(s.Result, n)
	}
	add(t.agents, s.Agent)
	add(t.rules, s.Rule)
	add(t.codes, s.Code)
	t.addAbout(s, n)
}

// Stats returns the counts.
func (t *Tally) Stats() Stats {
	s := Stats{
		Since: t.since, Until: t.until, Bucket: int(t.bucket), Verdicts: t.total,
		Buckets: make([]StatsBucket, len(t.buckets)),
		Agents:  statsRows(t.agents), AgentCount: len(t.agents),
		Rules: statsRows(t.rules), RuleCount: len(t.rules),
		Codes: statsRows(t.codes), CodeCount: len(t.codes),
		Pairs: t.pairRows(), PairCount: len(t.pairs), KindTimes: t.kinds.rows(), RuleTimes: t.held.rows(),
	}
	for i := range t.buckets {
		s.Buckets[i] = StatsBucket{Start: time.Unix(t.first+int64(i)*t.bucket, 0).UTC(), Verdicts: t.buckets[i]}
	}
	return s
}

func statsRows(of map[string]*Verdicts) []StatsRow {
	rows := make([]StatsRow, 0, len(of))
	for name, v := range of {
		rows = append(rows, StatsRow{Name: name, Verdicts: *v})
	}
	slices.SortFunc(rows, func(a, b StatsRow) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(a.Name, b.Name))
	})
	return rows[:min(len(rows), StatsRows)]
}
