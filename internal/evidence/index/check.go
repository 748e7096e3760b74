package index

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/audit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Path returns the path of a database's index.
func Path(database string) string {
	return strings.TrimSuffix(database, filepath.Ext(database)) + ".index.db"
}

// Check compares an index with its log, line by line, whether or not a daemon uses it: the search
// terms of records, and the counts. The caller adds every line in order, and then calls
// [Check.Finish].
type Check struct {
	path string
	conn *sqlite.Conn
	// last is the last indexed record, and hash its hash.
	last uint64
	hash string
	// same is set if the log has that record. first is the first record of the log, and fault the
	// first fault.
	same  bool
	first uint64
	fault *audit.Fault

	shard  uint64
	ranges map[uint64]*spanCheck
	terms  terms
}

// spanCheck is a range according to the lines.
type spanCheck struct {
	span
	subjects map[audit.Subject]int
}

// terms sums the search terms of records, in any order.
type terms struct{ n, sum uint64 }

func (t *terms) add(term string, seq uint64) {
	h := uint64(14695981039346656037)
	for i := range len(term) {
		h = (h ^ uint64(term[i])) * 1099511628211
	}
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, seq*0xbf58476d1ce4e5b9+1)
	t.n, t.sum = t.n+1, t.sum+(hi^lo)
}

// OpenCheck opens the index at a path. It returns nil if there is none that a daemon would use:
// then the daemon answers from the log.
func OpenCheck(path string) (*Check, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the audit index: %w", err)
	}
	c := &Check{path: path, ranges: make(map[uint64]*spanCheck)}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, nil
	}
	mode := "ro"
	if _, err := os.Stat(path + "-wal"); err != nil {
		mode += "&immutable=1" // no process has it open
	}
	name := "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) + "?mode=" + mode
	if c.conn, err = openConn(name, sqlite.OpenReadOnly|sqlite.OpenURI); err != nil {
		return nil, err
	}
	usable := false
	x := file{writer: c.conn}
	err = sqlitex.Execute(c.conn, "BEGIN", nil)
	if err == nil {
		var owner, version int64
		if owner, err = queryInt(c.conn, "PRAGMA application_id"); err == nil {
			version, err = queryInt(c.conn, "PRAGMA user_version")
		}
		usable = owner == applicationID && version == form()
	}
	if err == nil && usable {
		c.last, c.hash, err = x.end()
	}
	if err != nil {
		// A daemon would find the damage, and make another index.
		c.fault = &audit.Fault{Problem: fmt.Sprintf("the index %s cannot be read: %v; remove it, and the daemon makes it again", path, err)}
		c.last, c.same = 1, true
		return c, nil
	}
	if !usable || c.last == 0 {
		return nil, c.conn.Close()
	}
	return c, nil
}

// Add adds the next line.
func (c *Check) Add(seq uint64, line []byte) error {
	if seq == c.last && c.hash != "" {
		head, err := audit.HeadOf(line)
		c.same = err == nil && head.Hash.String() == c.hash
	}
	if seq > c.last || c.fault != nil {
		return nil
	}
	if c.first == 0 {
		c.first, c.shard = seq, shardOf(seq)
	}
	if shardOf(seq) != c.shard {
		if err := c.compare(); err != nil {
			return err
		}
		c.shard = shardOf(seq)
	}
	e, err := audit.Parse(line)
	if err != nil {
		return fmt.Errorf("cannot compare audit record %d with the index: %w", seq, err)
	}
	r := c.ranges[rangeOf(seq)]
	if r == nil {
		r = &spanCheck{span: span{number: rangeOf(seq)}, subjects: make(map[audit.Subject]int)}
		c.ranges[r.number] = r
	}
	r.records++
	r.last, r.hash = seq, e.Hash
	r.count(e.Time.Unix()/60, e.Verdict(), 0)
	r.subjects[audit.SubjectOf(&e.Record)]++
	found := []string{rangeToken(r.number)}
	list := audit.Filters()
	for i := range list {
		if value := *list[i].Of(&e.Record); value != "" {
			found = append(found, token(&list[i], value))
		}
	}
	switch {
	case e.PolicyReason == "":
	case len(e.PolicyReason) > longestReason:
		found = append(found, longReason)
	default:
		found = append(found, reasonTerm(searched(e.PolicyReason)))
	}
	for i, term := range found {
		if !slices.Contains(found[:i], term) {
			c.terms.add(term, seq)
		}
	}
	return nil
}

// reasonTerm is the term for a reason, whatever its number in the index.
func reasonTerm(text string) string { return "reason " + text }

// errOther ends a comparison with the first difference.
var errOther = errors.New("the index differs")

