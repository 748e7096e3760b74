package fold

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/audit"
)

// Enter writes into the records of one decision the rows that it changes: each change into a record
// about its row if there is one, and otherwise into the first. It returns the changes of each
// record, as [Read] finds them. If there is a change, there must be a record.
func Enter(records []*audit.Record, changes []Change) (entered [][]Change) {
	entered = make([][]Change, len(records))
	for i := range changes {
		at := placeOf(records, &changes[i])
		entered[at] = append(entered[at], changes[i])
	}
	for i, r := range records {
		r.Rows, r.Opens, r.UsesGrant = nil, 0, ""
		implied := isRound(r)
		for j := range entered[i] {
			c := &entered[i][j]
			write(r, c)
			implied = implied && !c.ofOwnExchange(r)
		}
		if implied {
			// The message belongs to an exchange whose row does not change.
			r.Rows = append(r.Rows, audit.RowChange{Table: Exchanges.Name()})
		}
	}
	return entered
}

// placeOf returns the record that states a change.
func placeOf(records []*audit.Record, c *Change) int {
	about := 0
	for i, r := range slices.Backward(records) {
		switch {
		case c.Table == CommitmentGrants && c.Add != 0 && isRound(r) && r.Side == audit.SideSender, c.ofOwnExchange(r) && isRound(r):
			return i
		case slices.Equal(c.def().own(r), c.Key):
			about = i
		}
	}
	return about
}

// isRound reports whether a record is of an allowed message of an exchange.
func isRound(r *audit.Record) bool {
	return r.ActionType == audit.ActionExchange && r.Event == "" && r.PolicyResult == audit.ResultAllow && r.ExchangeID != "" && r.AgentID != ""
}

func (c *Change) ofOwnExchange(r *audit.Record) bool {
	return c.Table == Exchanges && c.Key[0] == r.AgentID && c.Key[1] == r.ExchangeID
}

// The columns of an exchange that messages change.
const (
	columnRound   = 3
	columnExpires = 5
)

// opened returns the row of an exchange that a message opens.
func opened(r *audit.Record, expires string) Row {
	return Row{r.ConversationID, r.ExchangeType, r.Outcome, Int(r.Round), Int(r.MaxRounds), expires, "0"}
}

// nextRound returns the change of an exchange that a message continues.
func nextRound(r *audit.Record) Cell { return Cell{columnRound, Int(r.Round - 1), Int(r.Round)} }

// write writes a change into a record, in the shortest form that can be read back.
func write(r *audit.Record, c *Change) {
	if c.ofOwnExchange(r) && isRound(r) {
		switch {
		case len(c.Cells) == 1 && c.Cells[0] == nextRound(r):
			return
		case c.New != nil && !c.Stated && number(c.New[columnExpires]) > 0 && slices.Equal(c.New, opened(r, c.New[columnExpires])):
			r.Opens = int(number(c.New[columnExpires]))
			return
		}
	}
	if c.Table == CommitmentGrants && c.Add == 1 && r.UsesGrant == "" {
		r.UsesGrant = c.Key[0]
		return
	}
	one := audit.RowChange{Table: c.Name(), Stated: c.Stated, Add: c.Add}
	if !slices.Equal(c.Key, c.def().own(r)) {
		one.Key = c.Key
	}
	one.Was, one.Now = c.columns(c.Gone), c.columns(c.New)
	for _, cell := range c.Cells {
		if one.Was == nil {
			one.Was, one.Now = make(map[string]any), make(map[string]any)
		}
		one.Was[c.Columns()[cell.Column]], one.Now[c.Columns()[cell.Column]] = c.value(cell.Column, cell.Was), c.value(cell.Column, cell.Now)
	}
	r.Rows = append(r.Rows, one)
}

// columns returns a row in the form of records, nil for none.
func (t Table) columns(r Row) map[string]any {
	if r == nil {
		return nil
	}
	m := make(map[string]any, len(r))
	for i, text := range r {
		m[t.Columns()[i]] = t.value(i, text)
	}
	return m
}

func (t Table) value(column int, text string) any {
	if t.def().numbers[column] {
		return number(text)
	}
	return text
}

