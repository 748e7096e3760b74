package db

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/openclawos/ocipd/internal/base/mutant"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// A sealed table has a column "seal": a keyed MAC over the table's name, the names of its columns
// and their values in the row, except counters. If somebody edits a row without the key, the daemon
// notices when it reads the row.
//
// There is one place for writing and one for reading. Only [Writer.Put], [Writer.Insert],
// [Writer.PutOver] and [Writer.Amend] write rows. Queries are written as for any table: on a
// connection with [Seals] the name of a sealed table stands for a view of it, which the writer
// cannot write to, and which fails with an [*AlteredError] at a row whose seal does not fit. A
// statement that names main.<table> bypasses that: only deletions and counts may, and queries of
// [Seals.Columns], which check each row with [Seals.Altered] and continue after an altered one.

// SealedTable names a table whose rows are sealed.
type SealedTable struct {
	Name string
	// Counters are number columns that may be written without the seal, which does not cover them.
	Counters []string
}

// sealBytes is the length of a seal: half of the MAC.
const sealBytes = sha256.Size / 2

// sealColumn is the name of the column that holds a row's seal.
const sealColumn = "seal"

// AlteredError means that a row is not as this daemon wrote it. The row was not used.
type AlteredError struct {
	Table string
	// Row distinguishes the row within its table: 16 hexadecimal digits of a digest of its primary
	// key. The key itself is text that an attacker may have put there.
	Row string
	// Key is the current primary key. It may be shown to this machine's operator, who looks for the
	// row, and to nobody else.
	Key string
}

func (e *AlteredError) Error() string {
	return fmt.Sprintf("row %s of the table %s was changed by somebody else than the daemon, and is not used", e.Row, e.Table)
}

// Seals makes and checks the seals of a database's rows.
type Seals struct {
	tables map[string]*sealedTable
	order  []*sealedTable
	// sealers is a pool for callers without their own.
	sealers sync.Pool
}

// sealedTable holds the statements of a table and the form of its seals.
type sealedTable struct {
	name string
	// form is the beginning of the sealed text of each row.
	form    []byte
	columns []sealedColumn
	// covered lists the places of the columns that the seal covers, key those of the primary key.
	covered, key []int

	put, insert string
	// over are the statements of [Writer.PutOver], by the column.
	over map[string]string
}

type sealedColumn struct {
	name string
	// kind is how the seal encodes a value of the column, see [sealer.value].
	kind byte
	// counter is set for a column that the seal does not cover.
	counter bool
}

// The kinds of values in a seal.
const (
	kindNull  = 'n'
	kindInt   = 'i'
	kindFloat = 'f'
	kindText  = 't'
	kindBlob  = 'b'
)

// NewSeals reads the columns of the sealed tables of a migrated database. The key has 32 bytes.
// Earlier is set for older seals, which did not cover the names of columns.
func NewSeals(conn *sqlite.Conn, key []byte, tables []SealedTable, earlier bool) (*Seals, error) {
	s := &Seals{tables: make(map[string]*sealedTable, len(tables))}
	s.sealers.New = func() any { return &sealer{mac: hmac.New(sha256.New, key), buffer: make([]byte, 0, 2048)} }
	for _, named := range tables {
		t, err := readTable(conn, named)
		if err != nil {
			return nil, err
		}
		t.form = append([]byte(t.name), 0)
		for _, place := range t.covered {
			if !earlier {
				t.form = append(append(t.form, t.columns[place].name...), 0)
			}
		}
		s.tables[t.name] = t
		s.order = append(s.order, t)
	}
	return s, nil
}

