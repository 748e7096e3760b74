package db

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ErrNotFound means that there is no such row.
var ErrNotFound = errors.New("not found")

// Writer is the one connection that writes, with its statements. One goroutine at a
// time uses it.
type Writer struct {
	Conn *sqlite.Conn
	// stmts are the statements, by their texts.
	stmts map[string]*sqlite.Stmt
	// seals are those of [Writer.Seal]; nil in a database without seals
	seals   *Seals
	sealer  *sealer
	checker *checker
}

// Close closes the connection.
func (w *Writer) Close() error {
	if err := w.Conn.Close(); err != nil {
		return fmt.Errorf("cannot close the store: %w", err)
	}
	return nil
}

// Value is an argument of a statement. It is no interface, so that it needs no memory of its own.
type Value struct {
	kind  sqlite.ColumnType
	n     int64
	text  string
	bytes []byte
}

// Null is no value.
func Null() Value { return Value{kind: sqlite.TypeNull} }

// Text is a text.
func Text(s string) Value { return Value{kind: sqlite.TypeText, text: s} }

// Int is a number.
func Int(n int64) Value { return Value{kind: sqlite.TypeInteger, n: n} }

// Bool is 1 or 0.
func Bool(b bool) Value {
	if b {
		return Int(1)
	}
	return Int(0)
}

// Bytes is for blobs, and for long texts, which are copied only once as blobs.
func Bytes(b []byte) Value { return Value{kind: sqlite.TypeBlob, bytes: b} }

// Time is a time in milliseconds, 0 for the zero time, which means "never" in tables.
func Time(t time.Time) Value { return Int(Milliseconds(t)) }

// Plus is a number and another.
func (v Value) Plus(n int64) Value { return Int(v.n + n) }

// String is a text, and "" of other values.
func (v Value) String() string { return v.text }

// stmt returns a statement with its arguments. It is prepared on its first use and kept with the
// connection.
func (w *Writer) stmt(query string, args []Value) (*sqlite.Stmt, error) {
	stmt, ok := w.stmts[query]
	if !ok {
		var err error
		if stmt, err = w.Conn.Prepare(query); err != nil {
			return nil, err
		}
		w.stmts[query] = stmt
	}
	for i := range args {
		switch arg := &args[i]; arg.kind {
		case sqlite.TypeText:
			stmt.BindText(i+1, arg.text)
		case sqlite.TypeInteger:
			stmt.BindInt64(i+1, arg.n)
		case sqlite.TypeBlob:
			stmt.BindBytes(i+1, arg.bytes)
		case sqlite.TypeNull:
			stmt.BindNull(i + 1)
		}
	}
	return stmt, nil
}

// Exec executes a statement that returns no rows.
func (w *Writer) Exec(what, query string, args ...Value) error {
	stmt, err := w.stmt(query, args)
	if err == nil {
		err = exec(stmt)
	}
	if err = w.checker.take(err); err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return nil
}

// exec is [Writer.Exec] with a seal after the arguments.
func (w *Writer) exec(what, query string, args []Value, seal []byte) error {
	stmt, err := w.stmt(query, args)
	if err == nil {
		stmt.BindBytes(len(args)+1, seal)
		err = exec(stmt)
	}
	if err = w.checker.take(err); err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return nil
}

// Scalar returns the single number of a statement.
func (w *Writer) Scalar(what, query string, args ...Value) (n int64, err error) {
	stmt, err := w.stmt(query, args)
	if err == nil {
		_, err = stmt.Step()
		n = stmt.ColumnInt64(0)
		if resetErr := stmt.Reset(); err == nil {
			err = resetErr
		}
	}
	if err = w.checker.take(err); err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", what, err)
	}
	return n, nil
}

// Run runs a statement without arguments that returns no rows, such as one that begins or
// ends a transaction.
func (w *Writer) Run(statement string) error {
	stmt, err := w.stmt(statement, nil)
	if err != nil {
		return err
	}
	return exec(stmt)
}

// Together calls a function in one transaction.
func (w *Writer) Together(do func() error) error {
	var done error
	err := func() (err error) {
		defer sqlitex.Save(w.Conn)(&err)
		done = do()
		return done
	}()
	if err != nil && done == nil {
		return fmt.Errorf("cannot write the transaction: %w", err)
	}
	return err
}

// Changes returns how many rows the last statement wrote.
func (w *Writer) Changes() int { return w.Conn.Changes() }

// shrinkMemory frees the memory of a connection's pages.
const shrinkMemory = `PRAGMA shrink_memory`

// Shrink frees the memory of the connection's pages.
func (w *Writer) Shrink() error { return w.Run(shrinkMemory) }

// exec runs a prepared statement that returns no rows.
func exec(stmt *sqlite.Stmt) error {
	_, err := stmt.Step()
	if resetErr := stmt.Reset(); err == nil {
		err = resetErr
	}
	return err
}

// Of returns the seal of a row of a sealed table that is to be written, with the values of all
// columns in the table's order.
func (s *Seals) Of(table string, values ...Value) []byte {
	c := s.sealer()
	defer s.sealers.Put(c)
	return slices.Clone(c.of(s.tables[table], values))
}