// text returns a column of a record as text.
func (t Table) text(column int, value any) (string, bool) {
	if t.def().numbers[column] {
		switch n := value.(type) {
		case float64:
			return strconv.FormatFloat(n, 'f', -1, 64), true
		case int64:
			return Int(n), true
		}
		return "", false
	}
	s, ok := value.(string)
	return s, ok
}

// row reads a whole row.
func (t Table) row(columns map[string]any) (Row, bool) {
	names := t.Columns()
	if n := t.def().former; n > 0 && len(columns) == n {
		names = names[:n]
	}
	r := make(Row, len(names))
	for i, name := range names {
		var ok bool
		if r[i], ok = t.text(i, columns[name]); !ok {
			return nil, false
		}
	}
	return r, len(columns) == len(names)
}

// Said is a record's statement about rows.
type Said struct {
	Seq  uint64
	Time time.Time
	// Changes are the record's changes.
	Changes []Change
	// State, if Counted is set, holds the digests of the open rows after all records before this
	// one.
	Counted bool
	State   []audit.TableState
	// Form, if Counted is set, is the form of the counted rows, and Restored the id of the newest
	// state_restored record, "" for none. Newest are the values that must never go back, by name.
	Form     int
	Restored string
	Newest   map[string]string
	// Adopts is set on the record that adopts an earlier version's rows. The records before it do
	// not count, and all rows are stated in it and after it, up to the next checkpoint.
	Adopts bool
	// Retired, if not 0, is the last record that retention removed. Earlier records repeat what
	// the removed ones stated about open rows.
	Retired uint64
}

// EventAdopted is the event of the record with which the log adopts rows that it has no statements
// about: an earlier version's, or rows that the operator accepts as they are. EventKept is the
// event of a record that states rows: more of the same, or rows whose record retention removes.
const (
	EventAdopted = "state_adopted"
	EventKept    = "state_kept"
)

// line is the part of a record's line that is read.
type line struct {
	Seq            uint64             `json:"seq"`
	Time           time.Time          `json:"time"`
	ActionType     string             `json:"actionType"`
	Event          string             `json:"event"`
	AgentID        string             `json:"agentId"`
	ExchangeID     string             `json:"exchangeId"`
	ConversationID string             `json:"conversationId"`
	Round          int                `json:"round"`
	MaxRounds      int                `json:"maxRounds"`
	ExchangeType   string             `json:"exchangeType"`
	PolicyResult   string             `json:"policyResult"`
	Outcome        string             `json:"outcome"`
	ApprovalID     string             `json:"approvalId"`
	TaskID         string             `json:"taskId"`
	Rows           []audit.RowChange  `json:"rows"`
	Opens          int                `json:"opens"`
	UsesGrant      string             `json:"usesGrant"`
	State          []audit.TableState `json:"state"`
	Details        jsontext.Value     `json:"details"`
}

// The parts of a line that show a statement about rows. A quote within a text is written with a
// backslash, so none of these can be part of one.
const (
	saysRound    = `"policyResult":"allow"`
	saysRows     = `,"rows":[`
	saysGrant    = `,"usesGrant":"`
	ofCheckpoint = `"actionType":"` + audit.ActionCheckpoint + `"`
	ofExchanges  = `"actionType":"` + audit.ActionExchange + `"`
)

// Silent reports whether a line says nothing of rows, without reading it.
func Silent(text []byte) bool {
	head := text[:min(len(text), 192)]
	has := func(text []byte, what string) bool { return bytes.Contains(text, []byte(what)) }
	says := has(head, ofExchanges) && has(text, saysRound) || has(text, saysRows) || has(text, saysGrant) || has(head, ofCheckpoint)
	return !says
}

// Read returns the statements about rows in a record's line. An error names a part that no daemon
// writes.
func Read(text []byte) (Said, error) {
	if s, ok := readRound(text); ok {
		return s, nil
	}
	return readLine(text)
}

// heard is [Read] for a line that is not [Silent]. Most lines are of messages: those are read
// without a look whether they are silent.
func heard(text []byte) (s Said, silent bool, err error) {
	s, ok := readRound(text)
	switch {
	case ok && len(s.Changes) > 0:
		return s, false, nil
	case Silent(text):
		return s, true, nil
	case ok:
		return s, false, nil
	}
	s, err = readLine(text)
	return s, false, err
}