// compare compares a shard of the index with its lines.
func (c *Check) compare() error {
	retiring, err := c.retiring()
	if err == nil && !retiring {
		err = c.compareRanges()
	}
	if err == nil && !retiring {
		err = c.compareTerms()
	}
	if errors.Is(err, errOther) || errors.Is(err, errDamaged) || err != nil && sqlite.ErrCode(err) != sqlite.ResultOK {
		from, to := max(c.first, firstOf(c.shard)), min(c.last, firstOf(c.shard+1)-1)
		c.fault = &audit.Fault{Problem: fmt.Sprintf("the index %s is not of the records from %d to %d: it lacks some or differs from them; remove it, and the daemon makes it again", c.path, from, to)}
		err = nil
	}
	clear(c.ranges)
	c.terms = terms{}
	return err
}

// retiring reports whether the shard still has records that retention has just removed from the
// log: it is made again without them.
func (c *Check) retiring() (bool, error) {
	if c.shard != shardOf(c.first) || c.first == firstOf(c.shard) {
		return false, nil
	}
	first := rangeOf(firstOf(c.shard))
	n, err := queryInt(c.conn, fmt.Sprintf(`SELECT coalesce(sum(records), 0) FROM ranges WHERE range BETWEEN %d AND %d`, first, first+shardRanges-1))
	return uint64(n) > min(c.last, firstOf(c.shard+1)-1)-c.first+1, err
}

func (c *Check) compareRanges() error {
	list, err := subjectsOf(c.conn, c.shard)
	if err != nil {
		return err
	}
	seen := 0
	err = sqlitex.Execute(c.conn, `SELECT range, records, last, hash, first_minute, last_minute, counts FROM ranges WHERE range BETWEEN ? AND ?`, &sqlitex.ExecOptions{
		Args: []any{int64(c.shard * shardRanges), int64(c.shard*shardRanges + shardRanges - 1)},
		ResultFunc: func(stmt *sqlite.Stmt) error {
			want := c.ranges[uint64(stmt.ColumnInt64(0))]
			if want == nil {
				return errOther
			}
			seen++
			got, err := decodeCounts(columnBytes(stmt, 6), uint64(stmt.ColumnInt64(1)))
			if err != nil {
				return err
			}
			first, last := want.bounds()
			if want.records != uint64(stmt.ColumnInt64(1)) || want.last != uint64(stmt.ColumnInt64(2)) || want.hash.String() != stmt.ColumnText(3) ||
				first != stmt.ColumnInt64(4) || last != stmt.ColumnInt64(5) || !reflect.DeepEqual(got.minutes, want.minutes) {
				return errOther
			}
			subjects := make(map[audit.Subject]int)
			for i, n := range got.subjects {
				if n > 0 && i < len(list) {
					subjects[list[i]] += n
				}
			}
			if !reflect.DeepEqual(subjects, want.subjects) {
				return errOther
			}
			return nil
		},
	})
	if err == nil && seen != len(c.ranges) {
		err = errOther
	}
	return err
}

func (c *Check) compareTerms() error {
	reasons := make(map[string]string)
	err := sqlitex.Execute(c.conn, fmt.Sprintf(`SELECT rowid, reason FROM reasons_%d`, c.shard), &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		reasons[reasonToken(stmt.ColumnInt64(0))] = reasonTerm(stmt.ColumnText(1))
		return nil
	}})
	if err != nil {
		return err
	}
	if err := sqlitex.ExecuteTransient(c.conn, fmt.Sprintf(`CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, terms_%d, instance)`, c.shard), nil); err != nil {
		return err
	}
	var got terms
	err = sqlitex.ExecuteTransient(c.conn, `SELECT term, doc FROM temp.instances`, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		term := stmt.ColumnText(0)
		if reason, ok := reasons[term]; ok {
			term = reason
		}
		got.add(term, uint64(stmt.ColumnInt64(1)))
		return nil
	}})
	if err == nil && got != c.terms {
		err = errOther
	}
	return errors.Join(err, sqlitex.ExecuteTransient(c.conn, `DROP TABLE temp.instances`, nil))
}

// Finish closes the index and returns its fault, an [*audit.Fault]. An index of another log, or of
// a longer one, has no fault, since no daemon uses it.
func (c *Check) Finish() error {
	var err error
	if c.fault == nil && len(c.ranges) > 0 {
		err = c.compare()
	}
	if err = errors.Join(err, c.conn.Close()); err != nil {
		return fmt.Errorf("cannot compare the audit index with the log: %w", err)
	}
	if c.fault != nil && c.same {
		return c.fault
	}
	return nil
}
