package index

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// The log is indexed in shards, each with full-text tables of its own. Retention can therefore drop
// whole tables, and a damaged shard is made again alone. A shard states the number of its records
// in ranges.
const (
	rangeRecords = 1 << 12
	shardRanges  = 1 << 4
	shardRecords = shardRanges * rangeRecords
)

// rangeOf and shardOf return the range and the shard of a record, and firstOf the first record of a
// shard.
func rangeOf(seq uint64) uint64   { return (seq - 1) / rangeRecords }
func shardOf(seq uint64) uint64   { return (seq - 1) / shardRecords }
func firstOf(shard uint64) uint64 { return shard*shardRecords + 1 }

// token is the search term for a value of a member: 40 bits of an FNV-1a hash. If two values share
// one, it only costs a look at a line, since every line is checked against the filter before it is
// returned.
func token(m *audit.Member, value string) string {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, s := range [...]string{m.Name, "\x00", value} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	const digits = "0123456789abcdefghijklmnopqrstuv"
	var b [8]byte
	for i := range b {
		b[i] = digits[h>>(64-5-5*i)&31]
	}
	return string(b[:])
}

// Further tokens of a record: its range, the number of its reason in the shard, and longReason if
// the reason is not stored, so that it may contain any text. None of them looks like token's eight
// digits.
func rangeToken(number uint64) string { return "w" + strconv.FormatUint(number, 36) }
func reasonToken(id int64) string     { return "x" + strconv.FormatInt(id, 36) }

const (
	longReason    = "y"
	longestReason = 4096
)

// searched returns a reason, or a text to find in reasons, in the form of the table of reasons.
// SQLite ends a text at a zero byte.
func searched(reason string) string {
	return strings.ReplaceAll(audit.Fold(reason), "\x00", "\uFFFD")
}

// shard is the state in memory of the shard that is written. After an error it is discarded and
// read back from the file.
type shard struct {
	conn   *sqlite.Conn
	number uint64
	// terms and reasons are the statements that insert into its tables.
	terms, reasonTexts *sqlite.Stmt
	subjects           map[audit.Subject]int
	// reasons are the numbers of reasons by their hashes. A reason that is not in the map any more
	// gets another number.
	reasons  map[uint64]int64
	seed     maphash.Seed
	lastText int64
	// cur is the range in progress.
	cur span
}

// span is a range of records.
type span struct {
	number, records, last uint64
	hash                  audit.Hash
	counts
}

// openShard reads back a shard, or makes its tables.
func openShard(conn *sqlite.Conn, number uint64) (*shard, error) {
	s := &shard{conn: conn, number: number, subjects: make(map[audit.Subject]int), reasons: make(map[uint64]int64), seed: maphash.MakeSeed()}
	err := sqlitex.ExecuteScript(conn, fmt.Sprintf(`
INSERT OR IGNORE INTO shards VALUES (%[1]d);
CREATE VIRTUAL TABLE IF NOT EXISTS terms_%[1]d USING fts5(terms, content='', columnsize=0, detail=none, tokenize='ascii');
CREATE VIRTUAL TABLE IF NOT EXISTS reasons_%[1]d USING fts5(reason, columnsize=0, detail=none, tokenize='trigram case_sensitive 1');`, number), nil)
	if err != nil {
		return nil, err
	}
	if s.terms, err = conn.Prepare(fmt.Sprintf(`INSERT INTO terms_%d (rowid, terms) VALUES (?, ?)`, number)); err != nil {
		return nil, err
	}
	if s.reasonTexts, err = conn.Prepare(fmt.Sprintf(`INSERT INTO reasons_%d (rowid, reason) VALUES (?, ?)`, number)); err != nil {
		return nil, err
	}
	if s.lastText, err = queryInt(conn, fmt.Sprintf(`SELECT coalesce(max(rowid), 0) FROM reasons_%d`, number)); err != nil {
		return nil, err
	}
	list, err := subjectsOf(conn, number)
	if err != nil {
		return nil, err
	}
	for i, subject := range list {
		s.subjects[subject] = i
	}
	err = sqlitex.Execute(conn, `SELECT range, records, last, hash, counts FROM ranges WHERE range BETWEEN ? AND ? ORDER BY range DESC LIMIT 1`, &sqlitex.ExecOptions{
		Args: []any{int64(number * shardRanges), int64(number*shardRanges + shardRanges - 1)},
		ResultFunc: func(stmt *sqlite.Stmt) (err error) {
			s.cur = span{number: uint64(stmt.ColumnInt64(0)), records: uint64(stmt.ColumnInt64(1)), last: uint64(stmt.ColumnInt64(2))}
			if n, err := hex.Decode(s.cur.hash[:], []byte(stmt.ColumnText(3))); err != nil || n != len(s.cur.hash) {
				return errDamaged
			}
			s.cur.counts, err = decodeCounts(columnBytes(stmt, 4), s.cur.records)
			return err
		},
	})
	return s, err
}

func columnBytes(stmt *sqlite.Stmt, col int) []byte {
	b := make([]byte, stmt.ColumnLen(col))
	return b[:stmt.ColumnBytes(col, b)]
}