// readLine reads a line of any form.
func readLine(text []byte) (Said, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Said{}, fmt.Errorf("not an audit record: %w", err)
	}
	s, err := l.said()
	if err != nil || l.ActionType != audit.ActionCheckpoint {
		return s, err
	}
	var details struct {
		Note     string `json:"note"`
		Form     int    `json:"rowForm"`
		Restored string `json:"restored"`

		Newest map[string]string `json:"newest"`
	}
	if len(l.Details) > 0 {
		err = json.Unmarshal(l.Details, &details)
	}
	if err != nil {
		return s, fmt.Errorf("not an audit record: %w", err)
	}
	s.Restored, s.Newest = details.Restored, details.Newest
	if s.Form = max(details.Form, 1); s.Counted && s.Form > Form {
		return s, fmt.Errorf("it counts rows in form %d, which this version does not know", s.Form)
	}
	if l.Event != audit.EventRetired {
		return s, nil
	}
	t, err := audit.OpenTombstone(details.Note)
	if !errors.Is(err, audit.ErrUnsigned) {
		return s, err
	}
	s.Retired = t.Head.Seq
	return s, nil
}

// round has the members of the line of a message that are read, each as it is in the line.
type round struct {
	seq, time, kind, policyResult, agent, exchange, conversation, round, maxRounds, exchangeType, outcome, opens []byte
}

// readRound reads the line of a message without other statements about rows: these are most of a
// log, and the JSON library takes several times as long. It reports whether it could: the line must
// have the form of [audit.Encode], and the needed texts no escapes.
func readRound(text []byte) (s Said, ok bool) {
	m, ok := membersOf(text)
	if !ok || string(m.kind) != audit.ActionExchange {
		return s, false
	}
	var err error
	s.Seq = uint64(number(string(m.seq)))
	if s.Time, err = time.Parse(time.RFC3339, string(m.time)); err != nil || s.Seq == 0 {
		return s, false
	}
	if string(m.policyResult) != audit.ResultAllow || len(m.agent) == 0 || len(m.exchange) == 0 {
		return s, true
	}
	c := Change{Table: Exchanges, Key: []string{string(m.agent), string(m.exchange)}}
	r := audit.Record{Round: int(number(string(m.round))), MaxRounds: int(number(string(m.maxRounds)))}
	if opens := number(string(m.opens)); opens > 0 {
		r.ConversationID, r.ExchangeType, r.Outcome = string(m.conversation), string(m.exchangeType), string(m.outcome)
		c.New = opened(&r, Int(opens))
	} else {
		c.Cells = []Cell{nextRound(&r)}
	}
	s.Changes = []Change{c}
	return s, true
}

// membersOf finds the members of a message's line. It leaves the line to the JSON library if a
// member makes another statement, comes twice, or has an escape in its text.
func membersOf(text []byte) (m round, ok bool) {
	for len(text) > 0 && text[0] != '}' {
		name, value, rest, ok := cutMember(text)
		if !ok {
			return m, false
		}
		text = rest
		var is *[]byte
		switch string(name) {
		case "seq":
			is = &m.seq
		case "time":
			is = &m.time
		case "actionType":
			is = &m.kind
		case "agentId":
			is = &m.agent
		case "exchangeId":
			is = &m.exchange
		case "conversationId":
			is = &m.conversation
		case "round":
			is = &m.round
		case "maxRounds":
			is = &m.maxRounds
		case "exchangeType":
			is = &m.exchangeType
		case "policyResult":
			is = &m.policyResult
		case "outcome":
			is = &m.outcome
		case "opens":
			is = &m.opens
		case "event", "rows", "usesGrant":
			return m, false
		default:
			continue
		}
		if *is != nil || bytes.IndexByte(value, '\\') >= 0 {
			return m, false
		}
		if *is = value; is == &m.kind && string(value) != audit.ActionExchange {
			// No message.
			return m, false
		}
	}
	return m, string(text) == "}"
}