func readTable(conn *sqlite.Conn, named SealedTable) (*sealedTable, error) {
	t := &sealedTable{name: named.Name, over: make(map[string]string)}
	places, sealed := make(map[int]int), false
	err := sqlitex.Execute(conn, `SELECT name, type, pk FROM pragma_table_xinfo(?) ORDER BY cid`, &sqlitex.ExecOptions{Args: []any{named.Name}, ResultFunc: func(stmt *sqlite.Stmt) error {
		name := stmt.ColumnText(0)
		if name == sealColumn {
			sealed = true
			return nil
		}
		c := sealedColumn{name: name, counter: slices.Contains(named.Counters, name)}
		switch stmt.ColumnText(1) {
		case "TEXT":
			c.kind = kindText
		case "BLOB":
			c.kind = kindBlob
		case "INTEGER":
			c.kind = kindInt
		default:
			return fmt.Errorf("column %s has the type %q", name, stmt.ColumnText(1))
		}
		if c.counter && c.kind != kindInt {
			return fmt.Errorf("column %s can hold text, so it cannot be left out of the seal", name)
		}
		if pk := stmt.ColumnInt(2); pk > 0 {
			places[pk] = len(t.columns)
		}
		if !c.counter {
			t.covered = append(t.covered, len(t.columns))
		}
		t.columns = append(t.columns, c)
		return nil
	}})
	for pk := range len(places) {
		t.key = append(t.key, places[pk+1])
	}
	if err == nil && (!sealed || len(t.key) == 0) {
		err = errors.New("it has no seals")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the table %s: %w", named.Name, err)
	}
	t.insert = `INSERT INTO main.` + t.name + ` (` + t.names() + `, seal) VALUES (` + t.values() + `, ?)`
	set := []string{"seal = excluded.seal"}
	for place, c := range t.columns {
		if !slices.Contains(t.key, place) {
			set = append(set, c.name+" = excluded."+c.name)
		}
	}
	t.put = t.insert + ` ON CONFLICT (` + t.list(t.key) + `) DO UPDATE SET ` + strings.Join(set, ", ")
	return t, nil
}

// list joins the names of some columns.
func (t *sealedTable) list(places []int) string {
	names := make([]string, len(places))
	for i, place := range places {
		names[i] = t.columns[place].name
	}
	return strings.Join(names, ", ")
}

func (t *sealedTable) all() []int {
	places := make([]int, len(t.columns))
	for i := range places {
		places[i] = i
	}
	return places
}

func (t *sealedTable) names() string { return t.list(t.all()) }

func (t *sealedTable) values() string {
	parts := make([]string, len(t.columns))
	for i := range t.columns {
		parts[i] = t.columns[i].placeholder()
	}
	return strings.Join(parts, ", ")
}

// placeholder returns a parameter. Long texts are bound as blobs: see [Bytes].
func (c *sealedColumn) placeholder() string {
	if c.kind == kindText {
		return `CAST(? AS TEXT)`
	}
	return `?`
}

// sealer makes seals. One goroutine at a time uses it.
type sealer struct {
	mac    hash.Hash
	buffer []byte
}

func (s *Seals) sealer() *sealer { return s.sealers.Get().(*sealer) }

// keptSealBuffer bounds the buffer that is kept for the next row, in bytes.
const keptSealBuffer = 64 << 10

// begin starts the sealed text: the names of the table and of the covered columns, followed by the
// kind, length and bytes of each value.
func (s *sealer) begin(form []byte) {
	if cap(s.buffer) > keptSealBuffer {
		s.buffer = make([]byte, 0, 2048)
	}
	s.buffer = append(s.buffer[:0], form...)
}

func (s *sealer) length(kind byte, n int) {
	s.buffer = binary.BigEndian.AppendUint64(append(s.buffer, kind), uint64(n))
}

func (s *sealer) text(kind byte, text string) {
	s.length(kind, len(text))
	s.buffer = append(s.buffer, text...)
}

// written adds a value that is to be written.
func (s *sealer) written(c *sealedColumn, v *Value) {
	switch v.kind {
	case sqlite.TypeText:
		s.text(c.kind, v.text)
	case sqlite.TypeBlob:
		s.length(c.kind, len(v.bytes))
		s.buffer = append(s.buffer, v.bytes...)
	case sqlite.TypeInteger:
		s.length(kindInt, int(v.n))
	default:
		s.length(kindNull, 0)
	}
}

// read adds a value as SQLite has it.
func (s *sealer) read(v sqlite.Value) {
	switch v.Type() {
	case sqlite.TypeText:
		s.text(kindText, v.Text())
	case sqlite.TypeBlob:
		s.text(kindBlob, string(v.Blob()))
	case sqlite.TypeInteger:
		s.length(kindInt, int(v.Int64()))
	case sqlite.TypeFloat:
		s.text(kindFloat, v.Text())
	default:
		s.length(kindNull, 0)
	}
}