// subjectsOf returns the subjects of a shard's counts, in their order.
func subjectsOf(conn *sqlite.Conn, shard uint64) (list []audit.Subject, err error) {
	err = sqlitex.Execute(conn, `SELECT agent, rule, code, result, about FROM subjects WHERE shard = ? ORDER BY number`, &sqlitex.ExecOptions{
		Args: []any{int64(shard)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			list = append(list, audit.Subject{Agent: stmt.ColumnText(0), Rule: stmt.ColumnText(1), Code: stmt.ColumnText(2), Result: stmt.ColumnText(3), About: stmt.ColumnText(4)})
			return nil
		},
	})
	return list, err
}

// add adds a line. A line that is no record has no search terms, and counts as one without a
// verdict.
func (s *shard) add(seq uint64, line []byte) error {
	if number := rangeOf(seq); number != s.cur.number || s.cur.records == 0 {
		if err := s.flush(); err != nil {
			return err
		}
		s.cur = span{number: number}
	}
	e, err := audit.Parse(line)
	if err != nil {
		_, minute := s.cur.bounds()
		e = audit.Entry{Time: time.Unix(minute*60, 0)}
	}
	subject, err := s.subject(audit.SubjectOf(&e.Record))
	if err != nil {
		return err
	}
	s.cur.records++
	s.cur.last, s.cur.hash = seq, e.Hash
	s.cur.count(e.Time.Unix()/60, e.Verdict(), subject)
	terms := []string{rangeToken(s.cur.number)}
	list := audit.Filters()
	for i := range list {
		if value := *list[i].Of(&e.Record); value != "" {
			terms = append(terms, token(&list[i], value))
		}
	}
	if e.PolicyReason != "" {
		reason, err := s.reason(e.PolicyReason)
		if err != nil {
			return err
		}
		terms = append(terms, reason)
	}
	return insert(s.terms, int64(seq), strings.Join(terms, " "))
}

func insert(stmt *sqlite.Stmt, id int64, text string) error {
	stmt.BindInt64(1, id)
	stmt.BindText(2, text)
	_, err := stmt.Step()
	return errors.Join(err, stmt.Reset())
}

// reason returns the token of a reason, and stores a new one.
func (s *shard) reason(text string) (string, error) {
	if len(text) > longestReason {
		return longReason, nil
	}
	key := maphash.String(s.seed, text)
	id, known := s.reasons[key]
	if !known {
		s.lastText++
		id = s.lastText
		s.reasons[key] = id
		if err := insert(s.reasonTexts, id, searched(text)); err != nil {
			return "", err
		}
	}
	return reasonToken(id), nil
}

func (s *shard) subject(of audit.Subject) (int, error) {
	number, known := s.subjects[of]
	if known {
		return number, nil
	}
	number = len(s.subjects)
	s.subjects[of] = number
	return number, sqlitex.Execute(s.conn, `INSERT INTO subjects VALUES (?, ?, ?, ?, ?, ?, ?)`, &sqlitex.ExecOptions{
		Args: []any{int64(s.number), number, of.Agent, of.Rule, of.Code, of.Result, of.About},
	})
}

// flush writes the data of the range in progress.
func (s *shard) flush() error {
	if s.cur.records == 0 {
		return nil
	}
	first, last := s.cur.bounds()
	return sqlitex.Execute(s.conn, `INSERT OR REPLACE INTO ranges VALUES (?, ?, ?, ?, ?, ?, ?)`, &sqlitex.ExecOptions{
		Args: []any{int64(s.cur.number), int64(s.cur.records), int64(s.cur.last), s.cur.hash.String(), first, last, s.cur.encode()},
	})
}

// dropShard removes a shard from the file.
func dropShard(conn *sqlite.Conn, number uint64) error {
	return sqlitex.ExecuteScript(conn, fmt.Sprintf(`
DROP TABLE IF EXISTS terms_%[1]d;
DROP TABLE IF EXISTS reasons_%[1]d;
DELETE FROM ranges WHERE range BETWEEN %[1]d * %[2]d AND %[1]d * %[2]d + %[2]d - 1;
DELETE FROM subjects WHERE shard = %[1]d;
DELETE FROM shards WHERE shard = %[1]d;`, number, shardRanges), nil)
}

// whole reports whether a shard has its records from one to another, both according to its ranges
// and according to its tables.
func whole(conn *sqlite.Conn, number, first, last uint64) (bool, error) {
	stated := make(map[uint64]uint64)
	err := sqlitex.Execute(conn, `SELECT range, records FROM ranges JOIN shards WHERE shard = ?2 AND range BETWEEN ?1 * ?2 AND ?1 * ?2 + ?1 - 1`, &sqlitex.ExecOptions{
		Args: []any{shardRanges, int64(number)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			stated[uint64(stmt.ColumnInt64(0))] = uint64(stmt.ColumnInt64(1))
			return nil
		},
	})
	for r := rangeOf(first); r <= rangeOf(last) && err == nil; r++ {
		if stated[r] < min(last, (r+1)*rangeRecords)-max(first, r*rangeRecords+1)+1 {
			return false, nil
		}
		var n int64
		n, err = queryInt(conn, fmt.Sprintf(`SELECT count(*) FROM terms_%d('%s')`, number, rangeToken(r)))
		if err == nil && uint64(n) != stated[r] {
			return false, nil
		}
	}
	return err == nil, err
}