// cutMember cuts the first member off an object: an opening brace or a comma, the name, a colon,
// and the value, without spaces. The value of a text is without its quotes.
func cutMember(text []byte) (name, value, rest []byte, ok bool) {
	if len(text) < 2 || text[0] != '{' && text[0] != ',' {
		return nil, nil, nil, false
	}
	name, rest, ok = cutText(text[1:])
	if !ok || len(rest) < 2 || rest[0] != ':' {
		return nil, nil, nil, false
	}
	if rest = rest[1:]; rest[0] == '"' {
		value, rest, ok = cutText(rest)
		return name, value, rest, ok
	}
	// A number, a word, or a value with parts, up to the comma or brace behind it.
	depth, at := 0, 0
	for at < len(rest) && (depth > 0 || rest[at] != ',' && rest[at] != '}') {
		switch rest[at] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			_, behind, ok := cutText(rest[at:])
			if !ok {
				return nil, nil, nil, false
			}
			at = len(rest) - len(behind)
			continue
		}
		at++
	}
	return name, rest[:at], rest[at:], true
}

// cutText cuts a text in quotes off the begin of others.
func cutText(text []byte) (inside, rest []byte, ok bool) {
	if text[0] != '"' {
		return nil, nil, false
	}
	for at := 1; ; {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return nil, nil, false
		}
		at += n
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if at++; escapes%2 == 0 {
			return text[1 : at-1], text[at:], true
		}
	}
}

func (l *line) said() (s Said, err error) {
	s.Seq, s.Time = l.Seq, l.Time
	if l.ActionType == audit.ActionCheckpoint {
		s.Counted, s.State = l.Event == audit.EventSigned && l.State != nil, l.State
	}
	r := &audit.Record{
		ActionType: l.ActionType, Event: l.Event, AgentID: l.AgentID, ExchangeID: l.ExchangeID, ConversationID: l.ConversationID, Round: l.Round, MaxRounds: l.MaxRounds,
		ExchangeType: l.ExchangeType, PolicyResult: l.PolicyResult, Outcome: l.Outcome, ApprovalID: l.ApprovalID, TaskID: l.TaskID,
	}
	implied := isRound(r)
	for i := range l.Rows {
		one := &l.Rows[i]
		c, err := changeOf(r, one)
		if err != nil {
			return s, err
		}
		implied = implied && !c.ofOwnExchange(r)
		if c.New != nil || c.Gone != nil || c.Cells != nil || c.Add != 0 {
			s.Changes = append(s.Changes, c)
		}
	}
	if implied {
		c := Change{Table: Exchanges, Key: []string{r.AgentID, r.ExchangeID}}
		if l.Opens > 0 {
			c.New = opened(r, Int(l.Opens))
		} else {
			c.Cells = []Cell{nextRound(r)}
		}
		s.Changes = append(s.Changes, c)
	}
	if l.UsesGrant != "" {
		s.Changes = append(s.Changes, Change{Table: CommitmentGrants, Key: []string{l.UsesGrant}, Add: 1})
	}
	s.Adopts = l.ActionType == audit.ActionSecurity && l.Event == EventAdopted
	return s, nil
}

// changeOf reads an entry of the member rows.
func changeOf(r *audit.Record, one *audit.RowChange) (Change, error) {
	t, known := Of(one.Table)
	if !known {
		return Change{}, fmt.Errorf("it speaks of rows of a table %q, which this version does not know", one.Table)
	}
	c := Change{Table: t, Key: one.Key, Stated: one.Stated, Add: one.Add}
	if c.Key == nil {
		c.Key = t.def().own(r)
	}
	ok := len(c.Key) == len(t.def().key) && (one.Add == 0 || t.def().counter >= 0)
	switch {
	case one.Was != nil && one.Now != nil:
		for i, name := range t.Columns() {
			was, before := one.Was[name]
			now, after := one.Now[name]
			if !before && !after {
				continue
			}
			cell := Cell{Column: i}
			var good [2]bool
			cell.Was, good[0] = t.text(i, was)
			cell.Now, good[1] = t.text(i, now)
			ok = ok && good == [2]bool{true, true}
			c.Cells = append(c.Cells, cell)
		}
		ok = ok && len(c.Cells) == len(one.Was) && len(c.Cells) == len(one.Now) && len(c.Cells) > 0
	case one.Now != nil:
		var good bool
		c.New, good = t.row(one.Now)
		ok = ok && good
	case one.Was != nil:
		var good bool
		c.Gone, good = t.row(one.Was)
		ok = ok && good
	}
	if !ok {
		return Change{}, fmt.Errorf("what it says of a row of %s is not whole", t.Name())
	}
	return c, nil
}