// column adds the value of a column of a row.
func (s *sealer) column(stmt *sqlite.Stmt, place int) {
	switch stmt.ColumnType(place) {
	case sqlite.TypeText, sqlite.TypeBlob:
		kind := byte(kindText)
		if stmt.ColumnType(place) == sqlite.TypeBlob {
			kind = kindBlob
		}
		n := stmt.ColumnLen(place)
		s.length(kind, n)
		at := len(s.buffer)
		s.buffer = slices.Grow(s.buffer, n)[:at+n]
		stmt.ColumnBytes(place, s.buffer[at:])
	case sqlite.TypeInteger:
		s.length(kindInt, int(stmt.ColumnInt64(place)))
	case sqlite.TypeFloat:
		s.text(kindFloat, stmt.ColumnText(place))
	default:
		s.length(kindNull, 0)
	}
}

// sum returns the seal, which is good until the next one is begun.
func (s *sealer) sum() []byte {
	s.mac.Reset()
	s.mac.Write(s.buffer)
	s.buffer = s.mac.Sum(s.buffer[:0])
	return s.buffer[:sealBytes]
}

// is reports whether a seal belongs to the row that was begun.
func (s *sealer) is(seal []byte) bool { return hmac.Equal(s.sum(), seal) || mutant.Off("row-seal") }

// of returns the seal of a row that is to be written.
func (s *sealer) of(t *sealedTable, values []Value) []byte {
	s.begin(t.form)
	for _, place := range t.covered {
		s.written(&t.columns[place], &values[place])
	}
	return s.sum()
}

// checker finds altered rows for one connection.
type checker struct {
	*sealer
	// found is the row that ended the current query, or nil.
	found *AlteredError
	// leave, if set, is called for each altered row, which the query then leaves out.
	leave func(*AlteredError)
}

// checkFunction is the name of the SQL function that notes an altered row. Its arguments are the
// number of the table, the seal, and the covered columns. It returns 1, or at an altered row the
// number at which abs() fails and so ends the query: the SQLite package drops the errors of
// functions. For a list it returns 0, which leaves the row out.
const checkFunction = "ocipd_unaltered"

// install creates the view of each sealed table on a connection. Functions that only temporary
// views call need no trust in the schema of the file.
func (s *Seals) install(conn *sqlite.Conn) (*checker, error) {
	c := &checker{sealer: s.sealer()}
	err := s.function(conn, checkFunction, func(t *sealedTable, values []sqlite.Value) (sqlite.Value, error) {
		if c.fits(t, values[0].Blob(), values[1:]) {
			return sqlite.IntegerValue(1), nil
		}
		if c.leave != nil {
			c.leave(t.altered(values[1:]))
			return sqlite.IntegerValue(0), nil
		}
		c.found = t.altered(values[1:])
		return sqlite.IntegerValue(math.MinInt64), nil
	})
	for no, t := range s.order {
		if err != nil {
			break
		}
		// SQLite evaluates a subquery of the row last. If it ran before the conditions of the
		// query, it would get their constants instead of the compared columns.
		err = sqlitex.ExecuteTransient(conn, fmt.Sprintf(`CREATE TEMP VIEW %s AS SELECT %s FROM main.%s WHERE abs((SELECT %s(%d, seal, %s)))`,
			t.name, t.names(), t.name, checkFunction, no, t.list(t.covered)), nil)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: cannot check its rows: %w", err)
	}
	return c, nil
}

func (c *checker) fits(t *sealedTable, seal []byte, covered []sqlite.Value) bool {
	c.begin(t.form)
	for _, v := range covered {
		c.read(v)
	}
	return c.is(seal)
}

// altered returns the error for a row with the given covered columns.
func (t *sealedTable) altered(covered []sqlite.Value) *AlteredError {
	var key []string
	for i, place := range t.covered {
		if slices.Contains(t.key, place) {
			key = append(key, covered[i].Text())
		}
	}
	return NewAltered(t.name, key...)
}

// Columns lists all columns of a sealed table in its order, followed by the seal, for a query that
// uses [Seals.Altered].
func (s *Seals) Columns(table string) string { return s.tables[table].names() + ", " + sealColumn }

// Altered returns an error if the current row of a query of [Seals.Columns] is not as the daemon
// wrote it.
func (s *Seals) Altered(table string, stmt *sqlite.Stmt) *AlteredError {
	t, c := s.tables[table], s.sealer()
	defer s.sealers.Put(c)
	c.begin(t.form)
	for _, place := range t.covered {
		c.column(stmt, place)
	}
	if c.is(ColumnBytes(stmt, len(t.columns))) {
		return nil
	}
	var key []string
	for _, place := range t.key {
		key = append(key, stmt.ColumnText(place))
	}
	return NewAltered(table, key...)
}

// NewAltered returns the error for an altered row with a primary key.
func NewAltered(table string, key ...string) *AlteredError {
	h := sha256.New()
	for _, text := range key {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text) // a hash never fails
	}
	return &AlteredError{Table: table, Row: hex.EncodeToString(h.Sum(nil)[:8]), Key: strings.Join(key, " ")}
}

// Mark returns a seal for something that is no row of a sealed table, with a number and bytes. Its
// kind must not be the name of such a table.
func (s *Seals) Mark(kind string, no uint64, of []byte) []byte {
	c := s.sealer()
	defer s.sealers.Put(c)
	c.begin(append([]byte(kind), 0))
	c.length(kindInt, int(no))
	c.text(kindBlob, string(of))
	return slices.Clone(c.sum())
}

// Marked reports whether a seal is that of [Seals.Mark].
func (s *Seals) Marked(kind string, no uint64, of, seal []byte) bool {
	return hmac.Equal(s.Mark(kind, no, of), seal)
}

// take returns the altered row that ended a query, in place of the error that SQLite made of it,
// and otherwise that error.
func (c *checker) take(err error) error {
	if c == nil || c.found == nil {
		return err
	}
	err, c.found = c.found, nil
	return err
}

// function registers a function on a connection. Its arguments are the number of a table, and
// values of one of its rows.
func (s *Seals) function(conn *sqlite.Conn, name string, of func(t *sealedTable, values []sqlite.Value) (sqlite.Value, error)) error {
	err := conn.CreateFunction(name, &sqlite.FunctionImpl{NArgs: -1, Deterministic: true, Scalar: func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		return of(s.order[args[0].Int()], args[1:])
	}})
	if err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	return nil
}

// SealAll seals every row as it is. Call it before [Writer.Seal].
func (s *Seals) SealAll(w *Writer) error {
	c := s.sealer()
	const function = "ocipd_seal"
	err := s.function(w.Conn, function, func(t *sealedTable, values []sqlite.Value) (sqlite.Value, error) {
		c.begin(t.form)
		for _, v := range values {
			c.read(v)
		}
		return sqlite.BlobValue(c.sum()), nil
	})
	for no, t := range s.order {
		if err != nil {
			return err
		}
		err = sqlitex.ExecuteTransient(w.Conn, fmt.Sprintf(`UPDATE main.%s SET seal = %s(%d, %s)`, t.name, function, no, t.list(t.covered)), nil)
		if err != nil {
			err = fmt.Errorf("cannot seal the rows of the store: %w", err)
		}
	}
	return err
}

// Check reads every sealed row on a connection, and returns the altered ones, up to a limit.
func (s *Seals) Check(ctx context.Context, conn *sqlite.Conn, limit int) (altered []*AlteredError, err error) {
	c := &checker{sealer: s.sealer()}
	const function = "ocipd_note_altered"
	err = s.function(conn, function, func(t *sealedTable, values []sqlite.Value) (sqlite.Value, error) {
		if c.fits(t, values[0].Blob(), values[1:]) {
			return sqlite.IntegerValue(0), nil
		}
		if len(altered) < limit {
			altered = append(altered, t.altered(values[1:]))
		}
		return sqlite.IntegerValue(1), nil
	})
	for no, t := range s.order {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		// An index may differ from its table, and this is about the table.
		err = sqlitex.ExecuteTransient(conn, fmt.Sprintf(`SELECT count(*) FROM main.%s NOT INDEXED WHERE %s(%d, seal, %s)`, t.name, function, no, t.list(t.covered)), nil)
		if err != nil {
			err = fmt.Errorf("cannot check the rows of the store: %w", err)
		}
	}
	return altered, err
}
